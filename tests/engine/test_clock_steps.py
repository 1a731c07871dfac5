"""The database's clock is set, again and again, by up to a year back and ten years forward, while everything runs.

The history owns the clock: its `now` is passed into the real statements, and true time, which nobody sets, as the
uptime of its hosts. True time judges.
"""

import random
from datetime import timedelta
from itertools import pairwise
from uuid import UUID

import pytest

from tests.doubles import NOW
from tests.doubles import SECOND as ONE
from tests.simulation.actors import People, Ticker
from tests.simulation.judge import Judge
from tests.simulation.memory import MemoryTables
from tests.simulation.postgres import PostgresTables
from tests.simulation.record import Activity, History
from tests.simulation.workers import Worker
from tests.simulation.world import SECOND, YEAR, World
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.model import Outcome

D = 5.0  # seconds between two ticks
INTERVALS = (5.0, 10.0, 20.0, 31.0)
HOUR = 3600
Q = 1.0  # seconds: the queue's delay here is at most 0.3


@pytest.fixture
def tables(database_url, redis):
    tables = PostgresTables(database_url, redis)
    yield tables
    tables.close()


class Strobe:
    """Two tickers, four workers that are busy for up to the whole box, and somebody who sets the clock.

    All on one host; or mixed on two; or the workers on one (the third) and each ticker on another.
    """

    def __init__(self, tables, steps, seed=1, hosts=1):
        self.world = World(tables, random.Random(seed), History(), hosts=hosts)
        self.people = People(self.world)
        for number, every in enumerate(INTERVALS):
            self.people.register(every, explicit=number % 2 == 1)
        self.workers = [Worker(self.world, self.people, longest=0.6, host=2 if hosts == 3 else n) for n in range(4)]
        self.world.on_push = self.wake
        for number in range(2):
            self.world.after(0.01 + number * D / 3, Ticker(self.world, number, D).beat)
        for _ in range(steps):
            self.step()
        self.world.freeze(2 * max(INTERVALS) + 2 * D)
        self.world.history.ended = self.world.t

    def wake(self):
        for worker in self.workers:
            self.world.after(self.world.random.uniform(0.001, 0.3), worker.wake)

    def step(self):
        draw = self.world.random
        self.world.freeze(
            draw.choice([*(draw.uniform(0.1, 5) for _ in range(3)), draw.uniform(5, 30), draw.uniform(30, 60)])
        )
        back = draw.random() < 0.5
        most = YEAR if back else 10 * YEAR
        size = draw.choice([draw.uniform(0.5, 60) * SECOND, draw.uniform(60, 86_400) * SECOND, draw.uniform(0, most)])
        self.world.set_clock(round(-size if back else size))

    def violations(self):
        judge = Judge(self.world, self.people, D)
        return [*self.world.history.complaints, *judge.s1(), *judge.s2(), *judge.s3(), *judge.s4(), *self.starved()]

    def starved(self):
        """Returns where a task did not start for I + 2 D in true time. The wait may begin again with each step of the clock."""
        steps = [t for t, _ in self.world.history.steps]
        for spec in self.people.tasks.values():
            starts = [run.started for run in runs_of(self, spec.id)]
            for one, two in pairwise(sorted({0, *starts, *steps, self.world.history.ended})):
                if (two - one) / SECOND > spec.every + 2 * D + Q:
                    yield f"task {spec.id} did not start for {(two - one) / SECOND:.1f} s at {one / SECOND:.1f} s"

    def was_exercised(self):
        """Returns whether holds lasted across steps in both directions."""
        runs = [run for run in self.world.history.activities if run.ended is not None]
        across = [by > 0 for t, by in self.world.history.steps for run in runs if run.started < t < run.ended]
        return {True, False} <= set(across)


def runs_of(strobe, task_id) -> list[Activity]:
    return [run for run in strobe.world.history.activities if run.job.task_id == task_id]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_clock_that_is_set_a_hundred_times_breaks_no_spacing_no_hold_and_starves_no_task(environ, tables):
    strobe = Strobe(tables, 100)
    assert strobe.violations() == []
    assert strobe.was_exercised()


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_the_same_on_one_host_and_on_several(hosts):
    strobes = [Strobe(MemoryTables(), 200, seed, hosts) for seed in range(3)]
    for strobe in strobes:
        assert strobe.violations() == []
        assert strobe.was_exercised()
    assert any(strobe.world.counts["drop: clock"] for strobe in strobes)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_the_same_a_thousand_times(hosts, environ, tables):
    strobe = Strobe(tables, 1_000, 2, hosts)
    assert strobe.violations() == []
    assert strobe.was_exercised()


# ---------------------------------------------------------------------------------- each rule in its smallest case


