"""Spread tasks: each has its own phase in its interval, and keeps it."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import mean
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ticker
from tests.sentences import sentence
from ticker.cli import main
from ticker.db.store import PostgresStore
from ticker.engine import timing
from ticker.engine.tick import TickOptions, tick
from ticker.model import DueTask, Kind
from ticker.read import forecast
from ticker.schedules import interval as phases
from ticker.schedules import kinds
from ticker.tasks import definition

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MS = phases.MILLISECOND
TICK = 30_000


def starts(
    every: int,
    phase: int | None,
    offset: int,
    count: int = 20,
    away: range = range(0),
    tick: int = TICK,
    beat: int = -1,
) -> list[datetime]:
    """When a task starts whose ticks come at that offset, but not while they are away; jobs that come too early are dropped.

    `tick` is the milliseconds between two ticks, `beat` what the passes know of it.
    """
    found: list[datetime] = []
    tolerance = timing.tolerance_by_default(every)
    due, at = (
        BEGIN
        if phase is None
        else phases.EPOCH + (BEGIN - phases.EPOCH) // (every * MS) * every * MS + (every + phase) * MS,
        BEGIN,
    )
    at += offset * MS
    while len(found) < count:
        if due <= at and (at - BEGIN) // SECOND not in away:
            if not found or at >= found[-1] + (every - tolerance) * MS:
                found.append(at)
            task = DueTask(1, due, "polling", "poll", every, 0, 0, tolerance_ms=tolerance, phase_ms=phase)
            due = kinds.next_run(task, at, tick if beat < 0 else beat)
        at += tick * MS
    return found


@pytest.mark.slow
@given(
    st.one_of(st.integers(1000, 7_200_000), st.integers(1, 7200).map(lambda s: s * 1000)),
    st.one_of(st.integers(1000, 60_000), st.sampled_from([1000, 10_000, 30_000, 60_000, 300_000])),
    st.floats(0, 0.999),
    st.floats(0, 0.999),
    st.booleans(),
)
@example(45_000, 30_000, 0.2, 0.0, True)
@example(75_000, 30_000, 0.2, 0.0, True)
@example(100_000, 30_000, 0.9, 0.5, True)
@example(310_000, 30_000, 0.5, 0.3, True)
@example(60_000, 30_000, 0.4, 0.9, False)
@example(300_000, 30_000, 0.7, 0.1, False)
@settings(max_examples=300)
def test_a_spread_task_runs_at_least_as_often_as_one_that_is_not(every, tick, place, offset, is_rhythm_known):
    """Over 100 intervals, whatever the interval and the tick, and whether the passes know their rhythm or not."""
    phase, offset = int(place * every), int(offset * tick)
    beat = tick if is_rhythm_known else 0
    spread, plain = (starts(every, of, offset, 100, tick=tick, beat=beat) for of in (phase, None))
    assert spread[-1] - spread[0] <= plain[-1] - plain[0]


@pytest.mark.parametrize("every", [30_000, 60_000, 300_000, 3_600_000])
def test_whatever_its_phase_and_the_ticks_a_task_runs_once_per_interval(every):
    draw = random.Random(1)
    for _ in range(100):
        found = starts(every, draw.randrange(every), draw.randrange(TICK))
        gaps = [(b - a) / MS for a, b in pairwise(found[1:])]
        assert set(gaps) == {every}


@pytest.mark.parametrize(
    ("every", "tick"), [(45_000, 30_000), (310_000, 30_000), (62_000, 30_000), (3_610_000, 30_000)]
)
def test_what_is_said_of_an_interval_that_is_no_multiple_of_the_tick_is_true_of_a_spread_task(every, tick):
    found = starts(every, 7_000, 0, 200, tick=tick)
    task = SimpleNamespace(
        kind=Kind.INTERVAL,
        every_ms=every,
        tolerance_ms=timing.tolerance_by_default(every),
        spread=True,
        box_ms=0,
        stretched_ms=None,
    )
    longer = -(-every // tick) * tick if definition.warnings(task, tick) else every
    assert mean((b - a) / MS for a, b in pairwise(found)) == pytest.approx(longer, rel=0.001)


@pytest.mark.slow
def test_an_outage_leaves_no_herd_behind():
    """A thousand tasks of five minutes, all of them due when the tickers are back; a tick's share of them is 100."""
    draw = random.Random(2)
    per_tick: Counter[datetime] = Counter()
    for _ in range(1000):
        found = starts(300_000, draw.randrange(300_000), 7_000, count=8, away=range(400, 2000))
        back = next(n for n, at in enumerate(found) if at - BEGIN >= 2000 * SECOND)
        assert all(b - a == 300 * SECOND for a, b in pairwise(found[back + 1 :]))
        per_tick.update(found[back + 1 :])
    assert max(per_tick.values()) < 150


@pytest.mark.slow
def test_a_registered_task_waits_for_its_phase_and_keeps_it(environ, db, store, queue):
    task = ticker.register(db, "poll", owner="mail:5", every="5m", spread=True)
    assert task.spread and task.phase_ms is not None and 0 <= task.phase_ms < 300_000
    assert task.next_run is not None and is_in_phase(task)
    assert task.next_run - store.now() <= 300 * SECOND
    tick(store, queue, task.next_run + 5 * SECOND, TickOptions(beat=TICK))
    assert ticker.get(db, task).next_run == task.next_run + 300 * SECOND


