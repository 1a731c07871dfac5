"""Makes the jobs for the workers. A job carries ids and times, but nothing that could be stale by the time it runs."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

from ticker.engine import timing
from ticker.model import DueTask, PlannedRun

ENTRY = "wrappers.run"
"""The function that RQ calls."""

BATCH_ENTRY = "wrappers.run_batch"
"""The function that RQ calls for a job that carries several tasks."""
STOP = "ticker-stop"
"""The command, on the channel of an RQ worker, that stops a run."""
LEASE_PREFIX = "ticker:queue:"
FOREIGN = "ticker:foreign"
"""The sorted set in Redis of jobs that workers put aside, because their installation has no lease of their queue."""
FOREIGN_KEPT = 3600  # seconds

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_JOB_ID = re.compile(r"([a-z0-9]{8})-(?:t[0-9]+-[0-9]+|r[0-9]+|b[0-9a-f]{24})")


class JobSpec(NamedTuple):
    """One job to push. `timeout` and `ttl` are whole seconds."""

    job_id: str
    queue: str
    args: tuple[int, ...]
    timeout: int
    ttl: int
    description: str
    entry: str = ENTRY


def micros(instant: datetime) -> int:
    """Returns exact microseconds since 1970, the form in which a job carries an occurrence."""
    return (instant - EPOCH) // _MICROSECOND


def instant(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def job_id(installation: str, task_id: int, occurrence: datetime) -> str:
    """Returns an id that depends only on installation, task and occurrence, so that a repeated push names the same job."""
    return f"{installation}-t{task_id}-{micros(occurrence)}"


def planned_id(installation: str, run_id: int) -> str:
    return f"{installation}-r{run_id}"


def installation_of(job_id: str) -> str:
    """Returns the installation in a job's id, or an empty string for a job of other software or of an older release."""
    match = _JOB_ID.fullmatch(job_id)
    return match[1] if match else ""


def for_occurrence(installation: str, task: DueTask) -> JobSpec:
    return JobSpec(
        job_id(installation, task.id, task.occurrence),
        task.queue,
        (task.id, micros(task.occurrence)),
        timing.job_timeout(task.box_ms, task.grace_ms),
        timing.job_ttl(task.every_ms),
        task.function,
    )


class BatchJob(NamedTuple):
    """A job and the due tasks that it carries."""

    spec: JobSpec
    tasks: Sequence[DueTask]

    @property
    def queue(self) -> str:
        return self.spec.queue

    @property
    def batch_job_id(self) -> str | None:
        """The job's id, or None if it is derived from the job's only task."""
        return self.spec.job_id if self.spec.entry == BATCH_ENTRY else None


def packed(installation: str, tasks: Iterable[DueTask]) -> list[BatchJob]:
    """Returns one job for each task, or for up to `batch` tasks of a function that takes batches.

    The jobs are in the order of their first tasks.
    """
    batch_jobs: list[BatchJob] = []
    open_: dict[tuple[str, str], list[DueTask]] = {}
    for task in tasks:
        if task.batch <= 1:
            batch_jobs.append(BatchJob(for_occurrence(installation, task), (task,)))
            continue
        carried = open_.get((task.queue, task.function))
        if carried is None or len(carried) >= task.batch:
            carried = open_[task.queue, task.function] = []
            batch_jobs.append(BatchJob(UNSEALED, carried))
        carried.append(task)
    return [
        BatchJob(for_batch(installation, job.tasks), job.tasks) if job.spec is UNSEALED else job for job in batch_jobs
    ]


UNSEALED = JobSpec("", "", (), 0, 0, "")


def for_batch(installation: str, tasks: Sequence[DueTask]) -> JobSpec:
    """Returns one job for these tasks. Its id depends on them, so that a repeated push of the same tasks names the same job."""
    if len(tasks) == 1 and tasks[0].concurrency == 1:  # a group takes in only batches, even of one task
        return for_occurrence(installation, tasks[0])
    args = tuple(number for task in tasks for number in (task.id, micros(task.occurrence)))
    return JobSpec(
        batch_id(installation, args),
        tasks[0].queue,
        args,
        timing.batch_timeout([task.box_ms + task.grace_ms for task in tasks], tasks[0].concurrency),
        max(timing.job_ttl(task.every_ms) for task in tasks),
        f"{tasks[0].function} x {len(tasks)}",
        BATCH_ENTRY,
    )


def batch_id(installation: str, args: Sequence[int]) -> str:
    """Returns an id that depends only on the installation, and on the task ids and occurrences that the job carries."""
    return f"{installation}-b{sha256(','.join(map(str, args)).encode()).hexdigest()[:24]}"


def for_planned(installation: str, run: PlannedRun) -> JobSpec:
    return JobSpec(
        planned_id(installation, run.id),
        run.queue,
        (run.task_id, 0, run.id),
        timing.job_timeout(run.box_ms, run.grace_ms),
        timing.job_ttl(timing.LEAST_EXPIRY),
        run.function,
    )
