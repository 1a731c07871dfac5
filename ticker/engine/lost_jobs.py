"""Decides what the sweep does with a waiting occurrence, depending on the state of its job in the queue."""

from datetime import datetime
from enum import Enum

from ticker.engine import jobs, timing
from ticker.engine.ports import JobState
from ticker.model import DueTask, WaitingTask


class JobVerdict(Enum):
    """A decision about a waiting occurrence."""

    WAITS = "waits"
    EXPIRED = "expired"
    NEVER_STARTED = "never started"
    AGAIN = "pushed again"
    GIVEN_UP = "given up"
    PUT_BACK = "put back"


def verdict(task: WaitingTask, due: DueTask, state: JobState, now: datetime) -> JobVerdict:
    """Returns what to do: leave alone any job that a worker has, and push a missing one again.

    A dead job is pushed again for ten minutes. While the task is paused, nothing is pushed: the occurrence goes back to
    the row. Only the newest occurrence is pushed again. Otherwise, after Redis was wiped, all older occurrences would
    be queued before the tasks that are due now, only to be dropped.
    """
    newest, again = task.waiting[-1], JobVerdict.PUT_BACK if task.is_paused else JobVerdict.AGAIN
    if state is JobState.TAKEN:
        return JobVerdict.WAITS
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
