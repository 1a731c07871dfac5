"""Defines intervals, which count from the tick that found the task due, or keep the phase of the task.

A phase of its own in the interval keeps each of many tasks from being due at the same time. It is a preference: a task
leaves its phase if keeping it would make the task run less often than its interval requires. Phases are in ms.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from ticker.errors import BadInput
from ticker.model import Kind
from ticker.schedules.duration import SECOND, milliseconds, words
from ticker.schedules.once import EPOCH

UTC = ZoneInfo("UTC")
DOTS = ".."
MILLISECOND = timedelta(milliseconds=1)
JITTER = 1.1  # in ticks: the longest time from one tick to the next, if the rhythm holds


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of `every_ms` milliseconds of real time, which no zone affects.

    With `most_ms`, it is elastic: `every_ms` is its lower bound, and `most_ms` its upper bound.
    """

    every_ms: int
    zone: ZoneInfo = UTC
    kind: Kind = field(default=Kind.INTERVAL, init=False)
    most_ms: int | None = None

    @property
    def text(self) -> str:
        return words(self.every_ms) + (f"{DOTS}{words(self.most_ms)}" if self.most_ms else "")

    def next_after(self, instant: datetime) -> datetime:
        """Returns `instant`, which is aware, plus the interval."""
        return instant + timedelta(milliseconds=self.every_ms)

    def words(self) -> str:
        return f"Every {words(self.every_ms)}" + (f" to {words(self.most_ms)}" if self.most_ms else "")


def parse(field: str, value: object, zone: ZoneInfo = UTC) -> Interval:
    """Reads an interval: a duration, or `1m..30m` for an elastic one. Raises BadInput."""
    if not isinstance(value, str) or DOTS not in value:
        return Interval(milliseconds(field, value, least=SECOND), zone)
    least, most = (milliseconds(field, part, least=SECOND) for part in value.split(DOTS, 1))
    if least >= most:
        raise BadInput(field, value, "is not a range; write the shorter interval first, as in 1m..30m")
    return Interval(least, zone, most_ms=most)


def keeps_phase(every: int, tolerance: int, tick: int) -> bool:
    """Returns whether a task can keep its phase: ticks fall on the same point in each interval, or close enough to it."""
    return every % tick == 0 or window(tolerance) >= tick


def window(tolerance: int) -> int:
    """Returns how long before the end of an interval a task may be due. The rest of the tolerance is for waiting in the
    queue.
    """
    return tolerance // 2


def next_in_phase(occurrence: datetime, now: datetime, every: int, tolerance: int, phase: int, tick: int) -> datetime:
    """Returns when a task pushed at `now` is due again; `tick` is the time between two ticks, 0 if unknown.

    The task is due at its phase, counted from a multiple of the interval since 1970, if that is within reach. Otherwise
    it is due an interval after `now`, as without a phase. So it never waits longer than an interval, and never runs too
    early. The exception is a task that an outage or a resumption has moved: once, it waits for its phase, less than an
    interval longer.
    """
    in_an_interval = now + every * MILLISECOND
    in_phase = first_in_phase(in_an_interval - window(tolerance) * MILLISECOND, every, phase)
    if in_phase <= in_an_interval and (not tick or keeps_phase(every, tolerance, tick)):
        return in_phase
    if tick and every % tick == 0:
        was_moved = since_phase(now, every, phase) > tick * JITTER
    else:
        was_moved = now - occurrence >= 2 * every * MILLISECOND
    return in_phase if was_moved else in_an_interval


def next_at_pace(now: datetime, every: int, tolerance: int, phase: int, pace: int) -> datetime:
    """Returns when a task with an elastic interval is due again: at the last of its phases before `pace` has passed.

    Its phases are those of the lower bound `every`.
    """
    return first_in_phase(now + max(pace - every + 1, every - window(tolerance)) * MILLISECOND, every, phase)


def since_phase(instant: datetime, every: int, phase: int) -> int:
    """Returns how many milliseconds `instant` is after the last point in phase."""
    return (instant - EPOCH - phase * MILLISECOND) % (every * MILLISECOND) // MILLISECOND


def first_in_phase(instant: datetime, every: int, phase: int) -> datetime:
    """Returns the first point in phase at or after `instant`."""
    span, offset = every * MILLISECOND, phase * MILLISECOND
    return EPOCH + offset - (EPOCH + offset - instant) // span * span
