"""A place of its own in the interval for each of many tasks, so that they are not due all at once. Durations in ms.

A place is a preference: a task that could keep it only by running less often than its interval says leaves it.
"""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
JITTER = 1.1  # ticks: how much later than the one before the next tick comes where the rhythm holds


def keeps(every: int, tolerance: int, tick: int) -> bool:
    """Whether a task can stay in its place: ticks come at the same point of each interval, or often enough to be near it."""
    return every % tick == 0 or window(tolerance) >= tick


def window(tolerance: int) -> int:
    """How much before the end of an interval a place may be taken; the other half of the tolerance is for the queue."""
    return tolerance // 2


def next_after(occurrence: datetime, now: datetime, every: int, tolerance: int, phase: int, tick: int) -> datetime:
    """When a task that was pushed at `now` is due again; `tick` is the milliseconds between two ticks, 0 if that is unknown.

    At its place, `phase` after a multiple of the interval since 1970, if that lies within reach; otherwise an interval after
    `now`, as without a place. So it never waits longer, and never comes too early. Only a task that something else has moved
    (an outage, a resumption) waits for its place once, less than an interval longer.
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
    """How many milliseconds the last place lies before `instant`."""
    return (instant - EPOCH - phase * MILLISECOND) % (every * MILLISECOND) // MILLISECOND


def first_from(instant: datetime, every: int, phase: int) -> datetime:
    """The first place that is no earlier than `instant`."""
    span, offset = every * MILLISECOND, phase * MILLISECOND
    return EPOCH + offset - (EPOCH + offset - instant) // span * span
