"""Repairs waiting occurrences after the push: expires old ones, and pushes lost jobs again.

A sweep is bounded. While jobs are missing, it goes through all batches. Otherwise, it goes through a few per pass. The
rows stay locked while the queue is asked about their jobs, so that no job can start in between.

Runs that have begun end elsewhere: by `end_overdue` in sweep.sql, or at once by their worker (wrappers/pipeline/finish.py) or
its supervisor (wrappers/pipeline/dead_workers.py).
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from enum import Enum

from ticker.engine import jobs, timing
from ticker.engine.jobs import BatchJob, Carried
from ticker.engine.passes import Room, Swept
from ticker.engine.ports import JobState, Queue, Refusal, Settled, Store
from ticker.model import DueTask, Outcome, Reason, WaitingTask

IN_VAIN_AT_MOST = 10  # batches in a row without a missing job; then the next pass continues
DIED_BEFORE_ITS_START = "its job ended before its start; RQ's failed registry may say why"
NEVER_STARTED = (
    "their jobs ended or were gone before they started, and newer ones waited; RQ's failed registry may say why"
)


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


def sweep_waiting(store: Store, room: Room, now: datetime, limit: int) -> tuple[Swept, bool]:
    """Expires old occurrences of one batch of tasks, and pushes again those whose jobs the queue no longer holds.

    Tasks share a job again only if they run in groups: there, the cause of a death is observed, or its tasks run alone
    next time. Otherwise, each gets its own job, because one task may have killed each process that ran the batch.
    """
    with store.batch() as rows:
        waiting = [(task, due) for task in rows.claim_waiting(limit, now) for due in task.occurrences()]
        asked = ask(room.queue, [job_of(store.installation, task, due) for task, due in waiting])
        verdicts = [
            (verdict_on(task, due, state, now, refusal), due, refusal.reason or DIED_BEFORE_ITS_START)
            for (task, due), (state, refusal) in zip(waiting, asked, strict=True)
        ]
        old, never_started, again, back = (
            [due for decision, due, _ in verdicts if decision is wanted]
            for wanted in (
                JobVerdict.EXPIRED,
                JobVerdict.NEVER_STARTED,
                JobVerdict.AGAIN,
                JobVerdict.WAIT_AGAIN,
            )
        )
        lost = [(due, reason) for decision, due, reason in verdicts if decision is JobVerdict.GIVEN_UP]
        expired = [*old, *never_started]
        packed = room.fitting(jobs.packed(store.installation, again))  # the others wait until there is room
        # but no job that also carries other tasks
        gone = [job_id(store.installation, due) for due in (*expired, *back)]
        pushed = push_again(room, packed, gone, {due.queue for due in (*expired, *back)})
        rows.note_jobs([(due.id, due.occurrence, job.batch_job_id) for job in packed for due in job.tasks])
        rows.wait_again([(due.id, due.occurrence, Reason.CLOSED) for due in back])
        rows.settle([Settled(due.id, due.occurrence, Outcome.DROPPED, Reason.EXPIRED) for due in expired], now)
        rows.settle([Settled(due.id, due.occurrence, Outcome.LOST, reason) for due, reason in lost], now)
        rows.note_expired([due.id for due in never_started], NEVER_STARTED, now)
        more = rows.has_more()
    return pushed + Swept(expired=len(expired), lost=len(lost), waits_again=len(back)), more


def sweep_planned(store: Store, room: Room, now: datetime, limit: int) -> tuple[Swept, bool]:
    """Pushes lost jobs of planned runs again, and for ten minutes also jobs that died before their start, unless two
    workers refused them. Then those runs are lost.
    """
    with store.batch() as rows:
        runs = rows.claim_pushed(limit, now)
        asked = ask(room.queue, [run.job_id or jobs.planned_id(store.installation, run.id) for run in runs])
        gone = [run for run, (state, _) in zip(runs, asked, strict=True) if state in (JobState.MISSING, JobState.DEAD)]
        dead = {
            run.id: refusal.reason or DIED_BEFORE_ITS_START
            for run, (state, refusal) in zip(runs, asked, strict=True)
            if state is JobState.DEAD and (not run.is_young or refusal.times > 1)
        }
        packed = room.fitting(jobs.packed(store.installation, [run for run in gone if run.id not in dead]))
        pushed = push_again(room, packed)
        rows.mark_pushed([(run.id, job.spec.job_id) for job in packed for run in job.tasks], now)
        for reason in {*dead.values()}:
            rows.lose_planned([id_ for id_, why in dead.items() if why == reason], reason, now)
        more = rows.has_more()
    return pushed + Swept(lost=len(dead)), more


def ask(queue: Queue, job_ids: Sequence[str]) -> list[tuple[JobState, Refusal]]:
    """Returns the state of each job, and for a dead one whether workers refused it."""
    states = queue.states(job_ids)
    dead = [job_id for job_id, state in zip(job_ids, states, strict=True) if state is JobState.DEAD]
    refusals = dict(zip(dead, queue.refusals(dead), strict=True)) if dead else {}
    return [(state, refusals.get(job_id, Refusal())) for job_id, state in zip(job_ids, states, strict=True)]


def push_again(
    room: Room, packed: Sequence[BatchJob[Carried]], gone: Sequence[str] = (), queues: Collection[str] = ()
) -> Swept:
    """Pushes these jobs, after the queue has forgotten them, and `gone` jobs also in `queues`. Counts their tasks."""
    room.queue.forget([*gone, *(job.spec.job_id for job in packed)], queues)
    receipts = room.push([job.spec for job in packed])
    refused = sum(len(job.tasks) for job, receipt in zip(packed, receipts, strict=True) if receipt.error)
    return Swept(repushed=sum(len(job.tasks) for job in packed) - refused, errors=refused)


class JobVerdict(Enum):
    """A decision about a waiting occurrence."""

    WAITS = "waits"
    EXPIRED = "expired"
    NEVER_STARTED = "never started"
    AGAIN = "pushed again"
    GIVEN_UP = "given up"
    WAIT_AGAIN = "waits again"


def verdict_on(task: WaitingTask, due: DueTask, state: JobState, now: datetime, refusal: Refusal) -> JobVerdict:
    """Returns what to do: leave alone any job that a worker has, and push a missing one again.

    A dead job is pushed again for ten minutes, but only once if a worker refused it because of its settings: a newer
    occurrence counts as that. While the task may not start, nothing is pushed: the occurrence goes back to the row.
    Only the newest occurrence is pushed again. Otherwise, after Redis was wiped, all older occurrences would be queued
    before the tasks that are due now, only to be dropped.
    """
    newest, again = task.waiting[-1], JobVerdict.WAIT_AGAIN if task.is_closed else JobVerdict.AGAIN
    if state is JobState.TAKEN:
        return JobVerdict.WAITS
    if not task.is_closed and (refusal.times > 1 or (refusal.times and due.occurrence != newest)):
        return JobVerdict.GIVEN_UP
    if timing.has_expired(due.occurrence, newest, now, task.every_ms):
        return JobVerdict.EXPIRED
    if state is JobState.WAITING:
        return JobVerdict.WAITS
    if due.occurrence != newest:
        return JobVerdict.NEVER_STARTED
    is_old = now >= due.occurrence + timing.span(timing.LEAST_EXPIRY)
    return JobVerdict.GIVEN_UP if state is JobState.DEAD and is_old else again


def job_of(installation: str, task: WaitingTask, due: DueTask) -> str:
    """Returns the id of the job that carries this occurrence."""
    batch_job_id = task.batch_jobs and task.batch_jobs.get(str(jobs.micros(due.occurrence)))
    return batch_job_id or job_id(installation, due)


def job_id(installation: str, due: DueTask) -> str:
    return jobs.job_id(installation, due.id, due.occurrence)
