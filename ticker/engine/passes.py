"""Defines what the steps of one pass share: the options, the room in the queues, and the counts of what was done."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import datetime, timedelta
from typing import Self

from ticker.engine import timing
from ticker.engine.jobs import BatchJob, Carried, JobSpec
from ticker.engine.ports import Queue, Receipt, Store
from ticker.schedules import kinds


class Counts:
    """The base class of frozen dataclasses of counts. Their instances are added field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))  # type: ignore[call-overload]


@dataclass(frozen=True)
class Pushed(Counts):
    """Counts of one kind of push: rows found due, jobs stored, jobs that the queue still held, rows that failed.

    `missed` occurrences were skipped, because their tasks want no late runs, or only one job at a time. `outside_hours` tasks
    were outside their hours. `saved` is how many more pushes the lower bounds of elastic intervals would have caused.
    `enough_jobs` occurrences got no job, because enough jobs of their tasks wait.
    """

    due: int = 0
    enqueued: int = 0
    held: int = 0
    errors: int = 0
    missed: int = 0
    outside_hours: int = 0
    saved: int = 0
    enough_jobs: int = 0


@dataclass(frozen=True)
class Swept(Counts):
    """Counts of overdue runs, expired occurrences, jobs pushed again, jobs that died before their start, and push
    errors.

    `waits_again` occurrences of tasks that may not start are next runs again, because their jobs are gone.
    """

    overdue: int = 0
    expired: int = 0
    repushed: int = 0
    lost: int = 0
    errors: int = 0
    waits_again: int = 0


@dataclass(frozen=True)
class Followed(Counts):
    """Counts of ends handled, retries planned, and events recorded."""

    ended: int = 0
    retries: int = 0
    events: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one pass, and its time by the database's clock. `left` counts the due tasks of queues that are
    full.

    `look_at` is when to look again for tasks whose keys have no room now. It is None if there are none.
    """

    now: datetime
    due: Pushed = field(default_factory=Pushed)
    planned: Pushed = field(default_factory=Pushed)
    swept: Swept = field(default_factory=Swept)
    followed: Followed = field(default_factory=Followed)
    left: Mapping[str, int] = field(default_factory=dict)
    look_at: datetime | None = None

    @property
    def enqueued(self) -> int:
        return self.due.enqueued + self.planned.enqueued + self.swept.repushed

    @property
    def errors(self) -> int:
        return self.due.errors + self.planned.errors + self.swept.errors

    @property
    def counts(self) -> dict[str, int]:
        """What the pass did, under the names that the log, the heartbeat and the metrics use."""
        return {
            "due": self.due.due - self.due.outside_hours + self.planned.due,
            "enqueued": self.enqueued,
            "errors": self.errors,
            "held": self.due.held + self.planned.held,
            "repushed": self.swept.repushed,
            "expired": self.swept.expired,
            "lost": self.swept.lost + self.swept.overdue,
            "retries": self.followed.retries,
            "enough_jobs": self.due.enough_jobs,
        }

    def in_words(self, took: float) -> str:
        """Returns the line of a pass that took so many seconds. Of most counts, it has only those above 0."""
        parts = [f"{name}={count}" for name, count in self.counts.items() if count or name in _ALWAYS]
        if self.left:  # their queues are full
            parts.append("left=" + ",".join(f"{queue}:{count}" for queue, count in self.left.items()))
        return f"{' '.join(parts)} took={took:.3f}"


_ALWAYS = ("due", "enqueued", "errors")

Push = Callable[[], list[Pushed]]
"""Pushes batch after batch until nothing is due any more. Several may run at once, because each locks its own rows."""


def never() -> bool:
    return False


def alone(push: Push) -> list[list[Pushed]]:
    return [push()]


@dataclass(frozen=True, slots=True)
class TickOptions:
    """The options of a pass. The defaults are those of a single pass; the loop sets all of them."""

    look_ahead: int = 0
    """Milliseconds by which an interval task may be due early; see `timing.horizon`."""
    batch: int = 1000
    """The number of rows that are locked, pushed and committed at a time."""
    stop: Callable[[], bool] = never
    """Called between batches. Returns whether to leave the rest to the next pass."""
    period: int = 0
    """Milliseconds between two ticks, or 0 for a single one. After a gap, workers get time to write their ends."""
    beat: int = 0
    """`period` if the last tick came that long ago, or 0 after a start or a gap."""
    depths: Mapping[str, int] = field(default_factory=dict)
    """The maximum number of waiting jobs, by queue."""
    waiting_jobs: int = timing.WAITING_JOBS
    """The maximum number of waiting jobs of a task."""
    ahead: int = 0
    """Milliseconds ahead, if the loop looks again at keys without room: what will probably be free by then counts."""
    delays: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which the first job of each queue has waited. Keys get the room that they will have when a job
    starts.
    """
    push_threads: Callable[[Push], list[list[Pushed]]] = alone
    """Calls a `Push` in one or several threads. Returns what each of them pushed."""

    @property
    def late(self) -> timedelta:
        """How late an occurrence may be because of the tick alone. Anything later may have been missed."""
        return max(kinds.LATE, timedelta(milliseconds=2 * self.period))


class Room:
    """The queue for one pass, with the room that is left in each limited queue. Other queues take any number of jobs.

    Raises QueueUnavailable, as the queue does. Several threads may push to queues without a limit.
    """

    def __init__(self, queue: Queue, depths: Mapping[str, int]) -> None:
        self.queue = queue
        lengths = queue.lengths(tuple(depths)) if depths else {}
        self.left = {name: depth - lengths[name] for name, depth in depths.items()}

    def fitting(self, jobs: Sequence[BatchJob[Carried]]) -> list[BatchJob[Carried]]:
        """Returns the jobs for which there is room, in order."""
        left, fit = dict(self.left), []
        for job in jobs:
            if left.get(job.queue, 1) > 0:
                fit.append(job)
                if job.queue in left:
                    left[job.queue] -= 1
        return fit

    def push(self, specs: Sequence[JobSpec]) -> Sequence[Receipt]:
        receipts = self.queue.push(specs)
        for spec, receipt in zip(specs, receipts, strict=True):
            if receipt.stored and spec.queue in self.left:
                self.left[spec.queue] -= 1
        return receipts


@dataclass(frozen=True, slots=True)
class Pass:
    """The store, queue, time and options that the steps of one pass share."""

    store: Store
    queue: Room
    now: datetime
    options: TickOptions
