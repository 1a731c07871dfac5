"""Defines the values that all other modules share: kinds, states, outcomes, reasons, and frozen rows."""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

TASK_STATES = (
    "failing", "late", "no_room", "queue_full", "waits_for_its_turn", "outside_hours", "paused", "inactive",
    "unknown_function", "running", "waiting",
)  # fmt: skip
"""The states by which lists of tasks are filtered. A task may be in several."""

LARGEST_ID = 2**63 - 1  # of a row: a bigint that PostgreSQL counts up from 1
NAME_AT_MOST = 200  # characters of a name, a queue, an owner; the tables enforce it too
TEXT_AT_MOST = 2000  # characters of a text for people
JSON_AT_MOST = 64 * 1024  # bytes of JSON text of kwargs, metadata or a cursor
COUNT_AT_MOST = 1_000_000  # errors in a row: the statements stop counting there
OUTPUT_AT_MOST = 100_000  # characters of a run's output: 64 kB, some of it shown in longer forms
RETRIES_AT_MOST = 100
BATCH_AT_MOST = 1000  # due tasks of one function that one job carries
INTERVALS_AT_MOST = 1_000_000  # without a success, before a notice is sent
PRIORITY_AT_MOST = 1_000

at_work: ContextVar[tuple[int, datetime] | None] = ContextVar("ticker_at_work", default=None)
"""The task whose function runs in this context, and when its run started. Workers set it."""


POSITIONAL = "*"
"""The name under which the column `kwargs` holds positional arguments. No keyword argument may have it."""


def stored_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the value of the column `kwargs` for these arguments."""
    return {POSITIONAL: args, **kwargs} if args else kwargs


def split_arguments(stored: Mapping[str, Any]) -> tuple[list[Any], Mapping[str, Any]]:
    """Returns the positional and the keyword arguments of a value of the column `kwargs`."""
    args = stored.get(POSITIONAL)
    if not isinstance(args, list):  # none, or a row that was edited by hand
        return [], stored
    return args, {name: value for name, value in stored.items() if name != POSITIONAL}


class Kind(StrEnum):
    """The kind of a task's schedule."""

    INTERVAL = "interval"
    CRON = "cron"
    CALENDAR = "calendar"
    ONCE = "once"


class RunKind(StrEnum):
    """Why a run exists. All but `scheduled` are planned runs: rows that the ticker pushes when they are due."""

    SCHEDULED = "scheduled"
    MANUAL = "manual"
    RETRY = "retry"
    PIECE = "piece"


class Outcome(StrEnum):
    """How a run ended. Every ended run has exactly one outcome. To add one, see .github/CONTRIBUTING.md."""

    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    NOTHING_TO_DO = "nothing_to_do"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    KILLED = "killed"
    LOST = "lost"
    INTERRUPTED = "interrupted"
    """It was stopped; or its process died, and this run was not the known cause. Not a failure."""
    SLOWED_DOWN = "slowed_down"
    """It raised `SlowDown`, and its key is closed for a while. Not a failure."""
    DROPPED = "dropped"


GOOD = frozenset({Outcome.SUCCEEDED, Outcome.PARTIAL, Outcome.NOTHING_TO_DO})
NO_FAILURE = GOOD | {Outcome.INTERRUPTED, Outcome.SLOWED_DOWN}


class Reason(StrEnum):
    """Why a job was not run: first the reasons of the start statement, in the order in which it checks them, then the
    others.

    A deletion has recorded what waited, so a job that is `gone` leaves no further record. Six reasons are not drops, and
    leave no record: `redelivered` and `stale` leave an event or a log line; what is `no_room`,
    `closed`, `unknown_here` or `no_slot` starts later. So does a job that meets the run at work (`still_running`),
    unless its occurrence is that of an interval task.
    """

    GONE = "gone"
    REDELIVERED = "redelivered"  # its occurrence, or its planned run, already has a record
    STALE = "stale"  # the task does not wait for it: it stems from another state of the tables
    UNKNOWN_FUNCTION = "unknown_function"  # set by the ticker, too: no worker has known its function for ten minutes
    PAUSED = "paused"
    DONE = "done"
    CLOCK = "clock"
    EXPIRED = "expired"
    DUPLICATE = "duplicate"
    STILL_RUNNING = "still_running"  # a planned run, and a time of a task without an interval, starts later
    TOO_EARLY = "too_early"
    NO_ROOM = "no_room"  # a key of the task has no room: it starts later
    CLOSED = "closed"  # the task is paused: it starts later
    UNKNOWN_HERE = "unknown_here"  # this worker does not know its function: it starts later, where another one does
    NO_SLOT = "no_slot"  # its group has no free slot, or its process begins nothing new: it starts later
    SUPERSEDED = "superseded"  # it waited for one of these reasons until the task was due at another time
    MISSED = "missed"  # set by the ticker: catch_up is none, and a later occurrence has passed, too
    NO_TIME = "no_time"  # a retry or a piece that could not end before the next start
    ADOPTED = "adopted"  # set by `ticker db adopt`: its job belongs to another installation
    STOPPED = "stopped"  # set by the ticker: somebody stopped a planned run


