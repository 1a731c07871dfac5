"""Maps clock times to instants, by three rules for the two days a year on which clocks change.

`times` yields the clock times that a schedule names after a given one, in order, without a zone.
`docs/concepts/time.md` has a table of the rules. A cron expression follows the first rule, or the second if it has a
wildcard, as in Debian's cron. A calendar event follows the third, as in systemd.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from ticker.schedules.zones import SECOND, instants, next_change, skipped_by, wall, was_no_day

Times = Callable[[datetime], Iterator[datetime]]

ANY = datetime(2000, 1, 1)  # noqa: DTZ001 a clock time has no zone


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
