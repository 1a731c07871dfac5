"""What travels to the worker: ids, and nothing that could be stale by the time the job runs."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ticker import timing
from ticker.task import DueTask, PlannedRun

ENTRY = "wrappers.run"
"""The one function that RQ is told to call."""

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


def micros(instant: datetime) -> int:
    """Microseconds since 1970, exact: the form in which an occurrence travels."""
    return (instant - EPOCH) // _MICROSECOND


def instant(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def job_id(task_id: int, occurrence: datetime) -> str:
    """A function of (task, occurrence) alone, so that a push that is repeated names the same job."""
    return f"t{task_id}-{micros(occurrence)}"


def for_occurrence(task: DueTask) -> Envelope:
    occurrence = micros(task.occurrence)
    return Envelope(
        f"t{task.id}-{occurrence}",
        task.queue,
        (task.id, occurrence),
        timing.job_timeout(task.box_ms, task.grace_ms),
        timing.job_ttl(task.every_ms),
        task.function,
    )


def for_planned(run: PlannedRun) -> Envelope:
    return Envelope(
        f"r{run.id}",
        run.queue,
        (run.task_id, 0, run.id),
        timing.job_timeout(run.box_ms, run.grace_ms),
        timing.job_ttl(timing.LEAST_EXPIRY),
        run.function,
    )
