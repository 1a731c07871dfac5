"""Counts ended runs from their records, in small steps. Each step reads what has ended since the previous one."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from ticker import clock
from ticker.db.sql import Row
from ticker.db.steps import Steps
from ticker.metrics.families import BY_NAME, DELAYS, DURATIONS, OF_THE_DATABASE, SHARES, WORDS, Figures, Histogram
from ticker.read.entries import instant
from ticker.read.journal import ENDED, LATE, REASONS
from ticker.tasks.rows import query

STEP = timedelta(minutes=1)  # span of records that one statement reads; halved after a failure
LEAST_STEP = timedelta(seconds=1)
BUDGET = 2.0  # seconds per look after a gap; the next look continues
FAR = timedelta(hours=1)  # how far back runs are counted: the records of some tasks are pruned after two hours
FUNCTIONS_AT_MOST = 200
OTHER = "(other)"
"""Stands for all functions beyond the first 200, as names are not limited."""


class Ended:
    """Counts that begin at 0 at the first look.

    A row becomes visible at its commit, a little after the time that it contains (`journal.Tail`). So a look leaves
    runs that ended within the last half minute to the next one. No run is counted twice, and no ids are stored.
    """

    def __init__(self) -> None:
        self._since: datetime | None = None
        self._step = STEP
        self._functions: set[str] = set()
        self._counts: dict[str, dict[tuple[str, ...], int]] = {name: {} for name in WORDS}
        self._spans: dict[str, dict[tuple[str, ...], Histogram]] = {name: {} for name in SPANS}

    def look(self) -> Steps[None]:
        """Counts what has ended so far. The next look counts what a database error or a lack of time left out."""
        until, give_up_at = (yield from instant.steps()) - LATE, clock.monotonic() + BUDGET
        self._since = max(min(self._since or until, until), until - FAR)
        while self._since < until and clock.monotonic() < give_up_at:
            step, self._step = self._step, max(self._step / 2, LEAST_STEP)
            upto = min(self._since + step, until)
            for row in (yield from self._ended(self._since, upto)):
                self._count(row)
            self._since, self._step = upto, min(2 * step, STEP)

    def know(self, functions: Iterable[str]) -> None:
        """Starts the counts of these functions at 0, because Prometheus sees no increase in a series that begins at 1."""
        for function in functions:
            self._known(function)

    def figures(self) -> Figures:
        counts = {name: {**series} for name, series in self._counts.items()}
        return counts | {name: {of: span.read() for of, span in series.items()} for name, series in self._spans.items()}

    def _ended(self, since: datetime, until: datetime) -> Steps[list[Row]]:
        return (yield query(
            "count_ended", outcomes=ENDED, reasons=REASONS, since=since, until=until,
            delays=negated(DELAYS), durations=negated(DURATIONS), shares=negated(SHARES),
        ))  # fmt: skip

    def _count(self, row: Row) -> None:
        function = self._known(row["function"])
        if row["family"] in WORDS:
            self._counts[row["family"]][function, row["word"]] += row["count"]
        else:
            self._spans[row["family"]][function,].put(row["bound"], row["count"], row["sum"])

    def _known(self, function: str) -> str:
        """Returns the label of the function. Adds a new label to all counts, with the value 0."""
        if function in self._functions:
            return function
        label = function if len(self._functions) < FUNCTIONS_AT_MOST else OTHER
        if label not in self._functions:
            self._functions.add(label)
            for name, words in WORDS.items():
                self._counts[name] |= {(label, word): 0 for word in words}
            for name, series in self._spans.items():
                series[label,] = Histogram(BY_NAME[name].bounds)
        return label


SPANS = tuple(family.name for family in OF_THE_DATABASE if family.bounds)


def negated(bounds: Iterable[float]) -> list[float]:
    """Returns the negated bounds in ascending order, as PostgreSQL's width_bucket requires."""
    return sorted(-float(bound) for bound in bounds)
