"""What a ticker measures of the demand and the durations, and stores."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

import ticker
from tests.factories import a_run, ticked
from ticker.daemon import needs
from ticker.daemon.minutes import closed
from ticker.settings import Settings

MINUTE = timedelta(minutes=1)


@pytest.fixture
def measure(db, store):
    """Closes the minutes of the last hour, and measures. Returns the rows of needs by queue."""

    def measured(settings=None):
        db.execute("DELETE FROM ticker.needs")
        [*closed(store, Settings())]
        assert needs.measure(store, settings or Settings())
        rows = db.execute("SELECT queue, average, enough, functions FROM ticker.needs").fetchall()
        return {queue: (round(average, 2), enough, functions) for queue, average, enough, functions in rows}

    return measured


def ran(db, task, count=1, took=1.0, ago=10 * MINUTE, **fields):
    """So many runs of a task ended so long ago."""
    end = db.execute("SELECT clock_timestamp() - %s", [ago]).fetchone()[0]
    for number in range(count):
        at = end + timedelta(microseconds=number)
        given = {
            "queue": task.queue,
            "occurrence": at - timedelta(seconds=took),
            "started_at": at - timedelta(seconds=took),
        }
        a_run(db, task, **given | {"ended_at": at, "created_at": at} | fields)


@pytest.mark.slow
def test_a_task_whose_durations_are_unknown_has_no_number(db, measure):
    ticker.register(db, "poll", every="1m")
    average, enough, functions = measure()["polling"]
    assert (average, enough) == (0, None)
    assert functions == {"poll": {"starts_per_minute": 1, "concurrency": 1, "mean_ms": None, "p95_ms": None}}


@pytest.mark.slow
def test_the_interval_in_force_counts(db, measure):
    task = ticker.register(db, "poll", every="1m..10m")
    ran(db, task)
    db.execute("UPDATE ticker.tasks SET pace_ms = 300000")
    assert measure()["polling"][2]["poll"]["starts_per_minute"] == 0.2


@pytest.mark.slow
def test_a_task_that_is_due_several_times_in_a_tick_runs_once_in_it(db, measure):
    ran(db, ticker.register(db, "poll", every="1s"), took=1.0)
    average, enough, functions = measure()["polling"]
    assert (average, enough) == (pytest.approx(1.02 / 30, abs=0.005), 1)
    assert functions["poll"]["starts_per_minute"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("why", ["paused_by = 'me'", "enabled = false", "owner_active = false", "next_run = NULL"])
def test_a_task_that_does_not_run_is_no_demand(why, db, measure):
    ran(db, ticker.register(db, "poll", every="1m"))
    db.execute(f"UPDATE ticker.tasks SET {why}")
    assert measure() == {}


@pytest.mark.slow
def test_a_task_that_a_pause_of_many_will_hold_back_is_no_demand(db, measure):
    ran(db, ticker.register(db, "poll", every="1h", group="imports"))
    assert [*measure()] == ["polling"]
    ticker.pause_all(db, group="imports", by="me", reason="why")
    assert measure() == {}


@pytest.mark.slow
def test_tasks_that_waited_for_a_pause_are_expected_within_their_interval(db, measure):
    """120 runs of a second in each hour, and not all at once."""
    ran(db, ticker.register(db, "poll", every="1h"))
    db.execute(
        "INSERT INTO ticker.tasks (name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue, next_run, pause_id)"
        " SELECT 'task ' || n, 'poll', 'interval', 3600000, 5000, 30000, 1000, 'polling', clock_timestamp() - interval '5 min', 1"
        " FROM generate_series(2, 120) n"
    )
    ticker.pause_all(db, by="me", reason="why")
    ticker.resume_all(db)
    _, enough, functions = measure()["polling"]
    assert (enough, functions["poll"]["starts_per_minute"]) == (1, 2)


@pytest.mark.slow
def test_retries_and_manual_runs_count_as_measured(db, measure):
    task = ticker.register(db, "poll", every="10m")
    ran(db, task, took=30.0)
    assert measure()["polling"][0] == pytest.approx(30.02 / 600, abs=0.01)
    ran(db, task, 60, took=30.0, kind="retry")
    assert measure()["polling"][0] == pytest.approx(30.02 / 600 + 30.02 / 60, abs=0.02)


@pytest.mark.slow
def test_of_tasks_with_limits_and_other_schedules_what_has_started_counts(db, measure):
    ticker.limit(db, "api", concurrency=1)
    limited = ticker.register(db, "call", every="1m", limits=["api"])
    cron = ticker.register(db, "report", cron="0 6 * * *")
    assert {name: one["starts_per_minute"] for name, one in measure()["polling"][2].items()} == {"call": 0, "report": 0}
    ran(db, limited, 30)
    ran(db, cron, 6)
    found = {name: one["starts_per_minute"] for name, one in measure()["polling"][2].items()}
    assert found == {"call": pytest.approx(0.5, abs=0.02), "report": pytest.approx(0.1, abs=0.01)}


@pytest.mark.slow
def test_a_function_has_the_durations_of_its_queue_or_else_those_of_others(db, measure):
    fast = ticker.register(db, "poll", every="1m", queue="fast")
    slow = ticker.register(db, "poll", name="slow", every="1m", queue="slow")
    ticker.register(db, "poll", name="new", every="1m", queue="new")
    ran(db, fast, took=0.1)
    ran(db, slow, took=9.1)
    found = {queue: functions["poll"]["mean_ms"] for queue, (_, _, functions) in measure().items()}
    assert found == {"fast": 100, "slow": 9100, "new": 4600}


@pytest.mark.slow
def test_durations_of_the_last_eight_days_stand_in_for_those_of_the_last_hour(db, measure):
    ticker.register(db, "poll", every="1d")
    db.execute(
        "INSERT INTO ticker.hours VALUES (date_trunc('hour', clock_timestamp()) - interval '3 days', 'poll', 'polling', 'succeeded',"
        " '', 'scheduled', 2, 2, 0, 3000, '{2}', '{0,0,0,0,0,2}')"
    )
    assert measure()["polling"][2]["poll"]["mean_ms"] == 1500


@pytest.mark.slow
def test_the_slots_of_an_announced_function_count(db, measure):
    db.execute(
        "INSERT INTO ticker.functions (name, batch, concurrency, announced_at) VALUES ('poll', 50, 20, clock_timestamp())"
    )
    ran(db, ticker.register(db, "poll", every="1m"), took=20.0)
    average, _, functions = measure()["polling"]
    assert functions["poll"]["concurrency"] == 20 and average == pytest.approx(20 / 60 / 20, abs=0.005)


@pytest.mark.slow
def test_a_sample_of_a_large_table_stands_for_it(db, store, measure, monkeypatch):
    task = ticker.register(db, "poll", every="1h")
    ran(db, task, took=1.0)
    db.execute(
        "INSERT INTO ticker.tasks (name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue, next_run)"
        " SELECT 'task ' || n, 'poll', 'interval', 3600000, 5000, 30000, 1000, 'polling', clock_timestamp() + n * interval '0.6 s'"
        " FROM generate_series(2, 6000) n"
    )
    whole, _, _ = measure()["polling"]
    [last] = store.execute("last_needs", now=None, every_ms=0)
    tenth = store.execute("demand", now=None, percent=10, tick_ms=30_000)
    queues = needs.functions(tenth, store.execute("measured"), 10.0)
    sampled = sum(one.work for one in queues["polling"].values())
    assert last["weight"] == 1 and 200 < len(tenth) < 1200
    assert 10 * sampled == pytest.approx(len(tenth) * 10 / 6000 * whole, rel=0.01)


@pytest.mark.slow
def test_the_need_is_measured_again_after_two_minutes_and_noted_in_its_minute(db, store, measure):
    ran(db, ticker.register(db, "poll", every="1m"))
    assert measure()["polling"][1] == 1
    assert db.execute("SELECT queue, needed, samples FROM ticker.queue_minutes").fetchall() == [("polling", 1, 0)]
    assert not needs.measure(store, Settings())
    db.execute("UPDATE ticker.needs SET at = at - interval '3 minutes'")
    assert needs.measure(store, Settings())


@pytest.mark.slow
def test_the_need_of_a_queue_that_no_task_uses_any_more_is_forgotten(db, measure, store):
    ran(db, ticker.register(db, "poll", every="1m"))
    measure()
    db.execute("UPDATE ticker.tasks SET queue = 'other'")
    db.execute("UPDATE ticker.needs SET at = at - interval '3 minutes'")
    needs.measure(store, Settings())
    assert db.execute("SELECT queue FROM ticker.needs").fetchall() == [("other",)]


@pytest.mark.slow
def test_the_tick_decides_what_is_late(db, measure):
    """With a tick of a minute, 100 runs of a second may take two minutes."""
    task = ticker.register(db, "poll", every="10m")
    ran(db, task)
    db.execute(
        "INSERT INTO ticker.tasks (name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue, next_run)"
        " SELECT 'task ' || n, 'poll', 'interval', 600000, 5000, 30000, 1000, 'polling', clock_timestamp() FROM generate_series(2, 200) n"
    )
    ticked(db)
    assert measure()["polling"][1] == 4
    assert measure(replace(Settings(), tick_ms=60_000))["polling"][1] == 2


@pytest.mark.slow
def test_the_largest_functions_are_stored(db, measure, monkeypatch):
    monkeypatch.setattr(needs, "SHOWN", 2)
    for name, every in (("a", "3m"), ("b", "1m"), ("c", "2m")):
        ran(db, ticker.register(db, name, every=every))
    assert json.loads(json.dumps([*measure()["polling"][2]])) == ["b", "c"]
