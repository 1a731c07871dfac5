"""Makes the jobs for the workers. A job carries ids and times, but nothing that could be stale by the time it runs."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Generic, NamedTuple, TypeVar

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
REFUSED = ":refused"
"""After the key of a job: the hash in Redis with the `count` of refusals by workers, and the last `reason` why it ended."""
REFUSED_KEPT = 3600  # seconds
REFUSES = "ticker_refuses"
"""In RQ's hash of a worker: what `refusal` returned when it last refused a job."""
OURS = "ticker_worker"
"""In RQ's hash of a worker of our class."""

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
    """Returns the installation in a job's id, or an empty string for a job of other software."""
    match = _JOB_ID.fullmatch(job_id)
    return match[1] if match else ""


def refusal(now: datetime, why: str) -> str:
    """Returns the note of a worker that refuses a job: the seconds since 1970, a space, and why."""
    return f"{now.timestamp():.0f} {why}"


def for_occurrence(installation: str, task: DueTask) -> JobSpec:
    return JobSpec(
        job_id(installation, task.id, task.occurrence),
        task.queue,
        (task.id, micros(task.occurrence)),
        timing.job_timeout(task.box_ms, task.grace_ms),
        timing.job_ttl(task.every_ms),
        task.function,
    )


Carried = TypeVar("Carried", DueTask, PlannedRun)
IN_TURN = "in turn"
"""The `apart` of guilty tasks, and of suspects while their function has other tasks: one job of them waits at a time."""
APART = " apart"
"""The end of the description of a job whose process takes in no further jobs, and which no other process takes in."""


class BatchJob(NamedTuple, Generic[Carried]):
    """A job and the due tasks, or planned runs, that it carries."""

    spec: JobSpec
    tasks: Sequence[Carried]

    @property
    def queue(self) -> str:
        return self.spec.queue

    @property
    def batch_job_id(self) -> str | None:
        """The job's id, or None if it is derived from the job's only task."""
        return self.spec.job_id if self.spec.entry == BATCH_ENTRY else None


def packed(installation: str, tasks: Iterable[Carried]) -> list[BatchJob[Carried]]:
    """Returns one job for each task, or for up to `batch` tasks of a function that takes batches.

    Suspects and guilty tasks have jobs of their own. Where they take turns, tasks beyond the first job are left out.
    The jobs are in the order of their first tasks.
    """
    carriers: list[list[Carried]] = []
    open_: dict[tuple[str, str, str, int], list[Carried]] = {}
    turns: set[tuple[str, str]] = set()
    for task in tasks:
        key = task.queue, task.function, task.apart, task.batch
        carried = open_.get(key) if task.batch > 1 else None
        if carried is None or len(carried) >= task.batch:
            if task.apart == IN_TURN:
                if key[:2] in turns:
                    continue
                turns.add(key[:2])
            carried = open_[key] = []
            carriers.append(carried)
        carried.append(task)
    return [BatchJob(job_of(installation, carried), carried) for carried in carriers]


def job_of(installation: str, tasks: Sequence[Carried]) -> JobSpec:
    """Returns one job for these tasks. Its id depends on them, so that a repeated push of the same tasks names the same
    job.
    """
    first, *others = tasks
    if first.batch <= 1 or (not others and first.concurrency == 1):  # a group takes in only batches, even of one task
        if isinstance(first, PlannedRun):
            return for_planned(installation, first)
        return for_occurrence(installation, first)
    args = tuple(number for task in tasks for number in numbers(task))
    return JobSpec(
        batch_id(installation, args),
        first.queue,
        args,
        timing.batch_timeout([task.box_ms + task.grace_ms for task in tasks], first.concurrency),
        max(timing.job_ttl(timing.LEAST_EXPIRY if isinstance(one, PlannedRun) else one.every_ms) for one in tasks),
        f"{first.function} x {len(tasks)}{APART if first.apart else ''}",
        BATCH_ENTRY,
    )


def numbers(task: DueTask | PlannedRun) -> tuple[int, int]:
    """Returns how a batch names a task and its occurrence, or its planned run, which is negative."""
    return (task.task_id, -task.id) if isinstance(task, PlannedRun) else (task.id, micros(task.occurrence))


def named(number: int) -> tuple[datetime | None, int | None]:
    """Returns the occurrence, or the planned run, that the second of these numbers names."""
    return (None, -number) if number < 0 else (instant(number), None)


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
