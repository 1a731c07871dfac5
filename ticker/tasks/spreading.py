"""Gives interval tasks phases of their own, so that they are not due at the same time. Each batch is a transaction."""

from dataclasses import dataclass

from ticker import settings
from ticker.db.steps import Parts, Steps, commits, reads
from ticker.errors import BadInput
from ticker.tasks.rows import query

BATCH = 5_000  # rows that are locked at a time


@dataclass(frozen=True, slots=True)
class SpreadPlan:
    """How many interval tasks match, and how many have a phase. `most_now` and `most_then` are the most that are due within
    a tick: now, and once all have a phase.
    """

    tasks: int
    placed: int
    most_now: int
    most_then: int

    @property
    def refusal(self) -> str:
        """Says why these tasks should stay as they are, or nothing. Phases of a few tasks may be close by chance."""
        if self.placed == self.tasks or self.most_then <= self.most_now:
            return ""
        return (
            f"would raise the maximum due within one tick from {self.most_now} to {self.most_then}; "
            "choose more tasks, or leave these as they are"
        )


@reads
def spread_plan(owner_type: str | None = None, function: str | None = None) -> Steps[SpreadPlan]:
    tick_ms = settings.current().tick_ms
    [row] = yield query("spread_plan", owner_type=owner_type, function=function, tick_ms=tick_ms)
    return SpreadPlan(**row)


@commits
def spread(owner_type: str | None = None, function: str | None = None) -> Parts[int]:
    """Gives each of these interval tasks a phase that it keeps. Returns how many had none. May be interrupted and
    repeated while tickers run. Raises BadInput if the maximum that is due within one tick would rise.
    """
    if refusal := (yield spread_plan.steps(owner_type, function)).refusal:
        raise BadInput("spread", None, refusal)
    after = done = 0
    while ids := (yield _batch(after, owner_type, function)):
        after, done = max(ids), done + len(ids)
    return done


def _batch(after: int, owner_type: str | None, function: str | None) -> Steps[list[int]]:
    rows = yield query("spread", owner_type=owner_type, function=function, after=after, limit=BATCH)
    ids = [row["id"] for row in rows]
    placed = yield query("next_in_phase", ids=ids)
    yield query("set_next_runs", ids=[row["id"] for row in placed], next_runs=[row["next_run"] for row in placed])
    return ids
