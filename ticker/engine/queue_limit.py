"""Tracks how much room is left in the queues. Every push reduces it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from ticker.engine.jobs import JobSpec
from ticker.engine.ports import JobState, Queue, Receipt


class Queued(Protocol):
    """Anything that is pushed to a queue."""

    @property
    def queue(self) -> str: ...


T = TypeVar("T", bound=Queued)


class Room:
    """The queue for one pass, with the room that is left in each limited queue. Other queues take any number of jobs.

    Raises QueueUnavailable, as the queue does. Several threads may push to queues without a limit.
    """

    def __init__(self, queue: Queue, depths: Mapping[str, int]) -> None:
        self._queue = queue
        lengths = queue.lengths(tuple(depths)) if depths else {}
        self.left = {name: depth - lengths[name] for name, depth in depths.items()}

    def fitting(self, jobs: Sequence[T]) -> list[T]:
        """Returns the jobs for which there is room, in order."""
        left, fit = dict(self.left), []
        for job in jobs:
            if left.get(job.queue, 1) > 0:
                fit.append(job)
                if job.queue in left:
                    left[job.queue] -= 1
        return fit

    def push(self, specs: Sequence[JobSpec]) -> Sequence[Receipt]:
        receipts = self._queue.push(specs)
        for spec, receipt in zip(specs, receipts, strict=True):
            if receipt.stored and spec.queue in self.left:
                self.left[spec.queue] -= 1
        return receipts

    def lengths(self, names: Sequence[str]) -> Mapping[str, int]:
        return self._queue.lengths(names)

    def states(self, job_ids: Sequence[str]) -> Sequence[JobState]:
        return self._queue.states(job_ids)

    def forget(self, job_ids: Collection[str], queues: Collection[str] = ()) -> None:
        self._queue.forget(job_ids, queues)
