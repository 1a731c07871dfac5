"""In-memory doubles of the ticker's two ports, for tests of the pass alone. `test_contract.py` holds them to the
promises of the real ones. Rows are frozen, so that a batch works on a copy by keeping the rows that it changed.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid4

from tests.elastic import due_when_resumed, is_asked, longest_again
from tests.pauses import (
    LEAST_BUDGET,
    Pause,
    backlog,
    budget_of,
    covering,
    grant,
    is_covered,
    is_unknown_for_long,
    waits_for_worker,
    waits_in_vain,
)
from tests.slots import Key, give_back
from tests.turns import GROUPED, apart, waits_for_turn
from ticker.engine import jobs as spec
from ticker.engine import timing
from ticker.engine.jobs import JobSpec
from ticker.engine.key_limits import LimitedTask
from ticker.engine.ports import JobState, Look, OpenPauses, Receipt, Refusal, RunAtWork, Settled
from ticker.errors import DatabaseUnavailable, QueueUnavailable
from ticker.model import Alarm, DueTask, Ended, Health, Kind, Note, Outcome, PlannedRun, Reason, RunKind, WaitingTask

INSTALLATION = "test1234"
GUILTY_FOR = timedelta(hours=1)
"""Whose tables the doubles are, and the databases of the tests."""

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
WAITS = ("", Reason.STILL_RUNNING)  # reasons of planned runs that are not errors of a push
LONGEST_DELAY = timedelta(minutes=61)  # no back-off lies further ahead
DAY = timedelta(days=1)
YOUNG = timedelta(minutes=10)
THOROUGH_EVERY = 120  # as the real store's
Uptime = tuple[str | None, int | None]  # which boot of which host, and microseconds since
NOWHERE: Uptime = (None, None)


def too_early(now: datetime, last_run: datetime | None, every: int, tolerance: int) -> bool:
    """As db/sql/start.sql decides it."""
    return last_run is not None and now < timing.earliest_start(last_run, every, tolerance)


@dataclass(frozen=True)
class TaskRow:
    """What the ticker reads and writes of a row of `tasks`, under the names of its columns; by default due at NOW."""

    id: int = 0
    next_run: datetime | None = NOW
    function: str = "poll"
    queue: str = "polling"
    kind: Kind = Kind.INTERVAL
    expression: str = ""
    zone: str = "UTC"
    every_ms: int = 60_000
    tolerance_ms: int = 5_000
    box_ms: int = 30_000
    grace_ms: int = 1_000
    enabled: bool = True
    owner_active: bool = True
    paused_by: str | None = None
    paused_reason: str = ""
    paused_until: datetime | None = None
    waiting: tuple[datetime, ...] = ()
    push_after: datetime | None = None
    push_errors: int = 0
    push_error: str = ""
    last_run: datetime | None = None
    last_occurrence: datetime | None = None
    run_token: UUID | None = None
    running_until: datetime | None = None
    last_run_id: int | None = None
    last_outcome: Outcome | None = None
    last_ended_at: datetime | None = None
    last_success_at: datetime | None = None
    last_worked_at: datetime | None = None
    failures: int = 0
    cursor: Any = None
    created_at: datetime = NOW
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    max_runs: int | None = None
    started: int = 0
    catch_up: str = "one"
    remove: bool = False
    overlap: str = "queue"
    owner_type: str = ""
    owner_id: str = ""
    priority: int = 0
    alone_until: datetime | None = None
    limits: tuple[str, ...] | None = None
    every_most_ms: int | None = None
    pace_ms: int | None = None
    again_at: datetime | None = None
    during: str = ""
    group_name: str = ""
    pause_id: int | None = None
    waits_again: datetime | None = None
    wait_reason: str | None = None
    resumed_at: datetime | None = field(default=None, compare=False)  # triggers of the real tables write it, too


@dataclass(frozen=True)
class RunRow:
    """The same of a row of `runs`; by default a manual run that is planned and due at NOW."""

    id: int = 0
    task_id: int = 0
    kind: RunKind = RunKind.MANUAL
    state: str = "planned"
    occurrence: datetime | None = None
    due_at: datetime | None = NOW
    pushed_at: datetime | None = None
    token: UUID | None = None
    started_at: datetime | None = None
    until: datetime | None = None
    boot: str | None = None
    uptime_us: int | None = None
    outcome: Outcome | None = None
    reason: str = ""
    ended_at: datetime | None = None
    parent_id: int | None = None
    every_ms: int | None = None
    tolerance_ms: int | None = None
    checked_last_run: datetime | None = None
    checked_at: datetime | None = None
    created_at: datetime = NOW
    stop_requested_by: str | None = None
    job_id: str = field(default="", compare=False)  # the double's starts do not write it
    function: str = field(default="", compare=False)  # the double writes that of manual runs


R = TypeVar("R", TaskRow, RunRow)


class Table(dict[int, R]):
    """Committed rows by id, and the ids of those that an open batch holds.

    `open` are the rows that a pass may care about: all but the runs that ended, which only grow in number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[int, R] = {}
        self.recorded: dict[tuple[int, datetime], int] = {}  # the record of each occurrence, by (task id, occurrence)
        self.held: set[int] = set()
        self.ids = 0

    def __setitem__(self, id_: int, row: R) -> None:
        super().__setitem__(id_, row)
        if isinstance(row, RunRow) and row.kind is RunKind.SCHEDULED and row.occurrence is not None:
            self.recorded[row.task_id, row.occurrence] = id_
        if isinstance(row, RunRow) and row.state == "ended":
            self.open.pop(id_, None)
        else:
            self.open[id_] = row

    def __delitem__(self, id_: int) -> None:
        super().__delitem__(id_)
        self.open.pop(id_, None)

    def add(self, row: R) -> int:
        self.ids += 1
        self[self.ids] = replace(row, id=self.ids)
        return self.ids


