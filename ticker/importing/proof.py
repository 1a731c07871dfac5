"""Proves a translated schedule: compares its times with those of the source's own rule."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache, partial

from ticker.importing.dialects import Times
from ticker.model import Kind
from ticker.schedules import kinds, zones
from ticker.schedules.kinds import Schedule

NEXT = 100
CHANGES_FOR = timedelta(days=730)
AROUND = timedelta(hours=2)  # more than clocks are moved by
AT_ONCE = 10


@lru_cache(maxsize=10_000)  # many entries have the same schedule
def difference(there: Times, kind: Kind, text: str, zone: str, now: datetime) -> str:
    """Returns the first difference in one sentence, or an empty text. `kind`, `text` and `zone` are our schedule.

    Compares the next 100 times, and those around all changes of the zone's clocks within two years.
    """
    schedule = kinds.parse(kind, text, zone)
    ours = partial(kinds.times, schedule)
    changes = zones.changes(now - AROUND, schedule.zone, CHANGES_FOR)
    by_design = []
    for at in _differing(there(now, NEXT), ours(now, NEXT), NEXT):
        if not any(abs(at - change) <= AROUND for change in changes):
            return f"its next time there is {_next(there, at, schedule)}, and here {_next(ours, at, schedule)}"
        by_design.append(at)
    for change in changes:
        there_around, here_around = (_between(times, change - AROUND, change + AROUND) for times in (there, ours))
        by_design += _differing(there_around, here_around, 0)
    if not by_design:
        return ""
    at = min(by_design)
    return (
        f"on days when the clocks change, times differ by design: first, there {_next(there, at, schedule)}, and here "
        f"{_next(ours, at, schedule)}"
    )


def _differing(there: Sequence[datetime], here: Sequence[datetime], full: int) -> list[datetime]:
    """Returns the times that only one of the two has, up to where the shorter of two full lists ends."""
    end = min((times[-1] for times in (there, here) if full and len(times) == full), default=None)
    return sorted(at for at in {*there} ^ {*here} if end is None or at <= end)


def _between(times: Times, begin: datetime, end: datetime) -> list[datetime]:
    found: list[datetime] = []
    while part := times(found[-1] if found else begin, AT_ONCE):
        found += part
        if part[-1] > end:
            break
    return [at for at in found if at <= end]


def _next(times: Times, at: datetime, schedule: Schedule) -> str:
    following = times(at - kinds.MICROSECOND, 1)
    return following[0].astimezone(schedule.zone).isoformat(" ", "seconds") if following else "never"
