"""Runs one task through the product's own passes and statements, on a clock that the caller moves.

There is no RQ and no task function: the caller of `take` is the worker, and a run lasts until `end` is called.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from ticker import clock
from ticker.db import sql
from ticker.db.store import PostgresStore
from ticker.engine import jobs as engine_jobs
from ticker.engine import timing
from ticker.engine.jobs import JobSpec
from ticker.engine.tick import tick
from ticker.model import Outcome, Reason
from ticker.read import tasks
from ticker.registration import operations
from ticker.replay.event import Event, Step
from ticker.replay.memory import MemoryQueue
from ticker.replay.scratch import Scratch
from ticker.replay.table import Row, Timing
from ticker.schedules.duration import words
from ticker.tasks.fields import Task

# A table's 00:00, later than every real clock: a row created later than its own `now` counts as registered before the
# clock was set back, and the tick would move its times back.
ZERO = datetime(2100, 1, 1, tzinfo=UTC)
FUNCTION = "replayed"
MICROSECOND = timedelta(microseconds=1)
AT_MOST = 10_000  # records per read; a table is far too short for that many


@dataclass(slots=True)
class Job:
    """The times at which a job was pushed, taken by a worker (or given up by a tick), and ended. None means not yet."""

    name: str
    pushed: timedelta
    taken: timedelta | None = None
    ended: timedelta | None = None
    dropped: str = ""
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Ticked:
    """The names of the jobs that a tick pushed, and of those that it gave up, with their reasons."""

    at: timedelta
    pushed: tuple[str, ...]
    given_up: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """The event of a job that a worker took, the last_run by which it was decided, and the numbers of a refusal."""

    event: Event
    checked: timedelta | None
    numbers: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """The run that holds the task. At `box_ends` its function learns that its quota is used up."""

    name: str
    token: str
    box_ends: timedelta


@dataclass(frozen=True, slots=True)
class State:
    """The two times of the task's row on which the rules depend."""

    next_run: timedelta | None
    last_run: timedelta | None


