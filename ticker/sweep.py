"""What each pass mends after the tick: dead runs, old waiting jobs, and jobs that the queue lost.

Bounded: at most one batch of each per pass. The rows that are looked at are locked while the queue is asked about
their jobs, so that none of them can start in between.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Self, TypeVar

from ticker import envelope, timing
from ticker.ports import JobState, Queue, Settled, Store
from ticker.task import DueTask, Outcome, Reason, WaitingTask

T = TypeVar("T")

DIED_BEFORE_ITS_START = "its job ended before its start; RQ's failed registry may say why"


class Counts:
    """A frozen dataclass of counts; two of them add up field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))  # type: ignore[call-overload]


@dataclass(frozen=True)
class Swept(Counts):
    """Counts: dead runs ended, waiting occurrences expired, jobs pushed again, jobs that died before their start."""

    overdue: int = 0
    expired: int = 0
    repushed: int = 0
    lost: int = 0
    errors: int = 0


def sweep(store: Store, queue: Queue, now: datetime, limit: int) -> Swept:
    overdue = Swept(overdue=store.end_overdue(now, limit))
    return overdue + sweep_waiting(store, queue, now, limit) + sweep_planned(store, queue, now, limit)


def sweep_waiting(store: Store, queue: Queue, now: datetime, limit: int) -> Swept:
    """Expires old occurrences of one batch of tasks, and pushes again what the queue does not hold any more."""
    with store.batch() as rows:
        tasks = rows.claim_waiting(limit)
        expired = [due for task in tasks for due in task.occurrences() if has_expired(task, due, now)]
        others = [due for task in tasks for due in task.occurrences() if not has_expired(task, due, now)]
        states = queue.states([envelope.job_id(due.id, due.occurrence) for due in others])
        missing, dead = _split(others, states)
        queue.forget([envelope.job_id(due.id, due.occurrence) for due in expired])
        receipts = queue.push([envelope.for_occurrence(due) for due in missing])
        rows.settle([_settled(due, Outcome.DROPPED, Reason.EXPIRED) for due in expired], now)
        rows.settle([_settled(due, Outcome.LOST, DIED_BEFORE_ITS_START) for due in dead], now)
    refused = sum(1 for receipt in receipts if receipt.error)
    return Swept(expired=len(expired), repushed=len(missing) - refused, lost=len(dead), errors=refused)


def sweep_planned(store: Store, queue: Queue, now: datetime, limit: int) -> Swept:
    """The same question for planned runs that were pushed and have not started."""
    with store.batch() as rows:
        runs = rows.claim_pushed(limit)
        envelopes = [envelope.for_planned(run) for run in runs]
        missing, dead = _split(envelopes, queue.states([e.job_id for e in envelopes]))
        receipts = queue.push(missing)
        gone = {e.job_id for e in dead}
        rows.lose_planned([run.id for run in runs if f"r{run.id}" in gone], DIED_BEFORE_ITS_START, now)
    refused = sum(1 for receipt in receipts if receipt.error)
    return Swept(repushed=len(missing) - refused, lost=len(dead), errors=refused)


def has_expired(task: WaitingTask, due: DueTask, now: datetime) -> bool:
    return timing.has_expired(due.occurrence, task.waiting[-1], now, task.every_ms)


def _split(items: Sequence[T], states: Sequence[JobState]) -> tuple[list[T], list[T]]:
    missing = [item for item, state in zip(items, states, strict=True) if state is JobState.MISSING]
    dead = [item for item, state in zip(items, states, strict=True) if state is JobState.DEAD]
    return missing, dead


def _settled(due: DueTask, outcome: Outcome, reason: str) -> Settled:
    return Settled(due.id, due.occurrence, outcome, reason)
