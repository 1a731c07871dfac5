"""What a ticker measures of the demand and the durations, and stores."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

import ticker
from tests.factories import a_run
from ticker.daemon import needs
from ticker.daemon.minutes import counted
from ticker.settings import Settings

MINUTE = timedelta(minutes=1)
EARLIER = """UPDATE ticker.minutes SET at = at - interval '3 minutes',
    demand = demand || jsonb_build_object('at', clock_timestamp() - interval '3 minutes') WHERE outcome = ''"""


@pytest.fixture
def measure(db, store):
    """Counts the minutes of the last hour, and measures. Returns the needs by queue."""

    def measured(settings=None):
        db.execute(
            "DELETE FROM ticker.minutes; UPDATE ticker.installation SET counted_until = NULL, counted_twice_until = NULL"
        )
        [*counted(store)]
        assert needs.measure(store, settings or Settings())
        rows = db.execute("SELECT queue, needed, demand FROM ticker.minutes WHERE demand IS NOT NULL").fetchall()
        return {queue: (round(demand["average"], 2), needed, demand["functions"]) for queue, needed, demand in rows}

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
    """Two runs of up to 31 s in each minute may need more than one worker."""
    for name in ("first", "second"):
        ticker.register(db, "poll", name=name, every="1m")
    average, enough, functions = measure()["polling"]
    assert (average, enough) == (0, None)
    assert functions == {"poll": {"starts_per_minute": 2, "concurrency": 1, "mean_ms": None, "p95_ms": None}}


@pytest.mark.slow
def test_an_unknown_duration_that_needs_at_most_one_worker_counts_as_its_box(db, measure):
    """60 runs of 20 s in each minute need 28.6 workers. Another one of at most 31 s needs 0.7, or nothing in 14 days."""
    ran(db, ticker.register(db, "poll", every="1m"), took=20.0)
    for number in range(2, 61):
        ticker.register(db, "poll", name=f"poll {number}", every="1m")
    ticker.register(db, "report", every="14d", box="30s")
    average, enough, functions = measure()["polling"]
    assert (average, enough) == (pytest.approx(20, abs=0.1), 29)
    assert functions["report"]["mean_ms"] is None
    ticker.register(db, "new", every="1m")
    average, enough, _ = measure()["polling"]
    assert (average, enough) == (pytest.approx(20, abs=0.1), 30)


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
def test_of_tasks_with_other_schedules_what_has_started_counts(db, measure):
    cron = ticker.register(db, "report", cron="0 6 * * *")
    assert measure()["polling"][2]["report"]["starts_per_minute"] == 0
    ran(db, cron, 6)
    assert measure()["polling"][2]["report"]["starts_per_minute"] == pytest.approx(0.1, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "most"), [({"concurrency": 3}, 3), ({"rate": "6/1m"}, 3), ({"concurrency": 100}, 29)]
)
def test_a_limit_holds_work_back(limit, most, db, measure):
    """One task of each minute that takes 20 s, 60 times, is busy for 20 workers."""
    ticker.limit(db, "api", **limit)
    ran(db, ticker.register(db, "call", every="1m", limits=["api"]), took=20.0)
    for number in range(2, 61):
        ticker.register(db, "call", name=f"call {number}", every="1m", limits=["api"])
    assert measure()["polling"][1] == most


@pytest.mark.slow
def test_what_waits_of_other_work_is_demand(db, measure):
    """600 runs of 7 s that were pushed should start within ten minutes: seven workers are busy, so ten are enough."""
    task = ticker.register(db, "report", cron="0 6 * * *")
    ran(db, task, took=7.0)
    assert measure()["polling"][1] == 1
    db.execute(
        "INSERT INTO ticker.runs (task_id, function, queue, kind, state, due_at) SELECT %s, 'report', 'polling', 'manual', 'pushed',"
        " clock_timestamp() FROM generate_series(1, 600)", [task.id]
    )  # fmt: skip
    assert measure()["polling"][1] == pytest.approx(10.1, abs=1)


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
    tenth = store.execute("demand", now=None, weight=10.0, tick_ms=30_000)
    sampled = needs.needs(needs.demanded(tenth, store.execute("measured")), [], 60.0)["polling"]
    assert last["weight"] == 1 and 2000 < sum(row["tasks"] for row in tenth) < 12_000
    assert sampled.average == pytest.approx(sum(row["tasks"] for row in tenth) / 6000 * whole, rel=0.01)


@pytest.mark.slow
def test_the_need_is_measured_again_after_two_minutes_and_noted_in_its_minute(db, store, measure):
    ran(db, ticker.register(db, "poll", every="1m"))
    assert measure()["polling"][1] == 1
    assert db.execute("SELECT queue, needed, samples FROM ticker.minutes WHERE outcome = ''").fetchall() == [
        ("polling", 1, 0)
    ]
    assert not needs.measure(store, Settings())
    db.execute(EARLIER)
    assert needs.measure(store, Settings())
    assert db.execute("SELECT count(*), count(demand) FROM ticker.minutes WHERE outcome = ''").fetchone() == (2, 1)


@pytest.mark.slow
def test_the_need_of_a_queue_that_no_task_uses_any_more_is_forgotten(db, measure, store):
    ran(db, ticker.register(db, "poll", every="1m"))
    measure()
    db.execute("UPDATE ticker.tasks SET queue = 'other'")
    db.execute(EARLIER)
    needs.measure(store, Settings())
    assert db.execute("SELECT queue FROM ticker.minutes WHERE demand IS NOT NULL").fetchall() == [("other",)]


@pytest.mark.slow
def test_what_is_due_at_once_starts_within_two_ticks(db, measure):
    """200 runs of a second keep a third of a worker busy. With a tick of a minute, they may take two minutes."""
    task = ticker.register(db, "poll", every="10m")
    ran(db, task)
    db.execute(
        "INSERT INTO ticker.tasks (name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue, next_run)"
        " SELECT 'task ' || n, 'poll', 'interval', 600000, 5000, 30000, 1000, 'polling', clock_timestamp() FROM generate_series(2, 200) n"
    )
    assert measure()["polling"][:2] == (pytest.approx(0.34, abs=0.01), 4)
    assert measure(replace(Settings(), tick_ms=60_000))["polling"][1] == 2


@pytest.mark.slow
def test_a_run_that_outlasts_two_ticks_needs_one_worker_when_it_is_due(db, measure):
    ran(db, ticker.register(db, "report", every="1d", box="2h"), took=3600.0)
    db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp()")
    assert measure()["polling"][1] == 1


@pytest.mark.parametrize(
    ("counts", "p50", "p95"), [([4], 0.025, 0.0475), ([0, 0, 100], 0.15, 0.195), ([90, 0, 0, 10], 0.0278, 0.3)]
)
def test_a_quantile_lies_in_its_bucket(counts, p50, p95):
    assert (needs.quantile(counts, 0.5), needs.quantile(counts, 0.95)) == pytest.approx((p50, p95), rel=0.01)


@pytest.mark.slow
def test_the_largest_functions_are_stored(db, measure, monkeypatch):
    monkeypatch.setattr(needs, "SHOWN", 2)
    for name, every in (("a", "3m"), ("b", "1m"), ("c", "2m")):
        ran(db, ticker.register(db, name, every=every))
    assert json.loads(json.dumps([*measure()["polling"][2]])) == ["b", "c"]