@dataclass
class World:
    """One task in a scratch schema. All times count from the table's 00:00; `jobs` and `ticks` keep what happened."""

    task: Task
    store: PostgresStore
    scratch: Scratch
    queue: MemoryQueue = field(default_factory=MemoryQueue)
    jobs: dict[str, Job] = field(default_factory=dict)
    ticks: list[Ticked] = field(default_factory=list)
    running: Running | None = None
    _names: dict[str, str] = field(default_factory=dict)  # by job id

    def state(self) -> State:
        task = tasks.get(self.scratch.connection, self.task)
        return State(since_zero(task.next_run), since_zero(task.last_run))

    def tick(self, at: timedelta) -> Ticked:
        """Runs one pass of the ticker."""
        before = len(self.queue.pushed)
        waiting = [name for name, job in self.jobs.items() if job.taken is None]
        tick(self.store, self.queue, ZERO + at)
        names = [self._name(pushed, at) for pushed in self.queue.pushed[before:]]
        ids = {name: job_id for job_id, name in self._names.items()}
        gone = [name for name in waiting if not self.queue.holds(ids[name])]
        ticked = Ticked(at, tuple(names), tuple((name, self._give_up(name, ids[name], at)) for name in gone))
        self.ticks.append(ticked)
        return ticked

    def run_now(self, at: timedelta) -> None:
        """Requests a run, which the next tick pushes. Joins an earlier request whose run has not started."""
        with clock.use(lambda: ZERO + at):
            for run_id in operations.run_now(self.scratch.connection, self.task):
                count = sum(name.startswith("M") for name in self._names.values())
                self._names.setdefault(engine_jobs.planned_id(self.store.installation, run_id), f"M{count + 1}")

    def take(self, at: timedelta) -> Taken | None:
        """Lets a worker take the next job; the start statement decides whether it runs. Returns None if no job waits."""
        job = self.queue.take()
        if job is None:
            return None
        name, token = self._names[job.job_id], str(uuid4())
        verdict = self._start(job, token, at)
        self.jobs[name].taken, checked = at, since_zero(verdict["last_run"])
        if refusal := verdict["refusal"]:
            self.jobs[name].dropped = refusal
            return Taken(Event(Step.DROPPED, (name,), refusal), checked, _numbers(refusal, verdict))
        box = timing.granted_box(verdict["box_ms"], verdict["grace_ms"], job.timeout)
        self.running = Running(name, token, at + timing.span(box))
        return Taken(Event(Step.BEGINS, (name,)), checked)

    def end(self, at: timedelta, *, forced: bool) -> None:
        """Ends the run: its function returns by itself, or because its quota is used up."""
        assert self.running is not None
        self._finish(self.running.token, Outcome.PARTIAL if forced else Outcome.SUCCEEDED, at)
        job = self.jobs[self.running.name]
        job.ended, job.forced, self.running = at, forced, None

    def has_run(self, at: timedelta, occurrence: timedelta) -> None:
        """Adds a run before the table's first row, only to set last_run. The run begins and ends at `at`."""
        token = str(uuid4())
        before = JobSpec("", self.task.queue, (self.task.id, engine_jobs.micros(ZERO + occurrence)), 0, 0, "")
        self._is_due(ZERO + occurrence)  # a job at any other time would not be expected
        self._start(before, token, at)
        self._finish(token, Outcome.SUCCEEDED, at)
        self._is_due(self.task.next_run)

    def _is_due(self, instant: datetime | None) -> None:
        with self.store.transaction() as execute:
            execute("set_next_runs", ids=[self.task.id], next_runs=[instant])

    def _start(self, job: JobSpec, token: str, at: timedelta) -> sql.Row:
        """Starts a job as `wrappers.layers.guard` does, but without uptime, as the clock belongs to no host."""
        common = {
            "functions": [FUNCTION], "now": ZERO + at, "worker": "", "host": "", "pid": 0, "boot": None, "uptime": None,
        }  # fmt: skip
        _, occurrence, *planned = job.args
        with self.store.transaction() as execute:
            if planned:
                return execute("start_planned", task_id=self.task.id, run_id=planned[0], token=token, job_id=job.job_id, waits=False,
                               **common)[0]  # fmt: skip
            return execute("start", task_ids=[self.task.id], occurrences=[engine_jobs.instant(occurrence)], tokens=[token],
                           job_ids=[job.job_id], **common)[0]  # fmt: skip

    def _finish(self, token: str, outcome: Outcome, at: timedelta) -> None:
        with self.store.transaction() as execute:
            execute("finish", task_ids=[self.task.id], tokens=[token], outcomes=[outcome], reasons=[""], results=[None],
                    tracebacks=[""], outputs=[""], error_outputs=[""], pids=[None], ages=[0.0],
                    suspect_counts=[0], now=ZERO + at)  # fmt: skip

    def _name(self, pushed: JobSpec, at: timedelta) -> str:
        """Returns the job's name: A1, A2 in the order of the first push. Planned runs have their names already."""
        if pushed.job_id not in self._names:
            count = sum(name.startswith("A") for name in self._names.values())
            self._names[pushed.job_id] = f"A{count + 1}"
        name = self._names[pushed.job_id]
        self.jobs.setdefault(name, Job(name, at))
        return name

    def _give_up(self, name: str, job_id: str, at: timedelta) -> str:
        """Notes that the sweep took a job from the queue. Returns the recorded reason."""
        with self.store.transaction() as execute:
            records = execute("list_runs", outcome=None, before=None, limit=AT_MOST)
        here = self.store.installation
        ids = {engine_jobs.job_id(here, self.task.id, row["occurrence"]): row for row in records if row["occurrence"]}
        job = self.jobs[name]
        job.taken, job.dropped = at, ids[job_id]["reason"]
        return job.dropped


@contextmanager
def world(scratch: Scratch, settings: Timing, start: Row) -> Iterator[World]:
    """Creates a task in a table's initial state: due at next_run, or at once, and with last_run if it is given."""
    scratch.empty()
    store = PostgresStore(scratch.url, scratch.schema)
    next_run = start.expected.get("next_run") or start.at
    try:
        with clock.use(lambda: ZERO + start.at):
            task = operations.register(
                scratch.connection, FUNCTION, every=timing.span(settings.every), box=timing.span(settings.box),
                tolerance=timing.span(settings.tolerance), first=ZERO + next_run, during=settings.during,
            )  # fmt: skip
        new = World(task, store, scratch)
        if (last_run := start.expected.get("last_run")) is not None:
            new.has_run(last_run, min(last_run, next_run) - MICROSECOND)
        yield new
    finally:
        store.close()


def since_zero(instant: datetime | None) -> timedelta | None:
    return None if instant is None else instant - ZERO


def _numbers(refusal: str, verdict: sql.Row) -> str:
    """Returns how much too early the start was, as in the log of a worker."""
    if refusal != Reason.TOO_EARLY:
        return ""
    early = timing.earliest_start(verdict["last_run"], verdict["every_ms"], verdict["tolerance_ms"]) - verdict["now"]
    return f"{words(early // timedelta(milliseconds=1))} early"
