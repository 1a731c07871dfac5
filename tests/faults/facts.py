"""What a history consists of, as frozen values. `history.py` reads them from a run's folder.

`at` is always the monotonic clock in seconds. Other instants are the database's clock, in seconds since 1970;
occurrences are whole microseconds since 1970, as they stand in a job's id.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.clockmap import ClockMap

FOREVER = float("inf")
INSTALLATION = re.compile(r"(?:[a-z0-9]{8}-)?")
"""The prefix of a job's id, where there is one."""


def bare(job: str) -> str:
    """A job's id without the prefix of its installation: `t1-1790000000000000`, `r1`, or a batch's."""
    match = INSTALLATION.match(job)
    return job[match.end() :] if match else job


def installation(job: str) -> str:
    return job[: -len(bare(job))]


class Moment(NamedTuple):
    """When a change was committed, as its trigger saw it, and by which transaction."""

    at: float
    seq: int
    xid: int


@dataclass(frozen=True, slots=True)
class Setup:
    """What the harness said of itself. Durations in seconds; the sets hold ids of tasks."""

    at: float
    tick: float
    queue_delay: float
    restart: float
    strict_children: bool
    secrets: tuple[str, ...]
    poison: frozenset[int]
    steady: frozenset[int]
    repeatable: frozenset[str]  # functions
    crowd: frozenset[int] = frozenset()  # the tasks of the large group
    longest_poll: float = 0.0  # of them
    crowd_workers: int = 3  # that listen to their queue


