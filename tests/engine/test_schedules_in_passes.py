"""Tasks by cron, calendar event and single time, from tick to end, on a frozen clock: bounds, numbers of runs, outages."""

from datetime import UTC, datetime, timedelta

import pytest
from freezegun import freeze_time
from rq import SimpleWorker

import ticker
from tests.doubles import NOW as START
from tests.doubles import MemoryQueue, MemoryStore, TaskRow
from ticker import clock
from ticker.engine.tick import TickOptions, tick
from ticker.model import Kind, Outcome, Reason

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
def frozen(environ, monkeypatch):
    """Python's clock stands at NOW, and every statement is handed it; nothing is killed."""
    monkeypatch.setenv("TICKER_HARD_LIMIT", "off")
    with freeze_time(NOW) as frozen, clock.use():
        yield frozen


class World:
    """Time passes, ticks are made, and a worker runs what waits."""

    def __init__(self, frozen, db, store, queue, redis):
        self.frozen, self.db, self.store, self.queue, self.redis = frozen, db, store, queue, redis

    def tick(self):
        return tick(self.store, self.queue, datetime.now(UTC))

    def work(self):
        SimpleWorker(["polling"], connection=self.redis).work(burst=True, logging_level="ERROR")

    def starts(self, until, step=30 * SECOND):
        """When runs started, with a tick and a worker at each step."""
        while datetime.now(UTC) <= until:
            self.tick()
            self.work()
            self.frozen.tick(step)
        runs = ticker.list_runs(self.db)
        return sorted(run.started_at for run in runs if run.started_at)


@pytest.fixture
def world(frozen, db, store, queue, redis):
    return World(frozen, db, store, queue, redis)


@pytest.fixture
def poll(function):
    return function("poll")(lambda: None)


@pytest.mark.slow
def test_a_task_by_cron_starts_at_the_tick_behind_each_of_its_times(world, poll, db):
    ticker.register(db, "poll", cron="*/10 * * * *")
    assert world.starts(NOW + 31 * MINUTE, step=10 * MINUTE) == [NOW + n * 10 * MINUTE for n in (1, 2, 3)]


def test_times_are_not_pushed_ahead_of_their_time(world, db, store, queue):
    ticker.register(db, "poll", cron="*/10 * * * *")
    world.frozen.tick(10 * MINUTE - 0.5 * SECOND)
    assert tick(store, queue, datetime.now(UTC), TickOptions(look_ahead=1000)).enqueued == 0


@pytest.mark.slow
def test_a_late_start_does_not_cost_the_next_one(world, poll, db):
    """There is no tolerance: two times of a task by cron may be close together, and the first one late."""
    ticker.register(db, "poll", cron="*/10 * * * *")
    world.frozen.tick(10 * MINUTE)
    world.tick()
    world.frozen.tick(9 * MINUTE + 50 * SECOND)
    world.work()
    assert world.starts(NOW + 21 * MINUTE)[-2:] == [NOW + 19 * MINUTE + 50 * SECOND, NOW + 20 * MINUTE + 20 * SECOND]


@pytest.mark.slow
def test_a_single_time_runs_once_and_is_kept_as_done(world, poll, db):
    task = ticker.register(db, "poll", at=NOW + 5 * MINUTE)
    assert world.starts(NOW + HOUR, step=5 * MINUTE) == [NOW + 5 * MINUTE]
    kept = ticker.get(db, task)
    assert (kept.next_run, kept.last_outcome) == (None, Outcome.SUCCEEDED)


@pytest.mark.slow
@pytest.mark.parametrize("fails", [True, False])
def test_a_single_time_that_nobody_keeps_is_deleted_with_its_success_and_kept_after_a_failure(
    fails, world, function, db
):
    function("poll")(lambda: 1 / (not fails))
    ticker.register(db, "poll", at=NOW + MINUTE, remove=True)
    world.starts(NOW + 3 * MINUTE)
    assert [task.last_outcome for task in ticker.list_tasks(db)] == ([Outcome.FAILED] if fails else [])
    assert [run.outcome for run in ticker.list_runs(db)] == [Outcome.FAILED if fails else Outcome.SUCCEEDED]


@pytest.mark.slow
@pytest.mark.parametrize("said", [{"every": "1m"}, {"cron": "* * * * *"}])
def test_a_task_stops_after_its_number_of_runs(said, world, poll, db):
    task = ticker.register(db, "poll", max_runs=2, **said)
    assert len(world.starts(NOW + 5 * MINUTE, step=MINUTE)) == 2
    done = ticker.get(db, task)
    assert (done.next_run, done.started) == (None, 2)
    ticker.edit(db, task, max_runs=3)
    assert len(world.starts(NOW + 9 * MINUTE, step=MINUTE)) == 3


@pytest.mark.slow
def test_jobs_that_wait_when_the_last_run_has_started_are_dropped_as_done(world, poll, db):
    ticker.register(db, "poll", every="1m", max_runs=1)
    for _ in range(3):
        world.tick()
        world.frozen.tick(MINUTE)
    world.work()
    assert sorted(str(run.reason) for run in ticker.list_runs(db)) == ["", Reason.DONE]  # two jobs waited


