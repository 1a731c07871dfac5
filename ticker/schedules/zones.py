"""Zones by their names in the IANA database, and what their clocks do twice a year."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ticker.errors import BadInput

SECOND = timedelta(seconds=1)
FAR = timedelta(hours=26)  # over the longest change (a whole day was skipped, or lived twice), and under any two

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
_NO_PLACES = ("posix", "right", "localtime", "posixrules", "Factory")  # in the database's folder, and no zones


def zone(field: str, name: object) -> ZoneInfo:
    """The zone of that name, exactly as the IANA database spells it; else BadInput."""
    if not isinstance(name, str):
        raise BadInput(field, name, "is no zone; write a name of the IANA database, such as Europe/Berlin")
    if (found := _listed(name)) is None:
        spelled = "/".join(part.title() for part in name.split("/"))
        hint = spelled if _listed(spelled) else "one such as UTC or Europe/Berlin"
        raise BadInput(field, name, f"is no zone of the IANA database; write {hint}")
    return found


def _listed(name: str) -> ZoneInfo | None:
    """To list the whole database takes a tenth of a second, as each of its files is opened."""
    if len(name) > 60 or not _NAME.fullmatch(name) or name.split("/")[0] in _NO_PLACES:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def wall(instant: datetime, zone: ZoneInfo) -> datetime:
    """What the zone's clocks show at that instant, without a zone."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def instants(shown: datetime, zone: ZoneInfo) -> list[datetime]:
    """When the zone's clocks show it: once, twice where they are set back, never where they are set forward."""
    both = [shown.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
    return [x for n, x in enumerate(both) if (n == 0 or x != both[0]) and wall(x, zone) == shown]


def next_change(instant: datetime, zone: ZoneInfo, within: timedelta = FAR) -> datetime | None:
    """The first instant of another offset, to the second; None where there is none `within` that time."""
    low = instant.astimezone(UTC).replace(microsecond=0)
    high, offset = low + within, _offset(low, zone)
    if _offset(high, zone) == offset:
        return None
    while high - low > SECOND:
        middle = low + timedelta(seconds=(high - low) // SECOND // 2)
        low, high = (middle, high) if _offset(middle, zone) == offset else (low, middle)
    return high


def changes(instant: datetime, zone: ZoneInfo, within: timedelta) -> list[datetime]:
    """Every instant of another offset within that time."""
    found: list[datetime] = []
    at, end = instant, instant + within
    while at < end:
        change = next_change(at, zone)
        if change is not None and change <= end:
            found.append(change)
        at = change or at + FAR
    return found


def skipped_by(shown: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which the clocks passed over a time that they never showed."""
    before = (shown - shown.replace(tzinfo=zone, fold=1).utcoffset()).replace(tzinfo=UTC)  # type: ignore[operator]
    change = next_change(before, zone)
    if change is None:
        raise ValueError(f"{zone} does show {shown}")
    return change


def was_no_day(shown: datetime, zone: ZoneInfo) -> bool:
    """Whether the whole date of a time that was passed over never was, as 30 December 2011 in Samoa."""
    change = skipped_by(shown, zone)
    last = wall(change - SECOND, zone).date()
    return last < shown.date() < wall(change, zone).date()


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta | None:
    return instant.astimezone(zone).utcoffset()
