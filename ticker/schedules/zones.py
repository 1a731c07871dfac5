"""Finds zones by their names in the IANA database, and maps clock times to instants on the days on which clocks change.

`times` yields the clock times that a schedule names after a given one, in order, without a zone.
`docs/concepts/time.md` has a table of the three rules. A cron expression follows the first rule, or the second if it
has a wildcard, as in Debian's cron. A calendar event follows the third, as in systemd.
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ticker.errors import BadInput, did_you_mean

SECOND = timedelta(seconds=1)
FAR = timedelta(
    hours=26
)  # longer than the longest change (a day skipped or repeated), shorter than the gap between two

ANY = datetime(2000, 1, 1)  # noqa: DTZ001 a clock time has no zone

Times = Callable[[datetime], Iterator[datetime]]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
_NOT_ZONES = ("posix", "right", "localtime", "posixrules", "Factory")  # files in the database's folder


def zone(field: str, name: object) -> ZoneInfo:
    """Returns the zone with that name, spelled exactly as in the IANA database. Raises BadInput."""
    if not isinstance(name, str):
        raise BadInput(field, name, "is not a zone; write a name from the IANA database, such as Europe/Berlin")
    if (listed := _listed(name)) is None:
        spelled = "/".join(part.title() for part in name.split("/"))
        hint = spelled if _listed(spelled) else "one such as UTC or Europe/Berlin"
        near = "" if hint == spelled else did_you_mean(name[:60], _names())
        raise BadInput(field, name, f"is not a zone in the IANA database{near}; write {hint}")
    return listed


def _names() -> list[str]:
    """Returns the names in the list of the package tzdata. Python's own list would open the file of each zone."""
    return files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()


def _listed(name: str) -> ZoneInfo | None:
    """Returns the zone, or None. Listing the whole database instead would open each file and take a tenth of a second."""
    if len(name) > 60 or not _NAME.fullmatch(name) or name.split("/")[0] in _NOT_ZONES:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def wall(instant: datetime, zone: ZoneInfo) -> datetime:
    """Returns the time that the zone's clocks show at that instant, without a zone."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def instants(shown: datetime, zone: ZoneInfo) -> list[datetime]:
    """Returns the instants at which the zone's clocks show a time: one, two if they are set back, none if set forward."""
    both = [shown.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
    return [x for n, x in enumerate(both) if (n == 0 or x != both[0]) and wall(x, zone) == shown]


def next_change(instant: datetime, zone: ZoneInfo, within: timedelta = FAR) -> datetime | None:
    """Returns when the zone's offset next changes, exact to one second, or None if it does not change `within` that
    time.
    """
    low = instant.astimezone(UTC).replace(microsecond=0)
    high, offset = low + within, _offset(low, zone)
    if _offset(high, zone) == offset:
        return None
    while high - low > SECOND:
        middle = low + timedelta(seconds=(high - low) // SECOND // 2)
        low, high = (middle, high) if _offset(middle, zone) == offset else (low, middle)
    return high


def changes(instant: datetime, zone: ZoneInfo, within: timedelta) -> list[datetime]:
    """Returns all instants within that time at which the offset changes."""
    result: list[datetime] = []
    at, end = instant, instant + within
    while at < end:
        change = next_change(at, zone)
        if change is not None and change <= end:
            result.append(change)
        at = change or at + FAR
    return result


def skipped_by(shown: datetime, zone: ZoneInfo) -> datetime:
    """Returns the instant at which the clocks skipped a time that they never showed."""
    before = (shown - shown.replace(tzinfo=zone, fold=1).utcoffset()).replace(tzinfo=UTC)  # type: ignore[operator]
    change = next_change(before, zone)
    if change is None:
        raise ValueError(f"{zone} does not skip {shown}")
    return change


def was_no_day(shown: datetime, zone: ZoneInfo) -> bool:
    """Returns whether the whole date of a skipped time never existed, like 30 December 2011 in Samoa."""
    change = skipped_by(shown, zone)
    last = wall(change - SECOND, zone).date()
    return last < shown.date() < wall(change, zone).date()


def gap_at_the_change(times: Times, instant: datetime, zone: ZoneInfo) -> datetime | None:
    """Returns the next instant. A skipped time fires at the change, and a time shown twice fires the first time."""
    for shown in times(wall(instant, zone)):
        shown_at = instants(shown, zone)
        if not shown_at and was_no_day(shown, zone):
            continue
        first = shown_at[0] if shown_at else skipped_by(shown, zone)
        if first > instant:
            return first
    return None


def gap_skipped_overlap_twice(times: Times, instant: datetime, zone: ZoneInfo) -> datetime | None:
    """Returns the next instant at which the clocks show a time. A skipped time never fires; a time shown twice fires
    twice.
    """
    after = wall(instant, zone)
    change = next_change(instant, zone)
    if change is not None:
        offset = instant.astimezone(zone).utcoffset()
        shown = next(times(after), None)
        if shown is not None and offset is not None and (first := (shown - offset).replace(tzinfo=UTC)) < change:
            return first
        after, instant = wall(change, zone) - SECOND, change - SECOND
    for shown in times(after):
        for shown_at in instants(shown, zone):
            if shown_at > instant:
                return shown_at
    return None


def gap_skipped_overlap_once(times: Times, instant: datetime, zone: ZoneInfo) -> datetime | None:
    """Returns the next instant. A skipped time never fires, and a time shown twice fires the first time."""
    for shown in times(wall(instant, zone)):
        shown_at = instants(shown, zone)
        if shown_at and shown_at[0] > instant:
            return shown_at[0]
    return None


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta | None:
    return instant.astimezone(zone).utcoffset()
