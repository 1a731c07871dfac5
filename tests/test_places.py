"""Spread tasks: each has a place of its own in its interval, and keeps it."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import mean

import pytest
from click.testing import CliRunner

import ticker
from ticker.cli import main
from ticker.errors import BadInput
from ticker.schedules import places
from ticker.tick import tick

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TICK = 30_000


def starts(
    every: int, tolerance: int, phase: int, offset: int, count: int = 20, away: range = range(0)
) -> list[datetime]:
    """When a task starts whose ticks come at that offset, but not while they are away; jobs that come too early are dropped."""
    found: list[datetime] = []
    due, at, slack = BEGIN, BEGIN + offset * places.MILLISECOND, places.slack(every, tolerance, TICK)
    while len(found) < count:
        is_away = (at - BEGIN) // SECOND in away
        if due <= at and not is_away:
            if not found or at >= found[-1] + (every - tolerance) * places.MILLISECOND:
                found.append(at)
            due = places.next_after(due, at, every, phase, slack)
        at += TICK * places.MILLISECOND
    return found


@pytest.mark.parametrize(
    ("every", "tolerance"), [(30_000, 5_000), (60_000, 5_000), (300_000, 15_000), (3_600_000, 180_000)]
)
def test_wherever_its_place_and_the_ticks_are_a_task_runs_once_per_interval(every, tolerance):
    draw = random.Random(1)
    for _ in range(100):
        found = starts(every, tolerance, draw.randrange(every), draw.randrange(TICK))
        gaps = [(b - a) / places.MILLISECOND for a, b in pairwise(found[1:])]
        assert set(gaps) == {every}


def test_an_interval_that_is_no_multiple_of_the_tick_is_longer_and_loses_no_job():
    found = starts(45_000, 5_000, 7_000, 0)
    assert all(b - a >= 40 * SECOND for a, b in pairwise(found))
    assert mean((b - a) / SECOND for a, b in pairwise(found)) <= 91


def test_an_outage_leaves_no_herd_behind():
    """A thousand tasks of five minutes, all of them due when the tickers are back; a tick's share of them is 100."""
    draw = random.Random(2)
    per_tick: Counter[datetime] = Counter()
    for _ in range(1000):
        found = starts(300_000, 15_000, draw.randrange(300_000), 7_000, count=8, away=range(400, 2000))
        back = next(n for n, at in enumerate(found) if at - BEGIN >= 2000 * SECOND)
        assert all(b - a == 300 * SECOND for a, b in pairwise(found[back + 1 :]))
        per_tick.update(found[back + 1 :])
    assert max(per_tick.values()) < 150


def test_a_registered_task_waits_for_its_place_and_keeps_it(environ, db, store, queue):
    task = ticker.register(db, "poll", owner="mail:5", every="5m", spread=True)
    assert task.spread and task.phase_ms is not None and 0 <= task.phase_ms < 300_000
    assert task.next_run is not None and is_in_place(task)
    assert task.next_run - store.now() <= 300 * SECOND
    tick(store, queue, task.next_run + 20 * SECOND, beat=TICK)
    assert ticker.get(db, task).next_run == task.next_run + 300 * SECOND


def is_in_place(task: ticker.Task) -> bool:
    return (task.next_run - places.EPOCH) // places.MILLISECOND % task.every_ms == task.phase_ms


def test_a_task_that_is_registered_anew_gets_the_same_place(environ, db):
    before = ticker.register(db, "poll", owner="mail:5", every="5m", spread=True)
    ticker.unregister(db, before.id)
    after = ticker.register(db, "poll", owner="mail:5", every="5m", spread=True)
    assert after.id != before.id and after.phase_ms == before.phase_ms


def test_by_default_a_task_has_no_place_and_runs_at_the_next_tick(environ, db, store):
    task = ticker.register(db, "poll", every="5m")
    assert task.phase_ms is None and task.next_run <= store.now()


def test_a_place_is_for_intervals(environ, db):
    with pytest.raises(BadInput, match="spread: True is for intervals"):
        ticker.register(db, "poll", cron="0 6 * * *", spread=True)


def test_existing_tasks_get_their_places_and_a_plan_changes_nothing(environ, db, store):
    for number in range(40):
        ticker.register(db, "poll", owner=f"mail:{number}", every="20m")
    ticker.register(db, "poll", owner="feeds:1", every="20m")
    plan = CliRunner().invoke(main, ["spread", "--owner-type", "mail", "--plan"])
    assert plan.output.startswith("40 interval tasks, 0 with a place; due within one tick at most: 40 now, ")
    assert not any(task.spread for task in ticker.list_tasks(db))
    done = CliRunner().invoke(main, ["spread", "--owner-type", "mail"])
    assert done.exit_code == 0 and "40 tasks got their places" in done.output
    tasks = ticker.list_tasks(db, owner_type="mail")
    assert all(is_in_place(task) and task.next_run > store.now() - SECOND for task in tasks)
    assert len({task.next_run for task in tasks}) == 40
    assert not ticker.list_tasks(db, owner_type="feeds")[0].spread
    again = CliRunner().invoke(main, ["spread", "--owner-type", "mail", "--json"])
    assert '"changed": 0' in again.output and '"placed": 40' in again.output
