"""Repairs waiting occurrences after the push: expires old ones, and pushes lost jobs again.

A sweep is bounded. While jobs are missing, it goes through all batches. Otherwise, it goes through a few per pass. The
rows stay locked while the queue is asked about their jobs, so that no job can start in between.
"""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Self

from ticker.engine import jobs
from ticker.engine.lost_jobs import JobVerdict, job_id, job_of, verdict
from ticker.engine.ports import JobState, Settled, Store
from ticker.engine.queue_limit import Room
from ticker.model import Outcome, Reason

IN_VAIN_AT_MOST = 10  # batches in a row without a missing job; then the next pass continues
DIED_BEFORE_ITS_START = "its job ended before its start; RQ's failed registry may say why"
NEVER_STARTED = (
    "their jobs ended or were gone before they started, and newer ones waited; RQ's failed registry may say why"
)


class Counts:
    """The base class of frozen dataclasses of counts. Their instances are added field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))  # type: ignore[call-overload]


@dataclass(frozen=True)
class Swept(Counts):
    """Counts of overdue runs, expired occurrences, jobs pushed again, jobs that died before their start, and push
    errors.

    `returned` occurrences of paused tasks are next runs again, because their jobs are gone.
    """

    overdue: int = 0
    expired: int = 0
    repushed: int = 0
    lost: int = 0
    errors: int = 0
    returned: int = 0


def sweep(store: Store, room: Room, now: datetime, limit: int, stop: Callable[[], bool]) -> Swept:
    """Looks for jobs that the queue lost: in all batches while some are missing, else in a few."""
    steps = (
        lambda: sweep_waiting(store, room, now, limit),
        lambda: sweep_planned(store, room, now, limit),
    )
    return sum((in_rounds(step, stop) for step in steps), Swept())


def in_rounds(step: Callable[[], tuple[Swept, bool]], stop: Callable[[], bool]) -> Swept:
    """Repeats `step`, which returns what it did and whether more rows follow. The next pass continues after the last
    step.
    """
    total, in_vain = Swept(), 0
    while True:
        swept, more = step()
        total += swept
        in_vain = in_vain + 1 if swept == Swept() else 0
        if not more or in_vain == IN_VAIN_AT_MOST or stop():
            return total


def sweep_waiting(store: Store, queue: Room, now: datetime, limit: int) -> tuple[Swept, bool]:
    """Expires old occurrences of one batch of tasks, and pushes again those whose jobs the queue no longer holds.

    Tasks share a job again only if they run in groups: there, the cause of a death is observed, or its tasks run alone
    next time. Otherwise, each gets its own job, because one task may have killed each process that ran the batch.
    """
    with store.batch() as rows:
        waiting = [(task, due) for task in rows.claim_waiting(limit, now) for due in task.occurrences()]
        states = queue.states([job_of(store.installation, task, due) for task, due in waiting])
        verdicts = [(verdict(task, due, state, now), due) for (task, due), state in zip(waiting, states, strict=True)]
        old, never_started, again, lost, back = (
            [due for decision, due in verdicts if decision is wanted]
            for wanted in (
                JobVerdict.EXPIRED,
                JobVerdict.NEVER_STARTED,
                JobVerdict.AGAIN,
                JobVerdict.GIVEN_UP,
                JobVerdict.PUT_BACK,
            )
        )
        expired = [*old, *never_started]
        packed = queue.fitting(jobs.packed(store.installation, again))  # the others wait until there is room
        # but no job that also carries other tasks
        gone = [*(job_id(store.installation, due) for due in (*expired, *back)), *(job.spec.job_id for job in packed)]
        queue.forget(gone, {due.queue for due in (*expired, *back)})
        receipts = queue.push([job.spec for job in packed])
        rows.note_jobs([(due.id, due.occurrence, job.batch_job_id) for job in packed for due in job.tasks])
        rows.put_back([(due.id, due.occurrence, Reason.POSTPONED) for due in back])
        rows.settle([Settled(due.id, due.occurrence, Outcome.DROPPED, Reason.EXPIRED) for due in expired], now)
        rows.settle([Settled(due.id, due.occurrence, Outcome.LOST, DIED_BEFORE_ITS_START) for due in lost], now)
        rows.note_expired([due.id for due in never_started], NEVER_STARTED, now)
        more = rows.has_more()
    refused = sum(len(job.tasks) for job, receipt in zip(packed, receipts, strict=True) if receipt.error)
    repushed = sum(len(job.tasks) for job in packed) - refused
    return Swept(expired=len(expired), repushed=repushed, lost=len(lost), errors=refused, returned=len(back)), more


def sweep_planned(store: Store, queue: Room, now: datetime, limit: int) -> tuple[Swept, bool]:
    """Pushes lost jobs of planned runs again, and for ten minutes also jobs that died before their start. Then those
    runs are lost.
    """
    with store.batch() as rows:
        runs = rows.claim_pushed(limit, now)
        states = queue.states([run.job_id or jobs.planned_id(store.installation, run.id) for run in runs])
        gone = [
            (run, state) for run, state in zip(runs, states, strict=True) if state in (JobState.MISSING, JobState.DEAD)
        ]
        dead = [run.id for run, state in gone if state is JobState.DEAD and not run.is_young]
        packed = queue.fitting(jobs.packed(store.installation, [run for run, _ in gone if run.id not in dead]))
        queue.forget([job.spec.job_id for job in packed])
        receipts = queue.push([job.spec for job in packed])
        rows.mark_pushed([(run.id, job.spec.job_id) for job in packed for run in job.tasks], now)
        rows.lose_planned(dead, DIED_BEFORE_ITS_START, now)
        more = rows.has_more()
    refused = sum(len(job.tasks) for job, receipt in zip(packed, receipts, strict=True) if receipt.error)
    repushed = sum(len(job.tasks) for job in packed) - refused
    return Swept(repushed=repushed, lost=len(dead), errors=refused), more
