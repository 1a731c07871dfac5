"""Counts the tasks that fall due in each of the next seconds, and draws them. Shows where many are due at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ticker.db.steps import Steps, reads
from ticker.read import activity
from ticker.read.entries import instant
from ticker.tasks.rows import query

AHEAD = timedelta(minutes=10)
SECOND = timedelta(seconds=1)
COUNTED = 50_000  # tasks
FULLEST = 10  # seconds in the table


@dataclass(frozen=True, slots=True)
class DueSeconds:
    """How many tasks are due next in each second from `begin` on. Each task counts once, and only if it may run.

    Counting stopped in the second from `counted_until` on, which has at least so many, after 50,000 tasks, or else at
    the end of the ten minutes.
    """

    begin: datetime
    counted_until: datetime
    counts: Sequence[int]

    @property
    def tasks(self) -> int:
        return sum(self.counts)

    @property
    def is_cut(self) -> bool:
        return self.counted_until < self.begin + AHEAD

    @property
    def fullest(self) -> list[tuple[datetime, int]]:
        """Returns the seconds with most tasks, the fullest first."""
        numbered = sorted(enumerate(self.counts), key=lambda one: (-one[1], one[0]))
        return [(self.at(number), count) for number, count in numbered[:FULLEST] if count]

    def at(self, number: int) -> datetime:
        return self.begin + SECOND * number


@reads
def due_seconds() -> Steps[DueSeconds]:
    """Counts the tasks that are due in each second of the next ten minutes. Reads the indexes of what is due."""
    now = yield from instant.steps()
    begin = now.replace(microsecond=0)
    rows = yield query("due_by_second", begin=begin, until=begin + AHEAD, most=COUNTED)
    counts = [0] * (AHEAD // SECOND)
    for row in rows:
        counts[row["second"]] = row["tasks"]
    until = begin + AHEAD
    if sum(counts) >= COUNTED:
        until = begin + SECOND * rows[-1]["second"]
    return DueSeconds(begin, until, counts)


def path(seen: DueSeconds) -> str:
    """Returns the bars of all seconds as one path."""
    columns = [[("due", float(count))] for count in seen.counts]
    return activity.paths(columns, max(seen.counts)).get("due", "")
