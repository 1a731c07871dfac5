"""Defines the store and the queue that a pass of the ticker uses. `ticker/db` and `ticker/queue` implement them.

`tests/engine/test_ports.py` tests the promises that all implementations keep, including the in-memory doubles.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Protocol

from ticker.engine.jobs import JobSpec
from ticker.engine.key_limits import LimitedTask
from ticker.model import Alarm, DueTask, Ended, Health, Note, Outcome, PlannedRun, Reason, WaitingTask


@dataclass(frozen=True, slots=True)
class Receipt:
    """The queue's answer to one job: stored, already held under that id, or an error in one sentence."""

    stored: bool = False
    held: bool = False
    error: str = ""


class JobState(StrEnum):
    """The state of a job in the queue: it waits, a worker has it, it ended without a recorded start, or it is missing.

    A job also counts as missing if its worker died before it could report that it had taken the job.
    """

    WAITING = "waiting"
    TAKEN = "taken"
    DEAD = "dead"
    MISSING = "missing"


class Refusal(NamedTuple):
    """How many workers refused a job because of their settings, and why it ended last, as its worker noted it."""

    times: int = 0
    reason: str = ""


class OpenPauses(NamedTuple):
    """How many pauses of many tasks are in force, and how many are over while tasks may still wait for them."""

    in_force: int
    over: int


class RunAtWork(NamedTuple):
    """A run that a worker, named as in the queue, has started with this token."""

    worker: str
    token: str


class Queue(Protocol):
    """The job queue. Every call raises QueueUnavailable if the server does not answer, and no other error."""

    def push(self, specs: Sequence[JobSpec]) -> Sequence[Receipt]:
        """Stores the jobs in order, in one call, and returns one receipt each. An id that is still held is refused."""

    def lengths(self, names: Sequence[str]) -> Mapping[str, int]:
        """Returns how many jobs wait in each of these queues."""

    def states(self, job_ids: Sequence[str]) -> Sequence[JobState]:
        """Returns one state for each id."""

    def refusals(self, job_ids: Sequence[str]) -> Sequence[Refusal]:
        """Returns one refusal for each id. Forgetting a job does not forget its refusals."""

    def forget(self, job_ids: Collection[str], queues: Collection[str] = ()) -> None:
        """Removes jobs that must not start any more, also from these queues. Ignores ids that are not there."""

    def stop(self, runs: Sequence[RunAtWork]) -> None:
        """Asks workers to stop runs. A worker that is not there does not hear it."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A waiting occurrence that will not start any more, and the outcome that is recorded for it."""

    task_id: int
    occurrence: datetime
    outcome: Outcome
    reason: str


