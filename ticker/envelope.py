"""What travels to the worker: ids, and nothing that could be stale by the time the job runs."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

from ticker import timing
from ticker.task import DueTask, PlannedRun

ENTRY = "wrappers.run"
"""The function that RQ is told to call."""

BATCH_ENTRY = "wrappers.run_batch"
"""The one for a job that carries several tasks."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Envelope(NamedTuple):
    """One job to push. `timeout` and `ttl` are whole seconds."""

    job_id: str
    queue: str
    args: tuple[int, ...]
    timeout: int
    ttl: int
    description: str
    entry: str = ENTRY


def micros(instant: datetime) -> int:
    """Microseconds since 1970, exact: the form in which an occurrence travels."""
    return (instant - EPOCH) // _MICROSECOND


def instant(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def job_id(task_id: int, occurrence: datetime) -> str:
    """A function of (task, occurrence) alone, so that a push that is repeated names the same job."""
    return f"t{task_id}-{micros(occurrence)}"


def for_occurrence(task: DueTask) -> Envelope:
    return Envelope(
        job_id(task.id, task.occurrence),
        task.queue,
        (task.id, micros(task.occurrence)),
        timing.job_timeout(task.box_ms, task.grace_ms),
        timing.job_ttl(task.every_ms),
        task.function,
    )


class Parcel(NamedTuple):
    """One job, and the due tasks that it carries."""

    envelope: Envelope
    tasks: Sequence[DueTask]

    @property
    def batch_job_id(self) -> str | None:
        """The job's id, where it is not that of its only task."""
        return self.envelope.job_id if len(self.tasks) > 1 else None


def parcels(tasks: Iterable[DueTask]) -> list[Parcel]:
    """A job for each task; of functions that take batches, one for up to so many tasks. In the order of their first tasks."""
    found: list[Parcel] = []
    open_: dict[tuple[str, str], list[DueTask]] = {}
    for task in tasks:
        if task.batch <= 1:
            found.append(Parcel(for_occurrence(task), (task,)))
            continue
        carried = open_.get((task.queue, task.function))
        if carried is None or len(carried) >= task.batch:
            carried = open_[task.queue, task.function] = []
            found.append(Parcel(UNSEALED, carried))
        carried.append(task)
    return [
        Parcel(for_batch(parcel.tasks), parcel.tasks) if parcel.envelope is UNSEALED else parcel for parcel in found
    ]


UNSEALED = Envelope("", "", (), 0, 0, "")


def for_batch(tasks: Sequence[DueTask]) -> Envelope:
    """Its id says what it carries: a push that is repeated names the same job if it finds the same tasks."""
    if len(tasks) == 1:
        return for_occurrence(tasks[0])
    args = tuple(number for task in tasks for number in (task.id, micros(task.occurrence)))
    return Envelope(
        batch_id(args),
        tasks[0].queue,
        args,
        timing.batch_timeout((task.box_ms, task.grace_ms) for task in tasks),
        max(timing.job_ttl(task.every_ms) for task in tasks),
        f"{tasks[0].function} x {len(tasks)}",
        BATCH_ENTRY,
    )


def batch_id(args: Sequence[int]) -> str:
    """Of the ids and occurrences that a job carries."""
    return "b" + sha256(",".join(map(str, args)).encode()).hexdigest()[:24]


def for_planned(run: PlannedRun) -> Envelope:
    return Envelope(
        f"r{run.id}",
        run.queue,
        (run.task_id, 0, run.id),
        timing.job_timeout(run.box_ms, run.grace_ms),
        timing.job_ttl(timing.LEAST_EXPIRY),
        run.function,
    )
