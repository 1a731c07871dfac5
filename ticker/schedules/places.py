"""A place of its own in the interval for each of many tasks, so that they are not due all at once. Durations in ms."""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def slack(every: int, tolerance: int, tick: int) -> int:
    """How much before the end of an interval the next place may lie.

    The tolerance; and where ticks come at the same point of each interval, a whole tick, as the place before was found up
    to that late. Without it, every second place would be passed over as too early.
    """
    return max(tolerance, tick) if tick and every % tick == 0 else tolerance


def next_after(occurrence: datetime, now: datetime, every: int, phase: int, slack: int) -> datetime:
    """The first instant, `phase` behind a multiple of the interval since 1970, that lies more than I - `slack` behind `now`.

    So the cadence stays, and whoever was late (all tasks, after an outage) is back in its place with the next run.
    """
    after = max(occurrence, now + (every - slack) * MILLISECOND)
    rounds = ((after - EPOCH) // MILLISECOND - phase) // every + 1
    return EPOCH + (rounds * every + phase) * MILLISECOND
