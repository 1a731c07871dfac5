"""Decides what becomes of a waiting occurrence whose job the queue holds, has lost, or let die. The sweep asks."""

from datetime import datetime
from enum import Enum

from ticker.engine import jobs, timing
from ticker.engine.ports import JobState
from ticker.model import DueTask, WaitingTask


class JobVerdict(Enum):
    """What becomes of a waiting occurrence."""

    WAITS = "waits"
    EXPIRED = "expired"
    AGAIN = "pushed again"
    GIVEN_UP = "given up"


def verdict(task: WaitingTask, due: DueTask, state: JobState, now: datetime) -> JobVerdict:
    """A job that a worker has is left alone; one that is gone is pushed again; one that died is, for ten minutes.

    Only the newest occurrence is pushed again. Otherwise, after a wipe, the older ones would all come back before what is
    due now, only to be dropped.
    """
    newest = task.waiting[-1]
    if state is JobState.TAKEN:
        return JobVerdict.WAITS
    if timing.has_expired(due.occurrence, newest, now, task.every_ms):
        return JobVerdict.EXPIRED
    if state is JobState.MISSING:
        return JobVerdict.AGAIN if due.occurrence == newest else JobVerdict.EXPIRED
    if state is JobState.DEAD:
        again = due.occurrence == newest and now < due.occurrence + timing.span(timing.LEAST_EXPIRY)
        return JobVerdict.AGAIN if again else JobVerdict.GIVEN_UP
    return JobVerdict.WAITS


def job_of(installation: str, task: WaitingTask, due: DueTask) -> str:
    """The id of the job that brings this occurrence to a worker."""
    batch_job_id = task.batch_jobs and task.batch_jobs.get(str(jobs.micros(due.occurrence)))
    return batch_job_id or job_id(installation, due)


def job_id(installation: str, due: DueTask) -> str:
    return jobs.job_id(installation, due.id, due.occurrence)
