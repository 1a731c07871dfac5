"""Gives each of many tasks its own phase in the interval, so that they are not all due at once. Durations are in ms.

A phase is a preference. A task leaves its phase if keeping it would make the task run less often than its interval
requires.
"""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
JITTER = 1.1  # in ticks: the longest time from one tick to the next, if the rhythm holds


def keeps(every: int, tolerance: int, tick: int) -> bool:
    """Returns whether a task can keep its phase: ticks fall on the same point in each interval, or close enough to it."""
    return every % tick == 0 or window(tolerance) >= tick


def window(tolerance: int) -> int:
    """Returns how long before the end of an interval a task may be due. The rest of the tolerance is for waiting in the
    queue.
    """
    return tolerance // 2


def next_after(occurrence: datetime, now: datetime, every: int, tolerance: int, phase: int, tick: int) -> datetime:
    """Returns when a task pushed at `now` is due again; `tick` is the time between two ticks, 0 if unknown.

    The task is due at its phase, counted from a multiple of the interval since 1970, if that is within reach. Otherwise
    it is due an interval after `now`, as without a phase. So it never waits longer than an interval, and never runs too
    early. The exception is a task that an outage or a resumption has moved: once, it waits for its phase, less than an
    interval longer.
    """
    in_an_interval = now + every * MILLISECOND
    in_phase = first_from(in_an_interval - window(tolerance) * MILLISECOND, every, phase)
    if in_phase <= in_an_interval and (not tick or keeps(every, tolerance, tick)):
        return in_phase
    if tick and every % tick == 0:
        was_moved = after(now, every, phase) > tick * JITTER
    else:
        was_moved = now - occurrence >= 2 * every * MILLISECOND
    return in_phase if was_moved else in_an_interval


def next_at_pace(now: datetime, every: int, tolerance: int, phase: int, pace: int) -> datetime:
    """Returns when a task with an elastic interval is due again: at the last of its phases before `pace` has passed.

    Its phases are those of the lower bound `every`.
    """
    return first_from(now + max(pace - every + 1, every - window(tolerance)) * MILLISECOND, every, phase)


def after(instant: datetime, every: int, phase: int) -> int:
    """Returns how many milliseconds `instant` is after the last point in phase."""
    return (instant - EPOCH - phase * MILLISECOND) % (every * MILLISECOND) // MILLISECOND


def first_from(instant: datetime, every: int, phase: int) -> datetime:
    """Returns the first point in phase at or after `instant`."""
    span, offset = every * MILLISECOND, phase * MILLISECOND
    return EPOCH + offset - (EPOCH + offset - instant) // span * span
