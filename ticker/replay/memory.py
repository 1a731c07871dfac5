"""Implements a job queue in memory, from which workers take jobs in the order of their push. Needs no Redis."""

from collections.abc import Collection, Mapping, Sequence

from ticker.engine.jobs import JobSpec
from ticker.engine.ports import JobState, Receipt, RunAtWork


class MemoryQueue:
    """Implements `ticker.engine.ports.Queue`. `pushed` keeps every job that was ever stored, in order."""

    def __init__(self) -> None:
        self.pushed: list[JobSpec] = []
        self._waiting: dict[str, JobSpec] = {}

    def push(self, specs: Sequence[JobSpec]) -> Sequence[Receipt]:
        return [self._push(spec) for spec in specs]

    def _push(self, spec: JobSpec) -> Receipt:
        if spec.job_id in self._waiting:
            return Receipt(held=True)
        self._waiting[spec.job_id] = spec
        self.pushed.append(spec)
        return Receipt(stored=True)

    def lengths(self, names: Sequence[str]) -> Mapping[str, int]:
        return {name: sum(job.queue == name for job in self._waiting.values()) for name in names}

    def states(self, job_ids: Sequence[str]) -> Sequence[JobState]:
        return [JobState.WAITING if job_id in self._waiting else JobState.MISSING for job_id in job_ids]

    def forget(self, job_ids: Collection[str], queues: Collection[str] = ()) -> None:
        for job_id in job_ids:
            self._waiting.pop(job_id, None)

    def stop(self, runs: Sequence[RunAtWork]) -> None:
        """Does nothing, because a replay has no workers."""

    def take(self) -> JobSpec | None:
        """Removes and returns the job that a worker takes next, or None if no job is waiting."""
        return self._waiting.pop(next(iter(self._waiting)), None) if self._waiting else None

    def holds(self, job_id: str) -> bool:
        return job_id in self._waiting
