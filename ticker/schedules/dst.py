"""From what clocks show to instants: the three rules for the two days a year on which clocks are changed.

`times` gives the clock times that a schedule names behind one of them, in order, without a zone. `docs/concepts/time.md` has
the table. A cron expression takes the first rule, or the second if it has a wildcard, as in Debian's cron; a calendar event
takes the third, as in systemd.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from ticker.schedules.zones import SECOND, instants, next_change, skipped_by, wall, was_no_day

Times = Callable[[datetime], Iterator[datetime]]

ANY = datetime(2000, 1, 1)  # noqa: DTZ001 what clocks show has no zone


def gap_at_the_change(times: Times, instant: datetime, zone: ZoneInfo) -> datetime | None:
    """Once for each time named: what is passed over comes at the change, what is shown twice comes the first time."""
    for shown in times(wall(instant, zone)):
        found = instants(shown, zone)
        if not found and was_no_day(shown, zone):
            continue
        first = found[0] if found else skipped_by(shown, zone)
        if first > instant:
            return first
    return None


def gap_skipped_overlap_twice(times: Times, instant: datetime, zone: ZoneInfo) -> datetime | None:
    """Whenever the clocks show it: what is passed over never comes, what is shown twice comes twice."""
    after = wall(instant, zone)
    change = next_change(instant, zone)
    if change is not None:
        offset = instant.astimezone(zone).utcoffset()
        shown = next(times(after), None)
        if shown is not None and offset is not None and (first := (shown - offset).replace(tzinfo=UTC)) < change:
            return first
        after, instant = wall(change, zone) - SECOND, change - SECOND
    for shown in times(after):
        for found in instants(shown, zone):
            if found > instant:
                return found
    return None


def gap_skipped_overlap_once(times: Times, instant: datetime, zone: ZoneInfo) -> datetime | None:
    """What is passed over never comes, what is shown twice comes the first time."""
    for shown in times(wall(instant, zone)):
        found = instants(shown, zone)
        if found and found[0] > instant:
            return found[0]
    return None