class Batch(Protocol):
    """Rows locked by one short transaction. It commits when the block ends without an error."""

    def claim_due(self, now: datetime, look_ahead: int, limit: int, without: Collection[str] = ()) -> Sequence[DueTask]:
        """Returns up to `limit` due tasks without limits, oldest first. Skips queues in `without`, and rows that are
        locked.
        """

    def claim_in_turn(self, now: datetime, look_ahead: int, queue: str, limit: int) -> Sequence[DueTask]:
        """Returns due tasks of one queue: the oldest of each owner, then the second of each, and so on."""

    def claim_chosen(self, now: datetime, look_ahead: int, ids: Sequence[int]) -> Sequence[DueTask]:
        """Returns those of these tasks with limits that are still due, in this order. Skips rows that are locked."""

    def advance(self, tasks: Sequence[tuple[DueTask, datetime | None, str | None]]) -> None:
        """Takes (task, next_run, batch job id). Notes the occurrence as waiting, and clears earlier push errors."""

    def note_jobs(self, occurrences: Sequence[tuple[int, datetime, str | None]]) -> None:
        """Takes (task id, occurrence, batch job id), each of a different task. Notes which new job carries the
        occurrence.
        """

    def claim_ahead(self, now: datetime, limit: int) -> Sequence[DueTask]:
        """Locks and returns the next tasks of cron and calendar, and tasks with hours, that were pushed before and wait
        for later.
        """

    def reschedule(self, tasks: Sequence[tuple[DueTask, datetime | None]]) -> None:
        """Sets when these tasks are due, without a push. Clears earlier push errors."""

    def skip_for_enough_jobs(self, tasks: Sequence[DueTask], words: str) -> None:
        """Counts the occurrences of tasks of which enough jobs wait, in one event of each task."""

    def claim_ended(self, limit: int) -> Sequence[Ended]:
        """Locks runs whose end needs a follow-up, and their tasks. Returns the runs in the order of their ids."""

    def mark_followed(self, runs: Sequence[tuple[int, bool, str]]) -> None:
        """Takes (run id, whether a retry follows, a note for its reason). Marks the ends as handled."""

    def plan_retries(self, runs: Sequence[tuple[int, datetime]], now: datetime) -> None:
        """Takes (run id, due). Plans a further attempt of each run."""

    def judge_tasks(self, tasks: Sequence[Health]) -> None: ...

    def record_events(self, notes: Sequence[Note], now: datetime) -> None: ...

    def sum_up(self, now: datetime, limit: int) -> int:
        """Ends runs whose pieces have all ended, and records that in their tasks. Returns how many."""

    def claim_alarms(self, now: datetime, limit: int) -> Sequence[Alarm]:
        """Locks and returns active tasks for which the check for a success is due."""

    def unreported_functions(self, now: datetime) -> Sequence[tuple[int, str]]:
        """Returns (task id, function) of each function that no worker has announced, and that no event names yet."""

    def announced_functions(self) -> Collection[str]: ...

    def set_alarms(self, tasks: Sequence[tuple[int, datetime | None]]) -> None:
        """Takes (task id, when to check again). None means that the missing success is reported now."""

    def try_later(self, failed: Sequence[tuple[int, str, datetime]]) -> None:
        """Takes (task id, error, not before). The task stays due; the error is counted and shown."""

    def claim_planned(
        self, now: datetime, limit: int, queue: str | None = None, without: Collection[str] = ()
    ) -> Sequence[PlannedRun]:
        """Returns due planned runs of tasks without limits, of one queue, or of all queues except `without`.

        Retries and manual runs come first, oldest first. Pieces follow in turns: the first of each run, then the second
        of each, and so on. Pieces of a run that is still making more are left out.
        """

    def claim_chosen_planned(self, ids: Sequence[int], now: datetime) -> Sequence[PlannedRun]:
        """Returns those of these planned runs that are still planned and not paused, oldest first. Skips rows that are
        locked.
        """

    def mark_pushed(self, runs: Sequence[tuple[int, str]], now: datetime) -> None:
        """Notes that these planned runs were pushed, each with the id of its job."""

    def try_planned_later(self, failed: Sequence[tuple[int, str, datetime]]) -> None: ...

    def claim_waiting(self, limit: int, now: datetime | None = None) -> Sequence[WaitingTask]:
        """Locks and returns tasks with waiting occurrences, so that no occurrence can start. The next call continues
        after them.
        """

    def claim_unknown(self, now: datetime, limit: int) -> Sequence[DueTask]:
        """Returns tasks whose occurrences have waited for over ten minutes for a worker that knows their function."""

    def note_expired(self, task_ids: Sequence[int], words: str, now: datetime) -> None:
        """Counts occurrences of these tasks whose jobs never started: one event for each function and minute."""

    def wait_again(self, occurrences: Sequence[tuple[int, datetime, Reason]]) -> None:
        """Takes (task id, occurrence, why), each of a different task. Makes the occurrences next runs again that wait
        for no job.
        """

    def settle(self, settled: Sequence[Settled], now: datetime) -> None:
        """Ends occurrences, waiting or due, without a start. Records each one that has no record yet."""

    def has_more(self) -> bool:
        """Returns whether more rows follow those that the last `claim_waiting` or `claim_pushed` read."""

    def claim_pushed(self, limit: int, now: datetime) -> Sequence[PlannedRun]:
        """Returns planned runs that were pushed and have not started, but not those that a pause keeps waiting.

        The next call continues after them.
        """

    def lose_planned(self, run_ids: Sequence[int], reason: str, now: datetime) -> None: ...


class Look(NamedTuple):
    """The time of the look if a pass would find nothing to do (`idle_at`), or only due tasks without limits
    (`only_due_at`). Otherwise, a pass takes every step.
    """

    idle_at: datetime | None = None
    only_due_at: datetime | None = None