@pytest.mark.slow
def test_a_tick_that_finds_a_task_late_puts_off_the_next_run_and_does_not_lose_it(environ, db, store, queue):
    task = ticker.register(db, "poll", owner="mail:5", every="5m", spread=True)
    tick(store, queue, task.next_run + 20 * SECOND, TickOptions(beat=TICK))
    assert ticker.get(db, task).next_run == task.next_run + 320 * SECOND


def is_in_phase(task: ticker.Task) -> bool:
    return (task.next_run - phases.EPOCH) // MS % task.every_ms == task.phase_ms


@pytest.mark.slow
def test_a_task_that_is_registered_again_gets_the_same_phase(environ, db):
    before = ticker.register(db, "poll", owner="mail:5", every="5m", spread=True)
    ticker.unregister(db, before.id)
    after = ticker.register(db, "poll", owner="mail:5", every="5m", spread=True)
    assert after.id != before.id and after.phase_ms == before.phase_ms


def test_by_default_a_task_has_no_phase_and_runs_at_the_next_tick(environ, db, store):
    task = ticker.register(db, "poll", every="5m")
    assert task.phase_ms is None and task.next_run <= store.now()


@pytest.mark.slow
def test_existing_tasks_get_their_phases_and_a_plan_changes_nothing(environ, db, store):
    for number in range(40):
        ticker.register(db, "poll", owner=f"mail:{number}", every="20m")
    ticker.register(db, "poll", owner="feeds:1", every="20m")
    plan = CliRunner().invoke(main, ["spread", "--owner-type", "mail", "--plan"])
    assert sentence("cli.spread_plan", tasks="40 interval", placed=0, now="40 now").begins(plan.output)
    assert not any(task.spread for task in ticker.list_tasks(db))
    done = CliRunner().invoke(main, ["spread", "--owner-type", "mail"])
    assert done.exit_code == 0 and sentence("cli.spread_done", number=40).within(done.output)
    tasks = ticker.list_tasks(db, owner_type="mail")
    assert all(is_in_phase(task) and task.next_run > store.now() - SECOND for task in tasks)
    assert len({task.next_run for task in tasks}) == 40
    assert not ticker.list_tasks(db, owner_type="feeds")[0].spread
    again = CliRunner().invoke(main, ["spread", "--owner-type", "mail", "--json"])
    assert '"changed": 0' in again.output and '"placed": 40' in again.output


def test_a_ticker_that_starts_leaves_a_task_that_waits_for_its_phase_as_it_is(environ, db, store):
    """After an outage, it may be due nearly two intervals ahead, in phase. That is no sign of a clock that was set back."""
    task, now = ticker.register(db, "poll", owner="mail:5", every="5m", spread=True), store.now()
    db.execute(
        "UPDATE ticker.tasks SET next_run = %s, last_run = %s, last_occurrence = %s, push_after = %s WHERE id = %s",
        (now + 590 * SECOND, now, now, now + timedelta(days=1), task.id),
    )
    db.commit()
    PostgresStore(environ["DATABASE_URL"]).clamp(None, 1000)
    after = ticker.get(db, task)
    assert after.push_after is None and after.next_run == now + 590 * SECOND


def test_a_phase_further_ahead_than_two_intervals_is_a_sign_that_the_clock_was_set_back(environ, db, store):
    task, now = ticker.register(db, "poll", owner="mail:5", every="5m", spread=True), store.now()
    db.execute(
        "UPDATE ticker.tasks SET next_run = %s, last_occurrence = %s WHERE id = %s", (now + 700 * SECOND, now, task.id)
    )
    db.commit()
    store.clamp(None, 1000)
    assert ticker.get(db, task).next_run <= store.now() + 300 * SECOND


@pytest.mark.parametrize(
    ("away", "said"),
    [
        (20, sentence("why.place_was_earlier", span="20 s")),
        (300, sentence("why.waits_for_its_place", every="5 min")),
        (0, None),
    ],
)
def test_why_reports_a_phase_that_is_passed_over(away, said, environ, db, store):
    task = ticker.register(db, "poll", owner="mail:5", every="5m", spread=True)
    due = task.next_run + away * SECOND
    db.execute("UPDATE ticker.tasks SET next_run = %s, last_run = %s WHERE id = %s",
               (due, task.next_run - 280 * SECOND, task.id))  # fmt: skip
    told = list(forecast.schedule(ticker.get(db, task), store.now(), ticks=True))
    assert said.within(told) if said else len(told) == 1, told


@pytest.mark.parametrize("away", [20, 300])
@pytest.mark.parametrize("columns", ["last_run = NULL", "ends_at = next_run"])
def test_why_reports_no_phase_of_a_task_that_has_not_run_or_is_due_at_its_end(columns, away, environ, db, store):
    task = ticker.register(db, "poll", owner="mail:5", every="5m", spread=True)
    db.execute("UPDATE ticker.tasks SET next_run = %s, last_run = %s WHERE id = %s",
               (task.next_run + away * SECOND, task.next_run - 280 * SECOND, task.id))  # fmt: skip
    db.execute(f"UPDATE ticker.tasks SET {columns} WHERE id = %s", (task.id,))
    told = list(forecast.schedule(ticker.get(db, task), store.now(), ticks=True))
    assert len(told) == 1, told