class EventKind(StrEnum):
    """The kind of an event in the life of a task, apart from its runs. Triggers of the tables write the first nine.

    `stale`, `adopted`, `host_lost` and `group_too_large` concern the installation: their `task_id` is 0. So is that of
    a pause of many tasks.
    """

    PAUSED = "paused"
    AUTO_PAUSED = "auto_paused"
    RESUMED = "resumed"
    DISABLED = "disabled"
    ENABLED = "enabled"
    OWNER_INACTIVE = "owner_inactive"
    OWNER_ACTIVE = "owner_active"
    EDITED = "edited"
    DELETED = "deleted"
    SLOWED = "slowed"
    RESTORED = "restored"
    FAILED = "failed"
    RECOVERED = "recovered"
    DEAD_MAN = "dead_man"
    REDELIVERED = "redelivered"
    END_RECORDED_LATE = "end_recorded_late"
    STALE = "stale"
    ADOPTED = "adopted"
    UNKNOWN_FUNCTION = "unknown_function"
    ENOUGH_JOBS = "enough_jobs"
    EXPIRED = "expired"
    HOST_LOST = "host_lost"
    GROUP_TOO_LARGE = "group_too_large"


class RegisteredFunction(NamedTuple):
    """How a job may run the tasks of a function; see `wrappers.task`."""

    batch: int
    concurrency: int
    repeatable: bool


REGISTERED: dict[str, RegisteredFunction] = {}
"""The functions that `@task` has registered in this process, by name: `ticker.register` and `ticker sync` store them."""


class DueTask(NamedTuple):
    """A row that a tick has locked, with only the fields that the push and the advance need.

    Durations are whole milliseconds; `occurrence` is the `next_run` that made the task due.
    """

    id: int
    occurrence: datetime
    queue: str
    function: str
    every_ms: int
    box_ms: int
    grace_ms: int
    push_errors: int = 0
    kind: Kind = Kind.INTERVAL
    expression: str = ""
    zone: str = "UTC"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    catch_up: str = "one"
    busy: bool = False  # whether a job of the task waits or runs
    tolerance_ms: int = 0
    phase_ms: int | None = None  # its phase in the interval or after each of its times, if it has one
    batch: int = 1  # how many tasks of its function one job may carry
    concurrency: int = 1  # how many of them run at the same time
    apart: str = ""  # why the job's process takes in no further jobs; see the rule `apart`
    pace_ms: int | None = None  # the interval in force, if an elastic interval is longer than its lower bound
    during: str = ""  # the hours in which an interval task is due
    resumed_at: datetime | None = None  # when it was last resumed, enabled, or let go after a pause of many tasks
    waiting: int = 0  # how many of its other occurrences have a job that waits
    owner_type: str = ""
    owner_id: str = ""
    priority: int = 0

    def turns_of(self) -> tuple[object]:
        """Returns whose turns at its queue the task takes: those of its owner, or its own."""
        return ((self.queue, self.owner_type, self.owner_id) if self.owner_type else self.id,)