@pytest.mark.slow
@pytest.mark.parametrize("said", [{"every": "1m"}, {"cron": "* * * * *"}])
def test_a_task_has_no_time_behind_its_end(said, world, poll, db):
    task = ticker.register(db, "poll", ends=NOW + 150 * SECOND, **said)
    assert max(world.starts(NOW + 4 * MINUTE)) == NOW + 2 * MINUTE
    assert ticker.get(db, task).next_run is None


# ------------------------------------------------------------------------------------------------- missed occurrences


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "catch_up", "starts"),
    [
        ({"cron": "0 * * * *"}, "one", [4 * HOUR + 30 * MINUTE, 5 * HOUR]),
        ({"cron": "0 * * * *"}, "none", [5 * HOUR]),
        ({"every": "1h", "first": NOW + HOUR}, "one", [4 * HOUR + 30 * MINUTE]),
        ({"every": "1h", "first": NOW + HOUR}, "none", []),
        ({"cron": "0 16 * * *"}, "none", [4 * HOUR + 30 * MINUTE]),  # no later one has passed: it is late, not missed
    ],
    ids=str,
)
def test_after_an_outage_there_is_one_late_run_or_none_and_never_a_burst(said, catch_up, starts, world, poll, db):
    ticker.register(db, "poll", catch_up=catch_up, **said)
    world.frozen.tick(4.5 * HOUR)
    assert world.starts(NOW + 5 * HOUR + MINUTE, step=HOUR / 2) == [NOW + after for after in starts]


def test_what_was_missed_is_recorded_and_passed_over(world, poll, db):
    ticker.register(db, "poll", cron="0 * * * *", catch_up="none")
    world.frozen.tick(4.5 * HOUR)
    report = world.tick()
    assert (report.due.due, report.due.enqueued, report.due.missed) == (1, 0, 1)
    [run] = ticker.list_runs(db)
    assert (run.occurrence, run.outcome, run.reason) == (NOW + HOUR, Outcome.DROPPED, Reason.MISSED)
    [task] = ticker.list_tasks(db)
    assert (task.next_run, task.waiting) == (NOW + 5 * HOUR, ())


def test_after_the_clock_was_set_back_a_task_waits_for_its_next_time_by_the_new_clock(world, poll, db):
    cron = ticker.register(db, "poll", cron="0 * * * *")
    first = ticker.register(db, "poll", name="with a first time", cron="0 * * * *", first=NOW + 300 * DAY)
    db.execute("UPDATE ticker.tasks SET created_at = %s", [NOW])  # the column's default is the server's own clock
    world.frozen.tick(HOUR)
    db.execute("INSERT INTO ticker.tickers (id, pid, started_at, last_tick_at) VALUES (gen_random_uuid(), 1, now(), %s)",
               [NOW + HOUR])  # fmt: skip
    world.tick()
    db.execute("UPDATE ticker.tasks SET next_run = next_run + interval '1 year' WHERE id = %s", [cron.id])
    world.frozen.tick(-MINUTE)
    world.tick()
    assert [ticker.get(db, task).next_run for task in (cron, first)] == [NOW + HOUR, NOW + 300 * DAY]
    world.frozen.tick(HOUR)
    assert world.tick().due.due == 1


@pytest.mark.slow
@pytest.mark.parametrize("expression", ["*/10 * * * * *", "* * * * *"])
def test_times_finer_than_the_tick_are_not_taken_for_missed(expression, world, poll, db):
    ticker.register(db, "poll", cron=expression, catch_up="none")
    assert len(world.starts(NOW + 4 * MINUTE)) >= 3


def test_with_a_slow_tick_nothing_is_missed_that_the_tick_itself_makes_late(world, poll, db, store, queue):
    ticker.register(db, "poll", cron="* * * * *", catch_up="none")
    world.frozen.tick(5 * MINUTE)
    report = tick(store, queue, datetime.now(UTC), TickOptions(period=300_000))
    assert (report.due.enqueued, report.due.missed) == (1, 0)


def test_over_the_doubles_a_bad_expression_costs_only_itself():
    rows, jobs = MemoryStore(), MemoryQueue()
    bad = rows.add_task(kind=Kind.CRON, expression="nonsense", every_ms=0, tolerance_ms=0)
    good = rows.add_task(kind=Kind.CRON, expression="0 * * * *", zone="Asia/Kolkata", every_ms=0, tolerance_ms=0)
    report = tick(rows, jobs, START)
    assert (report.due.enqueued, report.due.errors) == (1, 1)
    assert "nonsense" in rows.task(bad).push_error
    expected = TaskRow(
        good, START + HOUR / 2, kind=Kind.CRON, expression="0 * * * *", zone="Asia/Kolkata", every_ms=0, tolerance_ms=0,
        waiting=(START,),
    )  # fmt: skip
    assert rows.task(good) == expected