@dataclass(frozen=True, slots=True)
class Version:
    """A row of `tasks` after one change; `op` is I, U or D (the row as it was when it was deleted)."""

    moment: Moment
    op: str
    function: str | None
    kwargs: Any
    kind: str | None
    every_ms: int
    tolerance_ms: int
    box_ms: int
    grace_ms: int
    enabled: bool
    owner_active: bool
    paused_by: str | None
    paused_until: float | None
    next_run: float | None
    waiting: tuple[int, ...]
    push_after: float | None
    push_errors: int
    last_run: float | None
    last_occurrence: float | None
    run_token: str | None
    running_until: float | None
    cursor: Any
    last_run_id: int | None
    last_outcome: str | None
    updated_at: float | None
    failures: int
    retries: int
    alone_until: float | None
    every_most_ms: int | None
    pace_ms: int | None
    again_at: float | None
    queue: str
    group_name: str
    owner_type: str
    limits: tuple[str, ...] | None
    pause_id: int | None
    resumed_at: float | None
    waits_again: float | None
    enough_jobs_event: int | None

    @property
    def at(self) -> float:
        return self.moment.at

    @property
    def pushable(self) -> bool:
        """Whether a tick may push it once it is due."""
        return (
            self.op != "D" and self.enabled and self.owner_active and self.paused_by is None and self.pause_id is None
        )

    @property
    def longest(self) -> float:
        """The longest interval that may be in force, in seconds."""
        return (self.every_most_ms or self.every_ms) / 1000

    @property
    def definition(self) -> tuple[object, ...]:
        """What people decide; it is the same in two versions unless somebody edited, paused or disabled."""
        return (
            self.op == "D", self.function, self.kwargs, self.kind, self.every_ms, self.every_most_ms, self.tolerance_ms, self.box_ms,
            self.enabled, self.owner_active, self.paused_by,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    id: int
    versions: Sequence[Version]

    @property
    def deleted(self) -> Version | None:
        return self.versions[-1] if self.versions[-1].op == "D" else None

    def version_at(self, at: float) -> Version | None:
        """The row as it stood at that instant; None before it was there."""
        number = bisect_right(self.versions, at, key=lambda version: version.at)
        return self.versions[number - 1] if number else None


@dataclass(frozen=True, slots=True)
class Run:
    """A row of `runs` as it stands at the end, and when it got there. `ends` is each outcome that was ever written."""

    id: int
    task: int
    kind: str
    occurrence: int | None
    attempt: int
    parent: int | None
    state: str
    outcome: str | None
    reason: str
    traceback: str
    token: str | None
    function: str
    started_at: float | None
    until: float | None
    every_ms: int
    tolerance_ms: int
    job: str
    pid: int
    created: Moment
    started: Moment | None
    ends: tuple[tuple[str | None, Moment], ...]
    handed_out: Moment | None = None  # when it began to wait for its pieces, without its hold

    @property
    def ended(self) -> Moment | None:
        return self.ends[-1][1] if self.state == "ended" and self.ends else None

    @property
    def frees(self) -> Sequence[Moment]:
        """Each change that gave back what it held: its own end, and what was recorded of it later."""
        own = () if self.handed_out is None else (self.handed_out,)
        return (*own, *(moment for _, moment in self.ends))

    @property
    def hold(self) -> float:
        """B + g in seconds, as the start granted it."""
        return (self.until or 0.0) - (self.started_at or 0.0)


@dataclass(frozen=True, slots=True)
class Begin:
    """A function's own word that it has begun. `box` in seconds."""

    at: float
    pid: int
    token: str
    occurrence: int | None
    function: str
    kwargs: Any
    box: float
    process: str = ""  # the supervised process that it belongs to: "worker-1#3" is the third start of worker-1


@dataclass(frozen=True, slots=True)
class Witnessed:
    """The activity of one run over all its processes: the first line, the last one, the last one of no child; when its
    function returned or raised, and the deed that it was about to do, by its own word."""

    run: int
    task: int
    begins: tuple[Begin, ...]
    first: float
    last: float
    last_own: float
    returned: float | None = None
    deed: str = ""


class StaleWrite(NamedTuple):
    """A write of a function that knew that its hold was lost."""

    at: float
    task: int
    run: int
    result: str


class HoldOff(NamedTuple):
    """A run that was about to close a key for so many seconds, by its own word. `held`: when that call had returned. None if
    it was no call, but an exception."""

    at: float
    run: int
    key: str
    seconds: float
    held: float | None


class Declaration(NamedTuple):
    """A limit that the harness declared for a key, or for a pattern. Without an answer, it may apply since it was sent."""

    sent: float
    acked: float | None
    key: str
    concurrency: int | None
    per_second: float | None
    burst: int


class Slot(NamedTuple):
    """A row of `slots` at the end. `until` is the database's clock."""

    key: str
    kind: str
    n: int
    token: str | None
    until: float | None


@dataclass(frozen=True, slots=True)
class Push:
    """One occurrence, or planned run, that a ticker handed to Redis in the job `carrier`, its own or a batch's. `job` has no
    installation in front. `answer` None: the server did not answer."""

    at: float
    job: str
    answer: str | None
    delivered: bool
    description: str
    carrier: str = ""

    @property
    def taken(self) -> bool:
        """Redis has the job."""
        return self.answer in {"stored", "held"}


@dataclass(frozen=True, slots=True)
class Fault:
    id: Any
    kind: str
    target: str
    effects: frozenset[str]
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Event:
    """A row of `events`. `at` is placed on the monotonic clock."""

    id: int
    at: float
    task: int
    what: str
    run: int | None
    words: str


@dataclass(frozen=True, slots=True)
class Life:
    """One start of a supervised process, until it ended: FOREVER where the harness did not see it end."""

    name: str
    begin: float
    end: float


class Signal(NamedTuple):
    """What the harness sent to a process, and to which supervised process that belonged."""

    at: float
    process: str
    pid: int
    number: int


class Calm(NamedTuple):
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Operation:
    """What the client asked for. `acked` or `failed` is when it was answered; neither: it never was."""

    op: str
    tasks: tuple[int, ...]
    change: Mapping[str, Any]
    sent: float
    acked: float | None
    failed: float | None


class Torn(NamedTuple):
    """A line that is no JSON. The last one of a file is what a killed process leaves; another one must not be."""

    file: str
    line: int
    is_last: bool


@dataclass(frozen=True, eq=False)
class History:
    folder: Path
    setup: Setup
    last: float | None  # None: the harness did not come to its end
    clocks: ClockMap
    faults: Sequence[Fault]
    wipes: Sequence[float]
    calms: Sequence[Calm]
    operations: Sequence[Operation]
    pushes: Mapping[str, Sequence[Push]]  # by job
    tasks: Mapping[int, Task]
    runs: Mapping[int, Run]
    changed_by: Mapping[tuple[int, int], int]  # (task, xid) -> number of the last version that it wrote
    witnessed: Mapping[int, Witnessed]  # by run
    stale_writes: Sequence[StaleWrite]
    logs: Sequence[Path]
    torn: Sequence[Torn]
    final_runs: Mapping[int, tuple[str, str | None]]  # (state, outcome), as exported
    final_tasks: frozenset[int]
    spare: Sequence[tuple[float, float]] = ()  # (at, the share of all processors that was left since the one before)
    events: Sequence[Event] = ()
    takes: Mapping[str, Sequence[float]] = field(
        default_factory=dict
    )  # by the id that Redis knows: when a worker got it
    unknown_takes: Sequence[float] = ()  # a worker asked, and nobody knows which job it was given
    lives: Mapping[str, Life] = field(default_factory=dict)  # by name and number: "worker-1#3"
    signals: Sequence[Signal] = ()
    limits: Sequence[Declaration] = ()  # in the order in which they were sent
    holds: Sequence[HoldOff] = ()
    slots: Sequence[Slot] = ()
    lost_ends: frozenset[int] = (
        frozenset()
    )  # runs that had ended on a primary, and not on the standby that was promoted
    promotions: Sequence[float] = ()  # when a standby of PostgreSQL took writes
    stopped: float | None = None  # when everything was stopped for the restore that ended this world

    def seconds(self, at: float) -> float:
        """Since the setup, for people."""
        return round(at - self.setup.at, 3)

    def written_by(self, task: int, xid: int) -> tuple[Version | None, Version] | None:
        """The task's row before and after a transaction changed it; None where it did not."""
        number = self.changed_by.get((task, xid))
        if number is None:
            return None
        versions = self.tasks[task].versions
        before = number - 1
        while before >= 0 and versions[before].moment.xid == xid:
            before -= 1
        return (versions[before] if before >= 0 else None), versions[number]

    def at_start(self, run: Run) -> Version | None:
        """The task's row that the start of this run judged and changed; None where no row was."""
        found = self.written_by(run.task, run.started.xid) if run.started else None
        return found[1] if found else None

    @cached_property
    def by_task(self) -> Mapping[int, Sequence[Run]]:
        """Runs, drops and plans of each task, in the order of their records."""
        grouped: dict[int, list[Run]] = {}
        for run in self.runs.values():
            grouped.setdefault(run.task, []).append(run)
        return grouped

    @cached_property
    def starts(self) -> Mapping[int, Sequence[Run]]:
        """The runs of each task that started, in the order of their starts."""
        return {
            task: sorted((run for run in runs if run.started), key=lambda run: run.started or run.created)
            for task, runs in self.by_task.items()
        }

    @cached_property
    def events_of(self) -> Mapping[str, Sequence[Event]]:
        """By what happened."""
        grouped: dict[str, list[Event]] = {}
        for event in self.events:
            grouped.setdefault(event.what, []).append(event)
        return grouped

    @cached_property
    def by_token(self) -> Mapping[str, Run]:
        return {run.token: run for run in self.runs.values() if run.token}

    @property
    def end(self) -> float:
        """Until when everything was at work: the end of the last calm, or of what was written."""
        if self.stopped is not None:
            return self.stopped
        return self.calms[-1].end if self.calms else self.last or FOREVER
