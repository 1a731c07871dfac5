"""The double and the real servers, side by side: the same operations, and after each the same rows.

The statements are the truth. Whatever a simulation over the double finds rests on this.
"""

import random
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID, uuid5

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.doubles import INSTALLATION, NOW, NOWHERE, RunRow, TaskRow, Uptime, job_id, planned_id
from tests.simulation.memory import MemoryTables
from tests.simulation.postgres import PostgresTables
from tests.simulation.verdict import Job, Tables
from ticker.db import sql
from ticker.engine.follow_up import Followed
from ticker.engine.tick import Report, TickOptions, tick
from ticker.errors import BadInput
from ticker.model import Outcome, Reason
from ticker.schedules import hours

NAMESPACE = UUID(int=7)
INTERVALS = st.sampled_from([1, 4, 10, 60, 600, 6_000])  # seconds
SPANS = st.sampled_from([0.001, 0.5, 1, 3.5, 5, 30, 61, 300, 3_600])
STEPS = st.sampled_from([0.5, 2, 45, 600, 3_600, 86_400 * 365])
WHICH = st.integers(0, 30)
SCOPES = st.sampled_from([("all", ""), ("group", "mail"), ("function", "poll"), ("queue", "polling")])
ENDS = st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.DROPPED])


class Twins(RuleBasedStateMachine):
    """Two worlds under one clock. Ids differ between them; `theirs` has the real one of each of the double's."""

    real: ClassVar[Any]  # makes empty PostgresTables; set by the test, as is what it saw
    seen: ClassVar[set[str | None]]

    def __init__(self) -> None:
        super().__init__()
        self.memory: Tables = MemoryTables()
        self.postgres: Tables = type(self).real()
        self.stores = [(self.memory.another_store(), self.postgres.another_store()) for _ in range(2)]
        self.now = NOW
        self.set_by = timedelta(0)
        for host, pair in enumerate(self.stores):
            for store in pair:
                store.uptime = lambda _=None, host=host: self.uptime(host)
        self.names: dict[str, int] = {}
        self.tasks: dict[int, int] = {}
        self.plans: dict[int, int] = {}
        self.pauses: dict[int, int] = {}
        self.started: list[tuple[Job, str]] = []
        self.tokens = 0
        self.poison()

    def teardown(self) -> None:
        self.postgres.close()  # type: ignore[attr-defined]

    def poison(self) -> None:
        """A queue that takes nothing."""
        self.memory.queue.poison("bad")  # type: ignore[attr-defined]
        self.postgres.spoil("bad")  # type: ignore[attr-defined]

    def both(self, operation: Any) -> tuple[Any, Any]:
        """The operation on both; where the one refuses it, so must the other."""
        self.now += timedelta(microseconds=1)
        answers = []
        for tables in (self.memory, self.postgres):
            try:
                answers.append(operation(tables))
            except BadInput as error:
                answers.append(str(error))
        return answers[0], answers[1]

    def uptime(self, host: int) -> Uptime:
        """Of two hosts; the third has none."""
        since = (self.now - self.set_by - NOW) // timedelta(microseconds=1)
        return NOWHERE if host == 2 else (f"boot {host}", since + 5_000_000)

    def task(self, which: int) -> int:
        ids = list(self.names.values())
        return ids[which % len(ids)]

    def ours(self, tables: Tables, task_id: int) -> int:
        return task_id if tables is self.memory else self.tasks[task_id]

    def known(self) -> bool:
        return bool(self.names)

    # ---------------------------------------------------------------------------------------------------- people

    @initialize(every=INTERVALS)
    def two_tasks(self, every: int) -> None:
        self.register("a", every, None, exact=True)
        self.register("b", 10, None, exact=False)

    @rule(
        name=st.sampled_from("abcd"),
        every=INTERVALS,
        wait=st.none() | SPANS,
        exact=st.booleans(),
        times=st.sampled_from([1, 1, 3, 30]),
    )
    def register(self, name: str, every: int, wait: float | None, exact: bool, times: int = 1) -> None:
        """`times` the interval is the upper bound of an elastic one."""
        said: dict[str, Any] = {"tolerance": every / 8, "box": every / 4} if exact else {}
        said["first"] = None if wait is None else self.now + timedelta(seconds=wait)
        self.registered(name, every=f"{every}..{every * times}" if times > 1 else every, **said)

    @rule(name=st.sampled_from("ef"), every=INTERVALS, during=st.sampled_from(["9-17", "22-6 sat,sun"]))
    def register_with_hours(self, name: str, every: int, during: str) -> None:
        if name not in self.names:
            self.registered(name, every=f"{every}..{2 * every}", during=during, zone="Europe/Berlin")

    def registered(self, name: str, **said: Any) -> None:
        ours, theirs = self.both(lambda tables: tables.register(self.now, name, **said))
        assert isinstance(ours, int) == isinstance(theirs, int), (ours, theirs)
        if isinstance(ours, int):
            self.names[name] = ours
            self.tasks[ours] = theirs

    @precondition(known)
    @rule(which=WHICH, change=st.sampled_from([
        {"enabled": False}, {"enabled": True}, {"every": 10}, {"every": 100}, {"every": 1_000}, {"tolerance": 0.1},
        {"every": "10..40"}, {"every": "10..600"}, {"every": "100..200"},
        {"box": 0.2}, {"queue": "bad"}, {"queue": "polling"}, {"function": "unheard_of"}, {"function": "fetch"},
        {"group": "mail"}, {"group": ""},
    ]))  # fmt: skip
    def edit(self, which: int, change: dict[str, Any]) -> None:
        task = self.task(which)
        ours, theirs = self.both(lambda tables: tables.edit(self.now, self.ours(tables, task), **change))
        assert ours == theirs

    @precondition(known)
    @rule(which=WHICH, wait=st.none() | SPANS)
    def pause(self, which: int, wait: float | None) -> None:
        task, until = self.task(which), None if wait is None else self.now + timedelta(seconds=wait)
        self.both(lambda tables: tables.pause(self.now, self.ours(tables, task), until))

    @precondition(known)
    @rule(which=WHICH)
    def resume(self, which: int) -> None:
        task = self.task(which)
        self.both(lambda tables: tables.resume(self.now, self.ours(tables, task)))

    @rule(scope=SCOPES, wait=st.none() | SPANS)
    def pause_all(self, scope: tuple[str, str], wait: float | None) -> None:
        until = None if wait is None else self.now + timedelta(seconds=wait)
        ours, theirs = self.both(lambda tables: tables.pause_all(self.now, *scope, until))
        self.pauses[ours] = theirs

    @rule(scope=SCOPES)
    def resume_all(self, scope: tuple[str, str]) -> None:
        self.both(lambda tables: tables.resume_all(self.now, *scope))

    @precondition(lambda self: len(self.names) > 1)
    @rule(which=WHICH)
    def delete(self, which: int) -> None:
        task = self.task(which)
        self.both(lambda tables: tables.delete(self.now, self.ours(tables, task)))
        self.names = {name: id_ for name, id_ in self.names.items() if id_ != task}

    @precondition(known)
    @rule(which=WHICH, within=st.sampled_from([None, None, 5, 60]))
    def run_now(self, which: int, within: float | None = None) -> None:
        task = self.task(which)
        ours, theirs = self.both(lambda tables: tables.run_now(self.now, self.ours(tables, task), within))
        assert isinstance(ours, int) == isinstance(theirs, int), (ours, theirs)
        if isinstance(ours, int):
            self.plans[ours] = theirs

    # --------------------------------------------------------------------------------------------------- tickers

    @rule(which=st.integers(0, 1), batch=st.sampled_from([1, 2, 1000]), look_ahead=st.sampled_from([0, 1000]),
          beats=st.booleans(), late=st.sampled_from([0, 0, 20, 700]))  # fmt: skip
    def tick(self, which: int, batch: int, look_ahead: int, beats: bool, late: float) -> None:
        """One pass; `late` seconds pass between its reading of the clock and its heartbeat."""
        reports: list[Report] = []
        self.now += timedelta(microseconds=1)
        for store, tables in zip(self.stores[which], (self.memory, self.postgres), strict=True):
            report = tick(
                store, tables.queue, self.now, TickOptions(batch=batch, look_ahead=look_ahead, waiting_jobs=4)
            )
            reports.append(replace(report, followed=Followed()))  # of which the double knows nothing
            if beats:
                tables.heartbeat(str(UUID(int=which)), self.now, self.now + timedelta(seconds=late))
        assert reports[0] == reports[1]
        self.now += timedelta(seconds=late)

    @rule(which=st.integers(0, 1), what=st.sampled_from(["clamp", "wake", "end_overdue"]), limit=st.integers(1, 3))
    def mend(self, which: int, what: str, limit: int) -> None:
        ours, theirs = (getattr(store, what)(self.now, limit) for store in self.stores[which])
        assert ours == theirs

    @rule(span=SPANS, which=st.integers(0, 1), ends=st.none() | ENDS)
    def a_beat(self, span: float, which: int, ends: Outcome | None) -> None:
        """What mostly happens: time passes, a ticker ticks, workers take all that waits, and perhaps end it."""
        self.time_passes(span)
        self.tick(which, 1000, 1000, True, 0)
        for _ in self.memory.queue.waiting():  # type: ignore[attr-defined]
            self.start(0)
            if ends is not None:
                self.finish(len(self.started) - 1, ends)
                self.end_job(len(self.started) - 1, ends is Outcome.FAILED)

    @rule(span=SPANS, which=WHICH, step=STEPS)
    def a_late_start(self, span: float, which: int, step: float) -> None:
        """A worker has a job and is slow; meanwhile time passes, a ticker ticks, and perhaps somebody sets the clock."""
        waiting = self.memory.queue.waiting()  # type: ignore[attr-defined]
        if not waiting:
            return
        job = self.taken(waiting[which % len(waiting)])
        self.time_passes(span)
        if which % 3:
            self.tick(0, 1000, 0, True, 0)
        else:
            self.the_clock_is_set(step, back=True)
        self.begin(job)

    # --------------------------------------------------------------------------------------------------- workers

    @rule(which=WHICH)
    def start(self, which: int) -> None:
        waiting = self.memory.queue.waiting()  # type: ignore[attr-defined]
        if not waiting:
            return
        job = self.taken(waiting[which % len(waiting)])
        self.begin(job)

    @precondition(lambda self: self.started)
    @rule(which=WHICH)
    def start_a_copy(self, which: int) -> None:
        self.begin(self.started[which % len(self.started)][0])

    @precondition(lambda self: self.started)
    @rule(which=WHICH)
    def start_again_after_a_lost_answer(self, which: int) -> None:
        self.begin(*self.started[which % len(self.started)])

    @precondition(lambda self: self.started)
    @rule(which=WHICH, span=SPANS)
    def start_what_no_row_waits_for(self, which: int, span: float) -> None:
        """As a job that outlived the tables for which it was pushed."""
        job = self.started[which % len(self.started)][0]
        if job.occurrence is not None:
            due = job.occurrence + timedelta(seconds=span)
            self.begin(replace(job, id=job_id(job.task_id, due), occurrence=due))

    @precondition(lambda self: self.started)
    @rule(which=WHICH, outcome=ENDS, alone=st.booleans())
    def finish(self, which: int, outcome: Outcome, alone: bool = False) -> None:
        alone = alone and outcome is Outcome.INTERRUPTED
        job, token = self.started[which % len(self.started)]
        ours, theirs = self.both(
            lambda tables: tables.finish(
                self.now, self.translated(tables, job).task_id, token, outcome, "so", alone=alone
            )
        )
        assert ours == theirs

    @precondition(lambda self: self.started)
    @rule(which=WHICH, after=SPANS | st.just(100_000))
    def again(self, which: int, after: float) -> None:
        job, token = self.started[which % len(self.started)]
        ours, theirs = self.both(
            lambda tables: tables.again(self.now, self.translated(tables, job).task_id, token, after)
        )
        assert ours == theirs

    @precondition(lambda self: self.started)
    @rule(which=WHICH, failed=st.booleans())
    def end_job(self, which: int, failed: bool) -> None:
        job, _ = self.started[which % len(self.started)]
        self.both(lambda tables: tables.end_job(self.translated(tables, job).id, failed=failed))

    @precondition(lambda self: self.started)
    @rule(which=WHICH, value=st.integers(0, 5))
    def checkpoint(self, which: int, value: int) -> None:
        job, token = self.started[which % len(self.started)]
        ours, theirs = self.both(
            lambda tables: tables.checkpoint(self.translated(tables, job).task_id, token, {"at": value})
        )
        assert ours == theirs

    @rule(which=WHICH)
    def lose_one(self, which: int) -> None:
        """A worker dies right after the pop."""
        waiting = self.memory.queue.waiting()  # type: ignore[attr-defined]
        if waiting:
            self.brought_forward(waiting[which % len(waiting)])
            self.both(lambda tables: tables.drop_from_list())

    def brought_forward(self, job_id: str) -> None:
        self.memory.bring_forward(job_id)
        self.postgres.bring_forward(self.their_job_id(job_id))

    def taken(self, job_id: str) -> Job:
        self.brought_forward(job_id)
        ours, theirs = self.both(lambda tables: tables.take())
        assert self.translated(self.postgres, ours) == theirs
        return ours

    def begin(self, job: Job, again: str = "") -> None:
        self.tokens += 1
        token = again or str(uuid5(NAMESPACE, str(self.tokens)))
        host = (0, 0, 0, 1, 1, 2)[self.tokens % 6]
        ours, theirs = self.both(
            lambda tables: tables.start(self.now, self.translated(tables, job), token, self.uptime(host))
        )
        assert {**asdict(ours), "run_id": 0} == {**asdict(theirs), "run_id": 0}
        self.started.append((job, token))
        self.seen.add(ours.refusal)

    def translated(self, tables: Tables, job: Job) -> Job:
        if tables is self.memory:
            return job
        run_id = None if job.run_id is None else self.plans[job.run_id]
        return Job(self.their_job_id(job.id), self.tasks[job.task_id], job.occurrence, run_id)

    def their_job_id(self, job_id: str) -> str:
        bare = job_id.removeprefix(f"{INSTALLATION}-")
        if bare.startswith("r"):
            return planned_id(self.plans[int(bare[1:])])
        task, _, occurrence = bare[1:].partition("-")
        return f"{INSTALLATION}-t{self.tasks[int(task)]}-{occurrence}"

    # ----------------------------------------------------------------------------------------------- the elements

    @rule(really=st.sampled_from([False, False, True]))
    def wipe(self, really: bool) -> None:
        if really:
            self.both(lambda tables: tables.wipe())
            self.poison()

    @rule(span=SPANS)
    def time_passes(self, span: float) -> None:
        self.now += timedelta(seconds=span)

    @rule(step=STEPS, back=st.booleans())
    def the_clock_is_set(self, step: float, back: bool) -> None:
        before = self.now
        self.now += timedelta(seconds=-step if back else step)
        self.now = min(max(self.now, NOW - timedelta(days=5_000)), NOW + timedelta(days=5_000))
        self.set_by += self.now - before

    # -------------------------------------------------------------------------------------------------- compared

    @invariant()
    def the_rows_are_the_same(self) -> None:
        tasks = {theirs: ours for ours, theirs in self.tasks.items()}
        plans = {theirs: ours for ours, theirs in self.plans.items()}
        pauses = {theirs: ours for ours, theirs in self.pauses.items()}
        same = {id_: id_ for id_ in (*self.tasks, *self.plans)}
        own = {id_: id_ for id_ in self.pauses}
        ours, theirs = rows(self.memory, same, same, own), rows(self.postgres, tasks, plans, pauses)
        assert ours == theirs, differences(ours, theirs)


