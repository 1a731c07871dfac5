"""What a pass of the ticker asks of a store and of a queue. Real ones: `store.py`, `enqueue.py`.

`tests/engine/test_ports.py` holds the promises that every implementation keeps, the in-memory doubles included.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from ticker.engine.jobs import JobSpec
from ticker.model import Alarm, DueTask, Ended, Health, Note, Outcome, PlannedRun, Reason, WaitingTask


@dataclass(frozen=True, slots=True)
class Receipt:
    """The queue's answer to one job: stored, already held under that id, or an error in one sentence."""

    stored: bool = False
    held: bool = False
    error: str = ""


class JobState(StrEnum):
    """What the queue knows of a job: it waits, a worker has it, it ended without a start of ours, or it is not there.

    Missing is also what a worker took, if it died before it could say so.
    """

    WAITING = "waiting"
    TAKEN = "taken"
    DEAD = "dead"
    MISSING = "missing"


class Queue(Protocol):
    """The job queue. Every call raises QueueUnavailable when the server does not answer; nothing else escapes."""

    def push(self, specs: Sequence[JobSpec]) -> Sequence[Receipt]:
        """Stores the jobs in their order, all in one call; one receipt each. An id that is still held is refused."""

    def lengths(self, names: Sequence[str]) -> Mapping[str, int]:
        """How many jobs wait in each of these queues."""

    def states(self, job_ids: Sequence[str]) -> Sequence[JobState]:
        """One state for each id."""

    def forget(self, job_ids: Collection[str]) -> None:
        """Removes jobs that must not start any more; ids that are not there are passed over."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A waiting occurrence that will not start any more, and the outcome that is recorded for it."""

    task_id: int
    occurrence: datetime
    outcome: Outcome
    reason: str


class Batch(Protocol):
    """Rows that are locked by one short transaction. It commits when the block ends without an error."""

    def claim_due(self, now: datetime, look_ahead: int, limit: int, without: Collection[str] = ()) -> Sequence[DueTask]:
        """Due tasks but of these queues, oldest first, at most `limit`; rows that somebody else has locked are left out."""

    def claim_in_turn(self, now: datetime, look_ahead: int, queue: str, limit: int) -> Sequence[DueTask]:
        """The same of one queue: the oldest of each owner, then the second of each, and so on."""

    def advance(self, tasks: Sequence[tuple[DueTask, datetime | None, str | None]]) -> None:
        """Takes (task, next_run, batch job id): notes the occurrence as waiting, and clears earlier push errors."""

    def detach(self, occurrences: Sequence[tuple[int, datetime]]) -> None:
        """Takes (task id, occurrence): each now has a job of its own, and no longer one with other tasks."""

    def claim_ahead(self, now: datetime, limit: int) -> Sequence[DueTask]:
        """Tasks by cron and calendar that were pushed before and wait for a time ahead, locked; one batch after another."""

    def bring_forward(self, tasks: Sequence[tuple[DueTask, datetime]]) -> None:
        """Makes these due earlier."""

    def skip(self, passed_over: Sequence[tuple[DueTask, datetime | None, Reason]], now: datetime) -> None:
        """Records these occurrences as dropped, each with its reason, pushes nothing, and sets the next times."""

    def claim_ended(self, limit: int) -> Sequence[Ended]:
        """Runs whose end leads to something more, in the order of their ids, locked with their tasks."""

    def mark_followed(self, runs: Sequence[tuple[int, bool, str]]) -> None:
        """(run id, whether a retry follows, a note for its reason): seen to."""

    def plan_retries(self, runs: Sequence[tuple[int, datetime]], now: datetime) -> None:
        """A further attempt of each of these runs, planned for then."""

    def judge_tasks(self, tasks: Sequence[Health]) -> None: ...

    def record_events(self, notes: Sequence[Note], now: datetime) -> None: ...

    def sum_up(self, now: datetime, limit: int) -> int:
        """Ends runs whose pieces have all ended, and notes it with their tasks; how many."""

    def claim_alarms(self, now: datetime, limit: int) -> Sequence[Alarm]:
        """Tasks that run, and of which to ask by now whether they had a success; locked."""

    def set_alarms(self, tasks: Sequence[tuple[int, datetime | None]]) -> None:
        """When to ask again; None: somebody is told now."""

    def set_back(self, failed: Sequence[tuple[int, str, datetime]]) -> None:
        """(task id, error, not before): stays due, counts the error and shows it."""

    def claim_planned(
        self, now: datetime, limit: int, queue: str | None = None, without: Collection[str] = ()
    ) -> Sequence[PlannedRun]:
        """Returns due planned runs of one queue, or of all except `without`: retries and manual runs, oldest first, then pieces.

        Pieces are taken in turns: one of each run, then the second of each, and so on. A run that still makes pieces is left out.
        Planned runs of deleted tasks are dropped (`gone`). Pieces of a run that ended while it made them are deleted.
        """

    def mark_pushed(self, run_ids: Sequence[int], now: datetime) -> None: ...

    def set_back_planned(self, failed: Sequence[tuple[int, str, datetime]]) -> None: ...

    def claim_waiting(self, limit: int) -> Sequence[WaitingTask]:
        """Tasks with waiting occurrences; none of them can start meanwhile. The next call goes on behind them."""

    def settle(self, settled: Sequence[Settled], now: datetime) -> None:
        """Ends waiting occurrences without a start, each with a record, unless it has one already."""

    def has_more(self) -> bool:
        """Returns whether more rows follow those that the last `claim_waiting` or `claim_pushed` read."""

    def claim_pushed(self, limit: int) -> Sequence[PlannedRun]:
        """Planned runs that were pushed and have not started. The next call goes on behind them."""

    def lose_planned(self, run_ids: Sequence[int], reason: str, now: datetime) -> None: ...


class Store(Protocol):
    """The tables. Every call raises DatabaseUnavailable when the server does not answer."""

    @property
    def installation(self) -> str:
        """The id of the tables' installation, which is part of every job's id."""

    def now(self) -> datetime:
        """The one clock."""

    def idle_at(self, now: datetime | None, look_ahead: int) -> datetime | None:
        """The instant (None for `now`: by the store's clock) at which a pass would find nothing to do; None: it might."""

    def batch(self) -> AbstractContextManager[Batch]: ...

    def clamp(self, now: datetime | None, limit: int) -> bool:
        """Brings back what lies in the future after the clock was set back. None: by the store's clock, under locks.

        Whether there was a sign of it, so that tasks by cron and calendar have to be looked at, too.
        """

    def wake(self, now: datetime, limit: int) -> None:
        """Ends pauses whose time has passed."""

    def count_due(self, now: datetime, look_ahead: int, queue: str) -> int:
        """How many tasks of a queue are due."""

    def remove_done(self, limit: int) -> int:
        """Deletes tasks for a single time that have succeeded and that nobody wants to keep; how many."""

    def end_overdue(self, now: datetime | None, limit: int, period: int = 0) -> int:
        """Records runs past B + g without an end as lost, and frees their tasks; returns how many. None: by the store's clock.

        With a `period`, the milliseconds between two ticks, it waits until ticks have come without a gap for two periods, and at
        least 10 s. So after everything was away, workers first get time to write the ends that they kept.
        """