class Bench:
    """One task of 10 s (T 2.5 s, B 5 s, g 1 s), one ticker, one worker; `at` is the database's clock."""

    def __init__(self, tables, every=10):
        self.tables, self.store = tables, tables.another_store()
        self.at, self.true = NOW, 0.0
        self.store.uptime = lambda _=None: self.uptime()
        self.task = tables.register(self.at, "it", every=every)
        self.tick()

    def uptime(self):
        return "boot", round(self.true * SECOND) + SECOND

    def passes(self, seconds):
        self.at, self.true = self.at + timedelta(seconds=seconds), self.true + seconds

    def row(self):
        return self.tables.task_rows()[0]

    def is_set(self, seconds):
        self.at += timedelta(seconds=seconds)

    def tick(self):
        report = tick(self.store, self.tables.queue, self.at)
        self.tables.heartbeat(str(UUID(int=1)), self.at, self.at)
        return report

    def start(self, number=1):
        """Takes the next job; the token of its run, or the reason of its drop."""
        token, job = str(UUID(int=number)), self.tables.take()
        if job is None:
            return "no job"
        refusal = self.tables.start(self.at, job, token, self.uptime()).refusal
        if refusal:
            self.tables.end_job(job.id)
        return refusal or token

    def goes_on_for(self, seconds, period=5):
        """Ticks and starts; whether a run started."""
        answers = []
        for number in range(seconds // period):
            self.passes(period)
            self.tick()
            answers.append(self.start(100 + number))
        return any("-" in answer for answer in answers)


@pytest.fixture
def bench(environ, tables):
    return Bench(tables)


@pytest.mark.slow
@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_a_run_is_not_overlapped_when_the_clock_is_set(by, bench):
    bench.start(1)
    bench.is_set(by)
    bench.tables.run_now(bench.at, bench.task)
    bench.passes(5)
    assert bench.tick().planned.enqueued == 0
    bench.passes(1)
    assert bench.tick().planned.enqueued == 1
    assert bench.start(2) == str(UUID(int=2))


@pytest.mark.slow
def test_a_ticker_that_sees_the_clock_being_set_forward_brings_the_hold_of_a_living_run_along(bench):
    bench.start(1)
    bench.is_set(HOUR)
    bench.passes(1)
    bench.tick()
    assert bench.row().running_until == bench.at + 5 * ONE


@pytest.mark.slow
def test_a_run_that_a_ticker_elsewhere_took_for_lost_still_holds_its_task_on_its_own_host(bench):
    """That ticker does not know the host's uptime. For it, the clock that was set forward ends the hold."""
    bench.start(1)
    bench.store.uptime = lambda _=None: ("elsewhere", 5)
    bench.is_set(HOUR)
    bench.passes(1)
    bench.tables.run_now(bench.at, bench.task)
    assert bench.tick().swept.overdue == 1
    assert bench.start(2) == "still_running"
    bench.passes(5)
    assert bench.tick().planned.enqueued == 1
    assert bench.start(3) == str(UUID(int=3))


@pytest.mark.slow
def test_a_run_that_lives_is_not_taken_for_lost_when_the_clock_is_set_forward(bench):
    bench.start(1)
    bench.is_set(HOUR)
    bench.passes(7)
    assert bench.tick().swept.overdue == 0
    bench.passes(0.001)
    assert bench.tick().swept.overdue == 1


@pytest.mark.slow
def test_a_job_from_before_the_clock_was_set_back_starves_nobody_when_it_starts_behind_the_clamp(bench):
    bench.is_set(-HOUR)
    bench.tick()
    bench.passes(1)
    token = bench.start(1)
    bench.tables.finish(bench.at, bench.task, token, Outcome.SUCCEEDED)
    assert bench.goes_on_for(60)


@pytest.mark.slow
def test_a_time_that_a_run_asked_for_while_the_clock_was_far_ahead_starves_nobody(bench):
    token = bench.start(1)
    bench.is_set(10_000 * HOUR)
    bench.passes(1)
    bench.tables.again(bench.at, bench.task, token, 1)
    bench.is_set(-5_000 * HOUR)
    bench.tables.finish(bench.at, bench.task, token, Outcome.SUCCEEDED)
    assert bench.goes_on_for(60)


@pytest.mark.slow
def test_a_manual_run_is_pushed_though_the_clock_was_set_back(bench):
    bench.tables.run_now(bench.at, bench.task)
    bench.is_set(-HOUR)
    assert bench.tick().planned.enqueued == 1


@pytest.mark.slow
def test_a_run_whose_worker_died_gets_its_end_though_the_clock_was_set_back(bench):
    bench.start(1)
    bench.is_set(-HOUR)
    ended = []
    for _ in range(5):
        bench.passes(5)
        ended.append(bench.tick().swept.overdue)
    assert sum(ended) == 1


@pytest.mark.slow
def test_a_back_off_does_not_wait_for_a_clock_that_was_set_back(bench):
    bench.passes(10)
    with bench.store.batch() as rows:
        rows.try_later([(bench.task, "full", bench.at + 30 * ONE)])
    bench.is_set(-5)
    bench.passes(5)
    assert bench.tick().enqueued == 1


def test_an_answer_that_comes_late_is_no_step_of_the_clock(monkeypatch):
    """A server that was frozen for eight seconds between the question and its answer."""
    uptimes = iter([1.0, 1.0, 2.0, 10.0, 11.0, 11.0])
    answers = iter([NOW, NOW + 9 * ONE, NOW + 10 * ONE])
    store = PostgresStore("postgresql:///never-asked")
    monkeypatch.setattr(store, "uptime", lambda _now=None: ("this", round(next(uptimes) * 1_000_000)))
    monkeypatch.setattr(store, "now", lambda: next(answers))
    assert [store._clock_was_set(None) for _ in range(3)] == [False, False, False]
    assert next(uptimes, None) is None