def rows(tables: Tables, tasks: dict[int, int], plans: dict[int, int], pauses: dict[int, int]) -> list[dict[str, Any]]:
    """All rows under the double's ids; a run is named by its token, since the order within a statement is free."""
    runs = tables.run_rows()
    tokens = {run.id: run.token for run in runs}
    of_tasks = [
        task_values(row, tasks, tokens) | {"pause_id": row.pause_id and pauses.get(row.pause_id, "unknown")}
        for row in tables.task_rows()
    ]
    return of_tasks + sorted((run_values(run, tasks, plans) for run in runs), key=repr)


def differences(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[Any]:
    """Only what differs, with what names the row."""
    if len(ours) != len(theirs):
        return [row for row in ours if row not in theirs] + ["but", *(row for row in theirs if row not in ours)]
    return [
        (mine["id"], mine.get("task_id"), mine.get("occurrence"), {k: (v, its[k]) for k, v in mine.items() if v != its[k]})
        for mine, its in zip(ours, theirs, strict=True) if mine != its
    ]  # fmt: skip


def task_values(row: TaskRow, tasks: dict[int, int], tokens: dict[int, UUID | None]) -> dict[str, Any]:
    values = asdict(row) | {"id": tasks[row.id], "push_error": bool(row.push_error)}
    return values | {"last_run_id": row.last_run_id and tokens[row.last_run_id]}


def run_values(run: RunRow, tasks: dict[int, int], plans: dict[int, int]) -> dict[str, Any]:
    values = asdict(run) | {"id": 0, "task_id": tasks[run.task_id], "parent_id": run.parent_id and plans[run.parent_id]}
    values |= {"job_id": "", "function": ""}  # which the double does not always write
    refused = run.state == "planned" and run.reason  # each server has its own words
    if run.reason == Reason.SUPERSEDED:  # a trigger may write it, by the database's clock
        values |= dict.fromkeys(
            ("every_ms", "tolerance_ms", "checked_last_run", "checked_at", "created_at", "ended_at")
        )
    return values | {"reason": "refused" if refused else str(run.reason)}


WALK = (
    (12, lambda t, d: t.a_beat(d.choice(SECONDS), d.randrange(2), d.choice([None, *ENDED]))),
    (6, lambda t, d: t.tick(d.randrange(2), d.choice([1, 2, 1000]), 1000, True, d.choice([0, 0, 20]))),
    (9, lambda t, d: (t.time_passes(d.choice(SECONDS)), t.tick(0, 1000, 1000, True, 0),
                      t.a_late_start(d.choice(SECONDS), d.randrange(30), d.choice([600, 3_600])))),
    (3, lambda t, d: (t.run_now(which := d.randrange(9)), t.run_now(which), t.a_beat(0.5, 0, None))),
    (4, lambda t, d: t.time_passes(d.choice(SECONDS))),
    (4, lambda t, d: t.start(d.randrange(30))),
    (3, lambda t, d: t.finish(d.randrange(30), d.choice(ENDED), d.random() < 0.5) if t.started else None),
    (3, lambda t, d: t.finish(len(t.started) - 1, Outcome.NOTHING_TO_DO) if t.started else None),
    (2, lambda t, d: t.again(len(t.started) - 1 - d.randrange(2), d.choice([0.5, 30, 700, 100_000])) if t.started else None),
    (2, lambda t, d: t.run_now(d.randrange(9), d.choice([5, 60]))),
    (1, lambda t, d: t.register_with_hours(d.choice("ef"), 60, d.choice(["9-17", "22-6 sat,sun"]))),
    (2, lambda t, d: t.end_job(d.randrange(30), d.random() < 0.5) if t.started else None),
    (2, lambda t, d: t.start_a_copy(d.randrange(30)) if t.started else None),
    (1, lambda t, d: t.start_again_after_a_lost_answer(d.randrange(30)) if t.started else None),
    (2, lambda t, d: t.start_what_no_row_waits_for(d.randrange(30), d.choice(SECONDS)) if t.started else None),
    (2, lambda t, d: t.edit(d.randrange(9), d.choice([{"every": 10}, {"every": 100}, {"every": "10..40"}, {"every": "4..600"}]))),
    (4, lambda t, d: t.edit(d.randrange(9), d.choice([{"enabled": True}, {"function": "fetch"}, {"queue": "polling"}]))),
    (1, lambda t, d: t.edit(d.randrange(9), d.choice([{"function": "unheard_of"}, {"enabled": False}, {"queue": "bad"}]))),
    (1, lambda t, d: t.register(d.choice("abcd"), d.choice([4, 10, 60]), None, exact=True)),
    (1, lambda t, d: t.run_now(d.randrange(9))),
    (2, lambda t, d: (t.tick(0, 1000, 1000, True, 0), t.pause(d.randrange(9), d.choice([1.0, 60.0])), t.start(0))),
    (2, lambda t, d: (t.tick(0, 1000, 1000, True, 0), t.pause_all(d.choice(ANY_SCOPE), d.choice([None, 5.0])), t.start(0))),
    (2, lambda t, d: t.resume_all(d.choice(ANY_SCOPE))),
    (1, lambda t, d: t.delete(d.randrange(9)) if len(t.names) > 2 else None),
    (1, lambda t, d: t.the_clock_is_set(d.choice([2, 45, 3_600]), back=d.random() < 0.5)),
    (1, lambda t, d: t.wipe(True)),
    (1, lambda t, d: t.lose_one(d.randrange(30))),
)  # fmt: skip
ANY_SCOPE = [("all", ""), ("function", "poll")]
SECONDS = [0.5, 1, 3.5, 5, 30, 61, 700]
ENDED = [outcome for outcome in Outcome if outcome is not Outcome.DROPPED]


def walk(machine: Twins, draw: random.Random, steps: int) -> None:
    """By weights that a search for a smallest case would not choose: mostly what mostly happens."""
    weights, deeds = zip(*WALK, strict=True)
    for name, every in (("a", 4), ("b", 10), ("c", 60)):
        machine.register(name, every, None, exact=name == "a", times=1 if name == "c" else 30)
    for deed in draw.choices(deeds, weights, k=steps):
        deed(machine, draw)
        machine.the_rows_are_the_same()


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
CI = settings(derandomize=True, max_examples=15, stateful_step_count=40, database=None, suppress_health_check=QUIET)


@pytest.fixture(autouse=True)
def equal_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids differ, and with them the share of a task in the interval after its hours begin. Here it is 0."""
    monkeypatch.setattr(hours, "GOLDEN", 0)


@pytest.fixture(autouse=True)
def no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe lets one of the oldest tasks go, at random. Here it is the first."""
    texts: Any = sql._document("ticker")[0]
    monkeypatch.setitem(texts, "probe", texts["probe"].replace("ORDER BY random()", "ORDER BY d.id"))


def twins(database_url: str, redis: Any) -> type[Twins]:
    real = staticmethod(lambda: PostgresTables(database_url, redis))
    return type("Twins", (Twins,), {"real": real, "seen": set()})


@pytest.mark.slow
@pytest.mark.timeout(900)  # hypothesis takes up to 300 s to shrink what it finds
def test_the_double_and_the_real_servers_hold_the_same_rows_after_every_operation(environ, database_url, redis):
    run_state_machine_as_test(twins(database_url, redis), settings=CI)


@pytest.mark.slow
@pytest.mark.timeout(900)  # hypothesis takes up to 300 s to shrink what it finds
def test_they_do_on_walks_that_meet_every_reason_to_drop_a_job(environ, database_url, redis):
    seen = set()
    for seed in (*range(8), 18):  # the last one meets a disabled task's job
        machine = twins(database_url, redis)()
        walk(machine, random.Random(seed), 90)
        machine.teardown()
        seen |= machine.seen
    assert seen == {None, *Reason} - {
        Reason.DONE,
        Reason.MISSED,
        Reason.NO_TIME,
        Reason.NO_ROOM,
        Reason.ADOPTED,
        Reason.STOPPED,
        Reason.NO_SLOT,
    }  # met elsewhere


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_they_do_over_many_more_operations(environ, database_url, redis):
    many = settings(CI, derandomize=False, max_examples=500, stateful_step_count=80)
    run_state_machine_as_test(twins(database_url, redis), settings=many)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(50))
def test_they_do_on_many_walks(seed, environ, database_url, redis):
    machine = twins(database_url, redis)()
    walk(machine, random.Random(seed), 1_000)
    machine.teardown()