class Tasks(Table[TaskRow]):
    """An occurrence that went back to its row gets a record if the row becomes due at another time, as by a trigger."""

    def __init__(self, records: Table[RunRow]) -> None:
        super().__init__()
        self._records = records

    def __setitem__(self, id_: int, row: TaskRow) -> None:
        before = self.get(id_)
        if before is not None and before.waits_again is not None and row.next_run != before.waits_again:
            due = before.waits_again
            if due not in row.waiting and (id_, due) not in self._records.recorded:
                self._records.add(
                    RunRow(
                        task_id=id_, kind=RunKind.SCHEDULED, state="ended", occurrence=due, due_at=None, created_at=due,
                        outcome=Outcome.DROPPED, reason=str(Reason.SUPERSEDED), ended_at=due,
                    )
                )  # fmt: skip
            kept = None if row.waits_again == due else row.waits_again
            row = replace(row, waits_again=kept, wait_reason=row.wait_reason if kept else None)
        super().__setitem__(id_, row)


class View(Generic[R]):
    """A table as one batch sees it: its own rows as it changed them, none that another batch holds."""

    def __init__(self, table: Table[R]) -> None:
        self.table = table
        self._mine: dict[int, R] = {}
        self._new: list[R] = []

    def free(self) -> list[R]:
        return [self._mine.get(id_, row) for id_, row in self.table.open.items() if self.is_free(id_)]

    def all(self) -> Iterable[R]:
        return self.table.values()

    def is_free(self, id_: int) -> bool:
        return id_ in self._mine or id_ not in self.table.held

    def exists(self, id_: int) -> bool:
        return id_ in self.table

    def is_recorded(self, task_id: int, occurrence: datetime) -> bool:
        return (task_id, occurrence) in self.table.recorded

    def claim(self, rows: Iterable[R]) -> list[R]:
        claimed = list(rows)
        self._mine |= {row.id: row for row in claimed}
        self.table.held |= self._mine.keys()
        return claimed

    def __getitem__(self, id_: int) -> R:
        return self._mine[id_] if id_ in self._mine else self.table[id_]

    def change(self, id_: int, **values: Any) -> None:
        self.claim([replace(self[id_], **values)])

    def add(self, row: R) -> None:
        self._new.append(row)

    def commit(self) -> None:
        for id_, row in self._mine.items():
            self.table[id_] = row
        for row in self._new:
            self.table.add(row)

    def release(self) -> None:
        self.table.held -= self._mine.keys()


def job_id(task_id: int, occurrence: datetime) -> str:
    return spec.job_id(INSTALLATION, task_id, occurrence)


def planned_id(run_id: int) -> str:
    return spec.planned_id(INSTALLATION, run_id)


