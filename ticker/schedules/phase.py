"""Gives each of many tasks a place of its own in the interval, so that they are not all due at once. Durations in ms.

A place is a preference: a task leaves it if it could keep it only by running less often than its interval says.
"""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
JITTER = 1.1  # ticks: the next tick comes at most this long after the last one, if the rhythm holds


def keeps(every: int, tolerance: int, tick: int) -> bool:
    """Whether a task can stay in its place: ticks come at the same point of each interval, or often enough to be near it."""
    return every % tick == 0 or window(tolerance) >= tick


def window(tolerance: int) -> int:
    """Returns how long before the end of an interval a place may be taken; the rest of the tolerance is for the queue."""
    return tolerance // 2


def next_after(occurrence: datetime, now: datetime, every: int, tolerance: int, phase: int, tick: int) -> datetime:
    """Returns when a task pushed at `now` is due again; `tick` is the milliseconds between two ticks, 0 if unknown.

    The task is due at its place, `phase` after a multiple of the interval since 1970, if that is within reach. Otherwise it
    is due an interval after `now`, as without a place. So it never waits longer, and never comes too early. The
    exception is a task that an outage or a resumption has moved: it waits for its place once, less than an interval longer.
    """
    whole = now + every * MILLISECOND
    place = first_from(whole - window(tolerance) * MILLISECOND, every, phase)
    if place <= whole and (not tick or keeps(every, tolerance, tick)):
        return place
    if tick and every % tick == 0:
        was_moved = after(now, every, phase) > tick * JITTER
    else:
        was_moved = now - occurrence >= 2 * every * MILLISECOND
    return place if was_moved else whole


def after(instant: datetime, every: int, phase: int) -> int:
    """Returns how many milliseconds `instant` is after the last place."""
    return (instant - EPOCH - phase * MILLISECOND) % (every * MILLISECOND) // MILLISECOND


def first_from(instant: datetime, every: int, phase: int) -> datetime:
    """Returns the first place at or after `instant`."""
    span, offset = every * MILLISECOND, phase * MILLISECOND
    return EPOCH + offset - (EPOCH + offset - instant) // span * span