@dataclass(frozen=True, slots=True)
class Ended:
    """A locked run that ended and needs a follow-up, with the fields of its locked task that determine it.

    `schedule` is the kind of the task's schedule. `started` is False for a run that was given up or dropped before its
    start. `is_past`: it is too late for a further attempt, because a newer occurrence has started. For a task that is
    not an interval task, a newer occurrence in the queue is enough. `made_good`: a later run of the task has succeeded.
    `pauses`: how often the ticker has paused the task since its last success. `is_asked`: a run asked for this
    `next_run`. `failed_before`: this attempt was interrupted or dropped, and an earlier attempt of its occurrence
    failed. `retries` is at least 1 for an interrupted run of a repeatable function. `stopped`: somebody asked to stop
    it. `with_host`: it was lost together with other runs of its host.
    """

    run_id: int
    task_id: int
    kind: RunKind
    occurrence: datetime | None
    attempt: int
    outcome: Outcome
    reason: str
    started: bool
    ended_at: datetime
    has_pieces: bool
    schedule: Kind
    every_ms: int
    pace_ms: int | None
    is_asked: bool
    tolerance_ms: int
    grace_ms: int
    last_run: datetime | None
    next_run: datetime | None
    is_past: bool
    made_good: bool
    failed_before: bool
    retries: int
    backoff: str
    failures: int
    told: str
    stretch_ms: int | None
    stretched_ms: int | None
    pause_after: int | None
    probe_ms: int | None
    paused: bool
    pauses: int
    dead_man: int | None
    alarm_at: datetime | None
    stopped: bool = False
    with_host: bool = False
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """A task's state after the ends of its runs: failed occurrences in a row, the last notice, the interval, and a
    pause.
    """

    task_id: int
    failures: int
    told: str
    stretched_ms: int | None
    next_run: datetime | None
    alarm_at: datetime | None
    pause_reason: str = ""
    pause_until: datetime | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """An event of a task, for the record and for notices."""

    task_id: int
    what: EventKind
    words: str
    run_id: int | None = None


@dataclass(frozen=True, slots=True)
class Alarm:
    """A locked task that is checked for a success after `since`. `longest_run` is B + g, in milliseconds.

    `is_done`: it will not run again, and its last run was a success.
    """

    id: int
    kind: Kind
    expression: str
    zone: str
    every_ms: int
    dead_man: int
    since: datetime
    last_success_at: datetime | None
    longest_run: int
    is_done: bool
    phase_ms: int | None = None
    pace_ms: int | None = None
    during: str = ""


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """A locked row with occurrences that were pushed and have neither started nor been dropped, oldest first.

    `batch_jobs` maps an occurrence, in microseconds, to the id of its job, if that job also carries other tasks.
    """

    id: int
    waiting: tuple[datetime, ...]
    queue: str
    function: str
    every_ms: int
    box_ms: int
    grace_ms: int
    batch_jobs: Mapping[str, str] | None = None
    batch: int = 1  # how many tasks of its function one job may carry when it is pushed again
    concurrency: int = 1  # how many of them run at the same time
    apart: str = ""
    is_closed: bool = False  # it is disabled or paused, by itself or with others, or its owner is inactive

    def occurrences(self) -> list[DueTask]:
        """Returns the waiting occurrences in the form in which they were pushed."""
        return [
            DueTask(self.id, waiting, self.queue, self.function, self.every_ms, self.box_ms, self.grace_ms,
                    batch=self.batch, concurrency=self.concurrency, apart=self.apart)
            for waiting in self.waiting
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A row of `runs` that the ticker pushes when it is due (a manual run, a retry or a piece of work)."""

    id: int
    task_id: int
    queue: str
    function: str
    box_ms: int
    grace_ms: int
    is_young: bool = False  # due for less than ten minutes: if its job died before the start, it is pushed again
    batch: int = 1  # how many runs of its function one job may carry
    concurrency: int = 1  # how many of them are active at the same time
    apart: str = ""
    job_id: str = ""  # if it was pushed


SCOPES = ("group", "function", "queue", "owner_type", "limit")
"""What a pause of many tasks may select, if it is not for all."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of all tasks (`scope` is `all`), or of those with the same `value` in one respect. Times are in UTC.

    `words` names the tasks. A pause is `in_force` until it is resumed, or until `until`. After that, each tick resumes
    up to `budget` tasks. `waiting` is how many due tasks wait for its end; counting stops at 10,000.
    """

    id: int
    scope: str
    value: str
    words: str
    by: str
    reason: str
    paused_at: datetime
    until: datetime | None
    resumed_at: datetime | None
    resumed_by: str
    budget: int | None
    in_force: bool
    waiting: int