class MemoryStore:
    """The tables in memory. `clock` is what `now()` answers; `down` makes every call fail."""

    installation = INSTALLATION

    def __init__(self) -> None:
        self.plans: Table[RunRow] = Table()
        self.tasks = Tasks(self.plans)
        self.last_ticks: dict[str, datetime] = {}
        self._clamps = 0
        self._last_look: tuple[str, timedelta] | None = None
        self._stepped = self._look_again = False
        self.keys: dict[str, Key] = defaultdict(Key)
        self.pauses: dict[int, Pause] = {}
        self.least_budget = LEAST_BUDGET
        self.clock = NOW
        self.down = False
        self._swept: dict[str, int] = {}

    def another(self) -> "MemoryStore":
        """What another ticker has: the same tables, a sweep of its own."""
        other = copy(self)
        other._swept = {}
        other._clamps = 0
        other._last_look, other._stepped, other._look_again = None, False, False
        return other

    def uptime(self, now: datetime | None = None) -> Uptime:
        """Of the ticker's host; a simulation has one of its own."""
        return NOWHERE

    def add_task(self, **columns: Any) -> int:
        return self.tasks.add(TaskRow(**columns))

    def add_run(self, **columns: Any) -> int:
        return self.plans.add(RunRow(**columns))

    def put(self, task_id: int, **columns: Any) -> None:
        self.tasks[task_id] = replace(self.tasks[task_id], **columns)

    def add_limit(self, key: str, concurrency: int) -> None:
        self.keys[key].concurrency = concurrency

    def add_pause(self, scope: str, value: str = "", **columns: Any) -> int:
        id_ = max(self.pauses, default=0) + 1
        self.pauses[id_] = Pause(scope, value, **columns)
        return id_

    def end_pause(self, pause_id: int, at: datetime) -> None:
        self.pauses[pause_id].resumed_at = at

    def delete_pause(self, pause_id: int) -> None:
        del self.pauses[pause_id]

    def saw_tick(self, at: datetime) -> None:
        """A ticker's heartbeat says that its last tick was then."""
        self.last_ticks[str(uuid4())] = at

    def heartbeat(self, ticker_id: str, at: datetime, now: datetime) -> None:
        """The same of a ticker that lives; rows of those that were silent for a day, or write from the future, go."""
        for other, last in list(self.last_ticks.items()):
            if other != ticker_id and (last < now - DAY or last > now + SECOND):
                del self.last_ticks[other]
        self.last_ticks[ticker_id] = at

    def task(self, task_id: int) -> TaskRow:
        return self.tasks[task_id]

    def runs(self) -> list[RunRow]:
        return list(self.plans.values())

    def now(self) -> datetime:
        self._answers()
        return self.clock

    def look(self, now: datetime | None, look_ahead: int) -> Look:
        self._answers()
        return Look()

    @contextmanager
    def batch(self) -> Iterator["MemoryBatch"]:
        self._answers()
        tasks, runs = View(self.tasks), View(self.plans)
        try:
            yield MemoryBatch(tasks, runs, self._swept, self.pauses)
            runs.commit()
            tasks.commit()
        finally:
            tasks.release()
            runs.release()

    def count_due(self, now: datetime, look_ahead: int, queue: str) -> int:
        return sum(task.queue == queue and is_due(task, now, look_ahead) for task in self.tasks.values())

    def limited_due(
        self, now: datetime, look_ahead: int, limit: int, ahead: int = 0, without: Collection[str] = (),
        full: Collection[str] = (), after: tuple[datetime, int] | None = None, delays: Mapping[str, float] | None = None,
    ) -> tuple[Sequence[LimitedTask], bool]:  # fmt: skip
        pushed = [
            self.tasks[run.task_id]
            for run in self.plans.values()
            if run.state == "pushed" and run.task_id in self.tasks
        ]
        waits = Counter(
            key for task in [*(t for t in self.tasks.values() if t.waiting), *pushed] for key in task.limits or ()
        )
        rooms = {key: one.room(now) for key, one in self.keys.items()}
        left = {key: room - waits[key] for key, room in rooms.items() if room is not None}
        due = [
            t for t in self.tasks.values()
            if t.limits and t.queue not in without and not {*t.limits} & {*full} and is_due(t, now, look_ahead)
            and not waits_for_turn(t, self.tasks.values(), self.plans, now)
            and (after is None or (t.next_run, t.id) > after)
        ]  # fmt: skip
        tasks = [
            LimitedTask(
                t.id, t.next_run or now, t.queue, t.limits, tuple(map(left.get, t.limits)), (t.owner_type, t.owner_id), t.priority,
                has_job=bool(t.waiting),
            )
            for t in sorted(due, key=lambda t: (t.next_run, t.id))[:limit]
        ]  # fmt: skip
        planned = [
            LimitedTask(
                r.id, r.due_at, t.queue, t.limits, tuple(map(left.get, t.limits)), (t.owner_type, t.owner_id), t.priority,
                is_planned=True,
            )
            for r in self.plans.values()
            if r.state == "planned" and not is_after(r.due_at, now) and (t := self.tasks.get(r.task_id)) is not None
            if t.limits and t.queue not in without and not {*t.limits} & {*full} and may_be_pushed(r, t, self.pauses, now)
        ]  # fmt: skip
        return tasks + planned, len(tasks) == limit

    def wake(self, now: datetime, limit: int) -> int:
        with self.batch() as rows:
            return rows.end_pauses(now, limit)

    def open_pauses(self, now: datetime) -> OpenPauses:
        self._answers()
        for pause in self.pauses.values():
            pause.open(now)
        in_force = sum(pause.in_force(now) for pause in self.pauses.values())
        idle = [id_ for id_, one in self.pauses.items() if one.is_old(now) and not self._has_work(id_, one, now)]
        over = sum(pause.is_over for pause in self.pauses.values()) + len(idle)
        for id_ in idle:
            self.pauses[id_] = replace(self.pauses[id_], resumed_at=now, is_done=True, ended_by_tick=True)
        return OpenPauses(in_force, over + waits_in_vain(self._waited_for(), self.pauses))

    def _has_work(self, id_: int, gate: Pause, now: datetime) -> bool:
        """Whether a task that is due waits for a worker that knows its function, or a planned run."""
        if any(t.pause_id == id_ and is_only_unknown(t, self.pauses, now) for t in self.tasks.values()):
            return True
        return any(
            run.function == gate.value and task.queue == gate.of_queue
            and (run.state == "pushed" or (run.state == "planned" and run.reason == Reason.UNKNOWN_HERE))
            for run in self.plans.open.values() if (task := self.tasks.get(run.task_id)) is not None
        )  # fmt: skip

    def _waited_for(self) -> set[int]:
        return {task.pause_id for task in self.tasks.values() if task.pause_id is not None}

    def wait_for_gate(
        self, now: datetime, look_ahead: int, limit: int, after: tuple[datetime, int] | None = None
    ) -> tuple[datetime, int] | None:
        with self.batch() as rows:
            return rows.wait_for_gate(now, look_ahead, limit, after)

    def probe(self, now: datetime, period: int) -> None:
        """The real one lets one of the 100 oldest go, at random."""
        self._answers()
        with self.batch() as rows:
            rows.probe(self.pauses, now, timing.span(period) * 0.9)

    def grant_budget(
        self, now: datetime, look_ahead: int, period: int, tick: int, full: Collection[str] = ()
    ) -> int | None:
        self._answers()
        over = [pause for pause in self.pauses.values() if pause.is_over]
        if not over:
            return self.least_budget if waits_in_vain(self._waited_for(), self.pauses) else None
        if not grant(over, now, period):
            return None
        own = [task for task in self.tasks.values() if any(pause.keeps(task) for pause in over)]
        gaps = [
            (task.pace_ms or task.every_ms) if task.kind is Kind.INTERVAL else 2 * task.box_ms for task in own
            if task.kind is not Kind.ONCE and task.next_run and task.enabled and task.owner_active and not task.paused_by
        ]  # fmt: skip
        budget, fresh = budget_of(gaps, tick, self.least_budget), now - timing.span(tick)
        due = sum(
            is_due(t, now, look_ahead) and t.queue not in full and (not t.limits or is_after(t.next_run, fresh))
            for t in own
        )
        return max(budget - due, budget // 10, 1)

    def let_go(self, now: datetime, limit: int) -> tuple[int, int]:
        with self.batch() as rows:
            return rows.let_go(now, limit)

    def close_pauses(self, now: datetime) -> None:
        self._answers()
        for id_, pause in self.pauses.items():
            pause.is_done = pause.is_done or (pause.is_over and id_ not in self._waited_for())

    def watched(self, now: datetime, period: int) -> timedelta:
        return timedelta.max

    def remove_done(self, limit: int) -> int:
        done = [
            task.id
            for task in self.tasks.values()
            if task.kind is Kind.ONCE and task.remove and task.next_run is None and task.run_token is None
            and not task.waiting and task.last_outcome in (Outcome.SUCCEEDED, Outcome.PARTIAL, Outcome.NOTHING_TO_DO)
            and task.id not in self.tasks.held
        ]  # fmt: skip
        for id_ in done[:limit]:
            del self.tasks[id_]
        return len(done[:limit])

    def stop_runs(self, now: datetime, limit: int) -> Sequence[RunAtWork]:
        asked = [run for run in self.plans.open.values() if run.stop_requested_by is not None]
        dropped = {"state": "ended", "outcome": Outcome.DROPPED, "reason": str(Reason.STOPPED), "ended_at": now}
        for run in asked:
            if run.state in ("planned", "pushed") and run.id not in self.plans.held:
                self.plans[run.id] = replace(run, **dropped)
        return [RunAtWork("", str(run.token)) for run in asked if run.state == "running"]

    def clamp(self, now: datetime | None, limit: int) -> bool:
        instant = now or self.now()
        self._stepped = stepped = self._clock_was_set(instant) or self._stepped
        thorough = self._look_again or self._clamps % THOROUGH_EVERY == 0
        ahead = any(last > instant + SECOND for last in self.last_ticks.values())
        set_back = stepped or self._look_again or ahead
        with self.batch() as rows:
            if thorough or stepped or ahead:
                rows.clamp(instant, self.uptime(), stepped)
                for key in self.keys.values():
                    key.clamp(instant, self.span_of)
            rows.clamp_runs(instant)
        self._stepped, self._look_again = False, stepped
        self._clamps += 1
        return set_back

    def span_of(self, token: UUID | None) -> timedelta | None:
        """How long the run with this token holds its slots, if it has not ended."""
        runs = (run for run in self.plans.open.values() if run.token == token and run.state == "running")
        return next((run.until - run.started_at for run in runs if run.until and run.started_at), None)

    def _clock_was_set(self, now: datetime) -> bool:
        boot, uptime = self.uptime()
        if boot is None or uptime is None:
            return False
        ahead = now - NOW - timedelta(microseconds=uptime)
        before, self._last_look = self._last_look, (boot, ahead)
        if before is None or before[0] != boot:
            return False
        if abs(ahead - before[1]) <= SECOND:
            self._last_look = before
            return False
        return True

    def drop_orphaned_plans(self, now: datetime, limit: int) -> int:
        with self.batch() as rows:
            return rows.drop_orphaned_plans(now, limit)

    def end_overdue(self, now: datetime | None, limit: int, period: int = 0) -> int:
        """The double knows no rhythm: what a period makes of this is tested with the real store alone."""
        with self.batch() as rows:
            ended = rows.end_overdue(now or self.now(), limit, self.uptime())
        for token in filter(None, ended):
            give_back(self.keys.values(), token)
        return len(ended)

    def _answers(self) -> None:
        if self.down:
            raise DatabaseUnavailable("the double is down")


class MemoryBatch:
    def __init__(
        self, tasks: View[TaskRow], runs: View[RunRow], swept: dict[str, int], pauses: Mapping[int, Pause]
    ) -> None:
        self._tasks, self._runs, self._swept, self._pauses = tasks, runs, swept, pauses

    def is_pushable(self, task: TaskRow, now: datetime, look_ahead: int) -> bool:
        if not is_due(task, now, look_ahead) or is_covered(task, self._pauses, now):
            return False
        return not self._waits_for_turn(task, now)

    def _waits_for_turn(self, task: TaskRow, now: datetime) -> bool:
        return waits_for_turn(task, self._tasks.all(), self._runs.table, now)

    def _due_task(self, task: TaskRow, now: datetime) -> DueTask:
        return due_task(task, now)._replace(apart=apart(task, self._tasks.all(), now))

    def probe(self, pauses: Mapping[int, Pause], now: datetime, apart: timedelta) -> None:
        for id_, gate in pauses.items():
            if gate.scope != "unknown" or gate.resumed_at is not None:
                continue
            if gate.granted_at is not None and now - apart <= gate.granted_at <= now:
                continue
            waiting = [t for t in self._tasks.free() if t.pause_id == id_ and is_only_unknown(t, pauses, now)]
            waiting = [t for t in waiting if not is_unknown_for_long(t, gate, pauses, now)]
            oldest = sorted(waiting, key=lambda t: t.next_run or now)[:100]
            if oldest:
                gate.granted_at = now
                self._tasks.change(min(t.id for t in oldest), pause_id=None)

    def wait_for_gate(
        self, now: datetime, look_ahead: int, limit: int, after: tuple[datetime, int] | None
    ) -> tuple[datetime, int] | None:
        last = now + timing.span(look_ahead)
        due = [(t.next_run, t.id, t) for t in self._tasks.all() if t.next_run and t.next_run <= last and is_runnable(t)]
        examined = sorted(one for one in due if after is None or one[:2] > after)[:limit]
        for *_, task in examined:
            pause = covering(task, self._pauses, now) or backlog(task, self._pauses)
            if pause is not None and self._tasks.is_free(task.id):
                self._tasks.change(task.id, pause_id=pause)
        return examined[-1][:2] if len(examined) == limit else None

    def let_go(self, now: datetime, limit: int) -> tuple[int, int]:
        held = [t for t in self._tasks.all() if t.pause_id is not None]
        held = [t for t in held if t.pause_id not in self._pauses or not self._pauses[t.pause_id].in_force(now)]
        chosen = sorted(held, key=lambda t: (t.next_run or now, t.id))[:limit]
        free = [task for task in chosen if self._tasks.is_free(task.id)]
        for task in free:
            self._tasks.change(task.id, pause_id=covering(task, self._pauses, now), resumed_at=now)
        return len(chosen), sum(is_runnable(self._tasks[task.id]) for task in free)

    def claim_due(self, now: datetime, look_ahead: int, limit: int, without: Collection[str] = ()) -> Sequence[DueTask]:
        free = (t for t in self._tasks.free() if t.queue not in without and not t.limits)
        due = sorted((t for t in free if self.is_pushable(t, now, look_ahead)), key=lambda t: t.next_run or now)
        return [self._due_task(task, now) for task in self._tasks.claim(due[:limit])]

    def claim_in_turn(self, now: datetime, look_ahead: int, queue: str, limit: int) -> Sequence[DueTask]:
        due = sorted(
            (
                t
                for t in self._tasks.free()
                if t.queue == queue and not t.limits and self.is_pushable(t, now, look_ahead)
            ),
            key=lambda t: (-t.priority, t.next_run or now, t.id),
        )
        turns: dict[Any, int] = {}
        in_turn = []
        for task in due:
            owner = (task.owner_type, task.owner_id) if task.owner_type else task.id
            turns[owner] = turns.get(owner, 0) + 1
            in_turn.append((turns[owner], task.next_run, task.id, task))
        chosen = [task for *_, task in sorted(in_turn)[:limit]]
        return [self._due_task(task, now) for task in self._tasks.claim(chosen)]

    def claim_chosen(self, now: datetime, look_ahead: int, ids: Sequence[int]) -> Sequence[DueTask]:
        due = {task.id: task for task in self._tasks.free() if task.limits and self.is_pushable(task, now, look_ahead)}
        return [self._due_task(task, now) for task in self._tasks.claim([due[id_] for id_ in ids if id_ in due])]

    def note_jobs(self, occurrences: Sequence[tuple[int, datetime, str | None]]) -> None:
        """Here each occurrence has its own job."""

    def advance(self, tasks: Sequence[tuple[DueTask, datetime | None, str | None]]) -> None:
        for due, next_run, _ in tasks:
            row = self._tasks[due.id]
            started = not is_after(due.occurrence, row.last_occurrence or due.occurrence - SECOND) and any(
                run.occurrence == due.occurrence and run.started_at for run in self._scheduled(due.id)
            )
            waiting = row.waiting if started or due.occurrence in row.waiting else (*row.waiting, due.occurrence)
            self._tasks.change(
                due.id, next_run=next_run, waiting=waiting, push_errors=0, push_error="", push_after=None
            )

    def skip_for_enough_jobs(self, tasks: Sequence[DueTask], words: str) -> None:
        """Here are no events."""

    def claim_ahead(self, now: datetime, limit: int) -> Sequence[DueTask]:
        ahead = [
            t for t in self._tasks.free()
            if (t.kind in (Kind.CRON, Kind.CALENDAR) or t.during) and is_after(t.next_run, now)
        ]  # fmt: skip
        pushed = [task for task in ahead if self._was_pushed(task, now)]
        return [due_task(task, now) for task in self._tasks.claim(self._next("ahead", pushed, limit))]

    def claim_ended(self, limit: int) -> Sequence[Ended]:
        """The double knows neither retries nor pieces nor events: those are tested with the real store alone."""
        return []

    def mark_followed(self, runs: Sequence[tuple[int, bool, str]]) -> None: ...

    def plan_retries(self, runs: Sequence[tuple[int, datetime]], now: datetime) -> None: ...

    def judge_tasks(self, tasks: Sequence[Health]) -> None: ...

    def record_events(self, notes: Sequence[Note], now: datetime) -> None: ...

    def sum_up(self, now: datetime, limit: int) -> int:
        return 0

    def claim_alarms(self, now: datetime, limit: int) -> Sequence[Alarm]:
        return []

    def unreported_functions(self, now: datetime) -> Sequence[tuple[int, str]]:
        return []

    def announced_functions(self) -> Collection[str]:
        return []

    def set_alarms(self, tasks: Sequence[tuple[int, datetime | None]]) -> None: ...

    def reschedule(self, tasks: Sequence[tuple[DueTask, datetime | None]]) -> None:
        for due, next_run in tasks:
            self._tasks.change(due.id, next_run=next_run, push_errors=0, push_error="", push_after=None)

    def try_later(self, failed: Sequence[tuple[int, str, datetime]]) -> None:
        for id_, error, after in failed:
            errors = self._tasks[id_].push_errors + 1
            self._tasks.change(id_, push_errors=errors, push_error=error[:500], push_after=after)

    def claim_planned(
        self, now: datetime, limit: int, queue: str | None = None, without: Collection[str] = ()
    ) -> Sequence[PlannedRun]:
        due = self._due_plans(now)
        due = [
            r for r in due if self._tasks.exists(r.task_id) and r.kind is not RunKind.PIECE
        ]  # which have a test of their own
        due = [
            r for r in due if is_of(self._tasks[r.task_id].queue, queue, without) and not self._tasks[r.task_id].limits
            and self.may_be_pushed(r, now) and self._has_turn(r, now)
        ]  # fmt: skip
        due.sort(key=lambda r: (r.due_at, r.id))
        return [self._planned(run, now) for run in self._runs.claim(due[:limit])]

    def drop_orphaned_plans(self, now: datetime, limit: int) -> int:
        gone = sorted((r for r in self._due_plans(now) if not self._tasks.exists(r.task_id)), key=lambda r: r.due_at)
        for run in gone[:limit]:
            self._end(run, Outcome.DROPPED, Reason.GONE, now)
        return len(gone[:limit])

    def _due_plans(self, now: datetime) -> list[RunRow]:
        return [r for r in self._runs.free() if r.state == "planned" and not is_after(r.due_at, now)]

    def may_be_pushed(self, run: RunRow, now: datetime | None) -> bool:
        return may_be_pushed(run, self._tasks[run.task_id], self._pauses, now or NOW)

    def _has_turn(self, run: RunRow, now: datetime) -> bool:
        return run.kind is RunKind.MANUAL or not self._waits_for_turn(self._tasks[run.task_id], now)

    def claim_chosen_planned(self, ids: Sequence[int], now: datetime) -> Sequence[PlannedRun]:
        chosen = [r for r in self._runs.free() if r.state == "planned" and r.id in ids and self.may_be_pushed(r, now)]
        chosen = [r for r in chosen if self._has_turn(r, now)]
        return [self._planned(run, now) for run in self._runs.claim(sorted(chosen, key=lambda r: (r.due_at, r.id)))]

    def mark_pushed(self, runs: Sequence[tuple[int, str]], now: datetime) -> None:
        for id_, job in runs:
            self._runs.change(id_, state="pushed", pushed_at=now, reason="", job_id=job)

    def try_planned_later(self, failed: Sequence[tuple[int, str, datetime]]) -> None:
        for id_, error, after in failed:
            self._runs.change(id_, due_at=after, reason=error[:500])

    def claim_waiting(self, limit: int, now: datetime | None = None) -> Sequence[WaitingTask]:
        rows = self._next("waiting", [t for t in self._tasks.free() if t.waiting], limit)
        return [
            WaitingTask(
                t.id, tuple(sorted(t.waiting)), t.queue, t.function, t.every_ms, t.box_ms, t.grace_ms,
                is_closed=not (t.enabled and t.owner_active) or t.paused_by is not None
                or is_covered(t, self._pauses, now or NOW),
                apart=apart(t, self._tasks.all(), now or NOW),
            )
            for t in self._tasks.claim(rows)
        ]  # fmt: skip

    def claim_unknown(self, now: datetime, limit: int) -> Sequence[DueTask]:
        waiting = [
            t for t in self._tasks.free()
            if waits_for_worker(t, self._pauses) and is_only_unknown(t, None, now)
            and is_unknown_for_long(t, self._pauses[t.pause_id or 0], self._pauses, now)
        ]  # fmt: skip
        return [due_task(t, now) for t in self._tasks.claim(sorted(waiting, key=lambda t: t.next_run or now)[:limit])]

    def note_expired(self, task_ids: Sequence[int], words: str, now: datetime) -> None:
        """The doubles keep no events of jobs."""

    def wait_again(self, occurrences: Sequence[tuple[int, datetime, Reason]]) -> None:
        for id_, due, reason in occurrences:
            row = self._tasks[id_]
            if row.next_run is None or row.next_run >= due:
                waiting = tuple(w for w in row.waiting if w != due)
                self._tasks.change(id_, waiting=waiting, next_run=due, waits_again=due, wait_reason=str(reason))

    def settle(self, settled: Sequence[Settled], now: datetime) -> None:
        for s in settled:
            task = self._tasks[s.task_id]
            waiting = tuple(sorted(due for due in task.waiting if due != s.occurrence))
            self._tasks.change(s.task_id, waiting=waiting)
            if self._runs.is_recorded(s.task_id, s.occurrence):
                continue
            if s.outcome is Outcome.LOST:
                failures = self._tasks[s.task_id].failures + 1
                self._tasks.change(s.task_id, last_outcome=s.outcome, last_ended_at=now, failures=failures)
            self._runs.add(
                RunRow(
                    task_id=s.task_id,
                    kind=RunKind.SCHEDULED,
                    state="ended",
                    occurrence=s.occurrence,
                    due_at=None,
                    outcome=s.outcome,
                    reason=s.reason,
                    ended_at=now,
                    created_at=now,
                    checked_at=now,
                    checked_last_run=task.last_run,
                    every_ms=task.every_ms,
                    tolerance_ms=task.tolerance_ms,
                )
            )

    def claim_pushed(self, limit: int, now: datetime) -> Sequence[PlannedRun]:
        pushed = [run for run in self._runs.free() if run.state == "pushed" and self._tasks.exists(run.task_id)]
        pushed = [run for run in pushed if self.may_be_pushed(run, now)]
        claimed = self._runs.claim(self._next("pushed", pushed, limit))
        return [
            replace(self._planned(run, now), is_young=bool(run.due_at and run.due_at > now - YOUNG)) for run in claimed
        ]

    def lose_planned(self, run_ids: Sequence[int], reason: str, now: datetime) -> None:
        for id_ in run_ids:
            self._end(self._runs[id_], Outcome.LOST, reason, now)

    def end_pauses(self, now: datetime, limit: int) -> int:
        over = [task for task in self._tasks.free() if task.paused_until is not None and task.paused_until <= now]
        ended = sorted(over, key=lambda t: t.paused_until or now)[:limit]
        for task in ended:
            next_run = due_when_resumed(task, now)
            resumed_at = now if task.enabled and task.owner_active else task.resumed_at
            self._tasks.change(
                task.id, paused_by=None, paused_reason="", paused_until=None, next_run=next_run, resumed_at=resumed_at
            )
        return len(ended)

    def clamp(self, now: datetime, here: Uptime, stepped: bool) -> None:
        for task in self._tasks.free():
            hold, latest = self._held_for(task), now + self._reach(task)
            interval = task.kind is Kind.INTERVAL and not task.during
            if (
                is_after(task.last_run, now)
                or (stepped and task.run_token is not None)
                or is_after(task.last_occurrence, now + SECOND)
                or is_after(task.running_until, now + hold)
                or is_after(task.push_after, now + (timing.span(0) if stepped else LONGEST_DELAY))
                or (interval and is_after(task.next_run, latest + SECOND) and self._was_pushed(task, now))
            ):
                self._bring_back(task, now, here)

    def _was_pushed(self, task: TaskRow, now: datetime) -> bool:
        return bool(
            task.last_occurrence or task.waiting or task.created_at > now + SECOND or any(self._scheduled(task.id))
        )

    def _scheduled(self, task_id: int) -> Iterator[RunRow]:
        return (run for run in self._runs.all() if run.task_id == task_id and run.kind is RunKind.SCHEDULED)

    def _reach(self, task: TaskRow) -> timedelta:
        """How far ahead an interval task may be due."""
        usual = timing.span(max(task.every_ms, task.pace_ms or 0))
        if not is_asked(task) or task.next_run is None:
            return usual
        own = (
            run for run in self._runs.all() if run.id == task.last_run_id or (run.token and run.token == task.run_token)
        )
        starts = [start for start in (task.last_run, *(run.started_at for run in own)) if start]
        asked = [task.next_run - max(starts)] if starts else []
        return max(usual, min([timing.span(longest_again(task) + task.box_ms), *asked]))

    def _bring_back(self, task: TaskRow, now: datetime, here: Uptime) -> None:
        since = held_since(self._runs.free(), task, here)
        until = now + self._held_for(task) - (since or timedelta(0))
        next_run = task.next_run
        is_interval = task.kind is Kind.INTERVAL and not task.during
        if is_interval and self._was_pushed(task, now) and is_after(next_run, now + self._reach(task)):
            next_run = now + timing.span(task.pace_ms or task.every_ms)
        self._tasks.change(
            task.id, last_run=earlier(task.last_run, now),
            last_occurrence=earlier(task.last_occurrence, now), push_after=None, next_run=next_run,
            running_until=until if since is not None else earlier(task.running_until, until),
        )  # fmt: skip

    def clamp_runs(self, now: datetime) -> None:
        for run in self._runs.free():
            created = min(run.created_at, now)
            if run.state == "running" and is_after(run.started_at, now + SECOND) and run.started_at and run.until:
                until = now + max(run.until - run.started_at, timedelta(0))
                self._runs.change(run.id, started_at=now, until=until, created_at=created)
            elif run.state == "planned" and (
                run.created_at > now + SECOND
                or (
                    run.kind is RunKind.MANUAL
                    and is_after(run.due_at, now + timing.span(60_000 if run.reason not in WAITS else 3_660_000))
                )
            ):
                self._runs.change(run.id, due_at=now, created_at=created)

    def _held_for(self, task: TaskRow) -> timedelta:
        """B + g as it was at the start of the run that holds the task; of the task as it is now, if there is none."""
        return held_for(self._runs.free(), task) or timing.span(task.box_ms + task.grace_ms)

    def end_overdue(self, now: datetime, limit: int, here: Uptime = NOWHERE) -> list[UUID | None]:
        """Returns the tokens of the runs that it ended."""
        overdue = [r for r in self._runs.free() if r.state == "running" and is_overdue(r, now, here)]
        overdue = sorted(overdue, key=lambda r: r.until or now)[:limit]
        ended = [run for run in overdue if self._tasks.is_free(run.task_id)]
        for run in ended:
            self._end(run, Outcome.LOST, lost_by(run.until or now), now)
            if self._tasks.exists(run.task_id) and self._tasks[run.task_id].run_token == run.token:
                task = self._tasks[run.task_id]
                self._tasks.change(
                    run.task_id, run_token=None, running_until=None, last_run_id=run.id, last_outcome=Outcome.LOST,
                    last_ended_at=now, failures=task.failures + 1, alone_until=alone_after_loss(task, now),
                )  # fmt: skip
        return [run.token for run in ended]

    def _end(self, run: RunRow, outcome: Outcome, reason: str, now: datetime) -> None:
        self._runs.change(run.id, state="ended", outcome=outcome, reason=reason, ended_at=now)

    def _planned(self, run: RunRow, now: datetime) -> PlannedRun:
        task = self._tasks[run.task_id]
        in_turn = apart(task, self._tasks.all(), now)
        return PlannedRun(run.id, task.id, task.queue, task.function, task.box_ms, task.grace_ms, apart=in_turn)

    def _next(self, what: str, rows: list[R], limit: int) -> list[R]:
        """The rows behind those of the last call, and from the start again when they end."""
        found = [row for row in rows if row.id > self._swept.get(what, 0)][:limit]
        self._swept[what] = found[-1].id if len(found) == limit else 0
        self._has_more = len(found) == limit
        return found

    def has_more(self) -> bool:
        return self._has_more


class MemoryQueue:
    """Jobs in memory. `down` makes every call fail; a poisoned queue refuses its jobs."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobSpec] = {}
        self.down = False
        self._statuses: dict[str, str] = {}
        self._lists: dict[str, list[str]] = {}
        self._poisoned: set[str] = set()
        self._astray: set[str] = set()
        self._forgotten: set[str] = set()
        self.stopped: list[RunAtWork] = []
        self._refusals: dict[str, Refusal] = {}

    def ten_seconds_later(self) -> None:
        """What was found in no queue has been so for ten seconds."""
        self._forgotten |= self._astray

    def waiting(self, queue: str = "polling") -> list[str]:
        """The ids that a worker would take, the next one first."""
        return [id_ for id_ in self._lists.get(queue, ()) if id_ in self.jobs]

    def pop(self, queue: str = "polling") -> str | None:
        """The next id of the list, whether its job is there or not; the job itself stays as it is."""
        ids = self._lists.get(queue)
        return ids.pop(0) if ids else None

    def take(self, queue: str = "polling") -> str | None:
        """The id that a worker takes, and has from now on; ids whose job is gone are passed over."""
        while (id_ := self.pop(queue)) is not None:
            if id_ in self.jobs:
                self._statuses[id_] = "started"
                return id_
        return None

    def bring_forward(self, job_id: str, queue: str = "polling") -> None:
        self._lists[queue].remove(job_id)
        self._lists[queue].insert(0, job_id)

    def poison(self, queue: str) -> None:
        self._poisoned.add(queue)

    def cure(self, queue: str) -> None:
        self._poisoned.discard(queue)

    def set_status(self, job_id: str, status: str) -> None:
        """As RQ would: queued, started, finished, failed, ..."""
        self._statuses[job_id] = status

    def lose(self) -> None:
        """FLUSHALL."""
        self.jobs.clear()
        self._lists.clear()

    def push(self, specs: Sequence[JobSpec]) -> Sequence[Receipt]:
        self._answers()
        return [self._push(spec) for spec in specs]

    def lengths(self, names: Sequence[str]) -> Mapping[str, int]:
        self._answers()
        return {name: len(self._lists.get(name, [])) for name in names}

    def states(self, job_ids: Sequence[str]) -> Sequence[JobState]:
        self._answers()
        return [self._state(job_id) for job_id in job_ids]

    def refusals(self, job_ids: Sequence[str]) -> Sequence[Refusal]:
        self._answers()
        return [self._refusals.get(job_id, Refusal()) for job_id in job_ids]

    def refuse(self, job_id: str, reason: str) -> None:
        """As a worker does without settings."""
        self._refusals[job_id] = Refusal(self._refusals.get(job_id, Refusal()).times + 1, reason)

    def forget(self, job_ids: Collection[str], queues: Collection[str] = ()) -> None:
        self._answers()
        for job_id in job_ids:
            self.jobs.pop(job_id, None)

    def stop(self, runs: Sequence[RunAtWork]) -> None:
        if runs:
            self._answers()
            self.stopped += runs

    def _push(self, spec: JobSpec) -> Receipt:
        if spec.job_id in self.jobs:
            return Receipt(held=True)
        if spec.queue in self._poisoned:
            return Receipt(error=f"the queue {spec.queue} is poisoned")
        self.jobs[spec.job_id] = spec
        self._astray.discard(spec.job_id)
        self._forgotten.discard(spec.job_id)
        self._statuses[spec.job_id] = "queued"
        self._lists.setdefault(spec.queue, []).append(spec.job_id)
        return Receipt(stored=True)

    def _state(self, job_id: str) -> JobState:
        if job_id not in self.jobs:
            return JobState.MISSING
        if self._statuses[job_id] == "started":
            return JobState.TAKEN
        queue = self._lists.get(self.jobs[job_id].queue, ())
        if self._statuses[job_id] == "queued" and job_id not in queue:
            if job_id in self._forgotten:
                return JobState.MISSING
            self._astray.add(job_id)
        waits = self._statuses[job_id] in {"created", "queued", "deferred", "scheduled"}
        return JobState.WAITING if waits else JobState.DEAD

    def _answers(self) -> None:
        if self.down:
            raise QueueUnavailable("the double is down")


def due_task(task: TaskRow, now: datetime) -> DueTask:
    return DueTask(
        task.id, task.next_run or now, task.queue, task.function, task.every_ms, task.box_ms, task.grace_ms,
        task.push_errors, task.kind, task.expression, task.zone, task.starts_at, task.ends_at, task.catch_up,
        is_busy(task, now), task.tolerance_ms, pace_ms=task.pace_ms, during=task.during, resumed_at=task.resumed_at,
        waiting=len([due for due in task.waiting if due != task.next_run]), owner_type=task.owner_type, owner_id=task.owner_id,
        priority=task.priority,
    )  # fmt: skip


def reach(task: TaskRow) -> timedelta:
    """How far ahead an interval task may be due."""
    usual = timing.span(max(task.every_ms, task.pace_ms or 0))
    if not is_asked(task) or task.next_run is None:
        return usual
    most = timing.span(longest_again(task) + task.box_ms)
    return max(usual, most if task.last_run is None else min(task.next_run - task.last_run, most))


def may_be_pushed(run: RunRow, task: TaskRow, pauses: Mapping[int, Pause], now: datetime) -> bool:
    """Whether no pause, and no run at work, keeps the planned run from its job."""
    if run.kind is not RunKind.PIECE and is_after(task.running_until, now):
        return False
    if any(pause.scope == "all" and pause.in_force(now) for pause in pauses.values()):
        return False
    is_withheld = task.pause_id is not None and not waits_for_worker(task, pauses)
    is_paused = task.paused_by is not None or is_withheld or is_covered(task, pauses, now)
    return run.kind is RunKind.MANUAL or not is_paused


def is_of(name: str, queue: str | None, without: Collection[str]) -> bool:
    return name not in without if queue is None else name == queue


def is_runnable(task: TaskRow) -> bool:
    return task.enabled and task.owner_active and task.paused_by is None and task.pause_id is None


def is_only_unknown(task: TaskRow, pauses: Mapping[int, Pause] | None, now: datetime) -> bool:
    """Whether the due task waits for nothing but a worker that knows its function. Without pauses, theirs do not matter."""
    if task.next_run is None or task.next_run > now or not (task.enabled and task.owner_active):
        return False
    is_free = task.paused_by is None and not is_after(task.push_after, now)
    return is_free and (pauses is None or not is_covered(task, pauses, now))


def is_due(task: TaskRow, now: datetime, look_ahead: int) -> bool:
    ahead = timing.horizon(look_ahead, task.tolerance_ms) if task.kind is Kind.INTERVAL else 0
    return (
        is_runnable(task)
        and task.next_run is not None
        and task.next_run <= now + timing.span(ahead)
        and (task.push_after is None or task.push_after <= now)
        and not (task.wait_reason == Reason.STILL_RUNNING and is_after(task.running_until, now))
        and not (task.kind is Kind.ONCE and is_busy(task, now))
    )


def is_busy(task: TaskRow, now: datetime) -> bool:
    return task.overlap == "skip" and (bool(task.waiting) or is_after(task.running_until, now))


def lost_by(until: datetime) -> str:
    return f"no end was recorded by {until:%H:%M:%S} UTC, when its box and grace were over"


def held_for(runs: Iterable[RunRow], task: TaskRow) -> timedelta | None:
    """How long the hold of the run that has the task's token was made for."""
    if task.run_token is None:
        return None
    holders = (run for run in runs if run.token == task.run_token and run.state == "running")
    return next((run.until - run.started_at for run in holders if run.until and run.started_at), None)


def held_since(runs: Iterable[RunRow], task: TaskRow, here: Uptime) -> timedelta | None:
    """How long ago that run began, by the uptime of its host; None: it began on another."""
    if task.run_token is None:
        return None
    holders = (run for run in runs if run.token == task.run_token and run.state == "running")
    return next((uptime_since(run.boot, run.uptime_us, here) for run in holders), None)


def uptime_since(boot: str | None, uptime_us: int | None, here: Uptime) -> timedelta | None:
    if boot is None or boot != here[0] or uptime_us is None or here[1] is None or uptime_us > here[1]:
        return None
    return timedelta(microseconds=here[1] - uptime_us)


def alone_after_loss(task: TaskRow, now: datetime) -> datetime | None:
    if task.function != GROUPED:
        return task.alone_until
    return now + GUILTY_FOR if is_after(task.alone_until, now) else timing.LATEST


def is_overdue(run: RunRow, now: datetime, here: Uptime) -> bool:
    since = uptime_since(run.boot, run.uptime_us, here)
    if since is None or run.started_at is None or run.until is None:
        return run.until is not None and run.until < now - SECOND
    return since > run.until - run.started_at + SECOND


def is_after(instant: datetime | None, limit: datetime) -> bool:
    return instant is not None and instant > limit


def earlier(instant: datetime | None, limit: datetime) -> datetime | None:
    return None if instant is None else min(instant, limit)