class Store(Protocol):
    """The tables. Every call raises DatabaseUnavailable if the server does not answer."""

    @property
    def installation(self) -> str:
        """The id of the installation to which the tables belong. It is part of every job's id."""

    def now(self) -> datetime:
        """Returns the time of the database's clock, the only one by which decisions are made."""

    def look(self, now: datetime | None, look_ahead: int) -> Look:
        """Returns what a pass would find. If `now` is None, the store's clock is used."""

    def batch(self) -> AbstractContextManager[Batch]: ...

    def clamp(self, now: datetime | None, limit: int) -> bool:
        """Corrects times that lie in the future because the clock was set back.

        If `now` is None, it is read from the store's clock, under locks. Returns whether the clock seems to have
        been set back. If so, cron and calendar tasks have to be checked, too.
        """

    def wake(self, now: datetime, limit: int) -> int:
        """Ends the own pauses of up to `limit` tasks whose time has passed. Returns how many."""

    def open_pauses(self, now: datetime) -> OpenPauses:
        """Ends the pauses of many tasks whose time has passed, and counts those that matter to this pass."""

    def wait_for_gate(
        self, now: datetime, look_ahead: int, limit: int, after: tuple[datetime, int] | None = None
    ) -> tuple[datetime, int] | None:
        """Examines the next `limit` due tasks, by next_run and id, after the task `after`. Skips rows that are locked.

        Those for which a pause of many tasks is in force wait for it. So do those that were due before the end of such
        a pause and have not been let go since. Returns the last task that was examined, or None if no more follow.
        """

    def probe(self, now: datetime, period: int) -> None:
        """Lets one due task of each function and queue go for which tasks wait for a worker that knows it, once in a
        period.
        """

    def grant_budget(
        self, now: datetime, look_ahead: int, period: int, tick: int, full: Collection[str] = ()
    ) -> int | None:
        """Returns how many of the tasks that wait for pauses that are over this tick may let go, or None if another
        tick may.

        The budget is 1.2 times the number of runs that the schedules of all tasks of these pauses require in a `tick`,
        and at least 1,000, less their tasks that are due in queues that are not `full`. A tenth of it remains in any
        case. Within `period`, it is granted once. Both are in milliseconds.
        """

    def let_go(self, now: datetime, limit: int) -> tuple[int, int]:
        """Makes up to `limit` tasks wait no longer for pauses that are over, those that have been due for longest
        first.

        Returns how many it found, and how many are due now. The others are paused, disabled, or covered by another
        pause.
        """

    def close_pauses(self, now: datetime) -> None:
        """Notes the pauses that are over, and for which no task waits, as done."""

    def count_due(self, now: datetime, look_ahead: int, queue: str) -> int:
        """Returns how many tasks of a queue are due, with limits or without."""

    def limited_due(
        self, now: datetime, look_ahead: int, limit: int, ahead: int = 0, without: Collection[str] = (),
        full: Collection[str] = (), after: tuple[datetime, int] | None = None, delays: Mapping[str, float] | None = None,
    ) -> tuple[Sequence[LimitedTask], bool]:  # fmt: skip
        """Returns due tasks with limits, oldest first, and planned runs of tasks with limits, and whether there are
        more.

        Up to `limit` tasks are returned, none of them of the queues `without` or with a key in `full`. They come after
        the task `after`, which is a next_run and an id. What will probably be free within `ahead` milliseconds counts
        as room. So does what may start within the delay of a queue, in seconds, but only at the pace of the limit.
        """

    def watched(self, now: datetime, period: int) -> timedelta:
        """Returns for how long ticks, which are `period` milliseconds apart, have had no gap, as `end_overdue` of this
        pass saw it.

        A single tick (0) cannot know: the answer is timedelta.max.
        """

    def stop_runs(self, now: datetime, limit: int) -> Sequence[RunAtWork]:
        """Carries out requests to stop runs: drops those that have not started. Returns those that workers have to
        stop.
        """

    def remove_done(self, limit: int) -> int:
        """Deletes up to `limit` one-time tasks that succeeded and are not to be kept. Returns how many."""

    def drop_orphaned_plans(self, now: datetime, limit: int) -> int:
        """Drops up to `limit` due planned runs of deleted tasks (`gone`). Deletes the pieces of runs that ended while they
        made them. Returns how many it dropped; of pieces, it takes more at a time.
        """

    def end_overdue(self, now: datetime | None, limit: int, period: int = 0) -> int:
        """Records as lost up to `limit` runs that are past B + g and have no end, and frees their tasks. Returns how
        many.

        If `now` is None, the store's clock is used. `period` is the milliseconds between two ticks. If it is given,
        nothing is done until ticks have run without a gap for two periods, and for at least 10 s. So after an outage,
        workers first get time to write the ends that they kept.
        """
