"""How things stand, what a ticker did itself, and what a scrape says while a server is away: on real servers."""

import threading
from datetime import timedelta

import pytest

import ticker
from tests.factories import MINUTE, NINE, SECOND, ticked
from tests.metrics.scraping import grown, scraped
from tests.sentences import sentence
from ticker import clock
from ticker.daemon.tick_job import TickJob
from ticker.db import sql
from ticker.engine.jobs import BATCH_ENTRY, JobSpec
from ticker.engine.tick import Pushed, Report
from ticker.metrics import servers, standing
from ticker.metrics.exposition import Ticks, occurrences
from ticker.metrics.servers import Servers
from ticker.settings import Settings

# ----------------------------------------------------------------------------------------------------- how things stand


def test_tasks_are_counted_by_their_state(environ, db, asked):
    ticked(db)
    ticker.limit(db, "a", concurrency=1)
    for name, change in {
        "late": "next_run = clock_timestamp() - interval '6 m'",
        "no_room": "next_run = clock_timestamp() - interval '6 m'",
        "failing": "failures = 2", "paused": "paused_by = 'ann'", "disabled": "enabled = false",
        "waiting": "waiting = ARRAY[clock_timestamp() - interval '7 s']",
    }.items():  # fmt: skip
        task = ticker.register(db, "poll", name=name, every="1h", limits=["a"] * (name == "no_room"))
        db.execute(f"UPDATE ticker.tasks SET next_run = clock_timestamp() + interval '1 h' WHERE id = {task.id}")
        db.execute(f"UPDATE ticker.tasks SET {change} WHERE id = {task.id}")
    ticker.run_now(db, "late")
    found = scraped(asked)
    assert {name: found[f"ticker_{name}"] for name in (
        "tasks", "tasks_late", "tasks_no_room", "tasks_failing", "tasks_paused", "tasks_inactive", "tasks_waiting",
        "runs_running", "runs_planned")} == {"tasks": 6, "tasks_late": 1, "tasks_no_room": 1, "tasks_failing": 1,
                             "tasks_paused": 1, "tasks_inactive": 1, "tasks_waiting": 1, "runs_running": 0, "runs_planned": 1}  # fmt: skip
    assert 360 <= found["ticker_oldest_due_age_seconds"] < 420
    assert 7 <= found['ticker_queue_oldest_waiting_seconds{queue="polling"}'] < 67


def test_tasks_that_a_full_queue_has_kept_waiting_are_counted_as_they_are_listed(environ, db, asked):
    owner = ("mail", "1")
    for name in ("polling", "reports"):
        ticker.register(db, "poll", name=name, owner=owner, every="1h", queue=name)
    ticked(db, ago=timedelta(0), left={"reports": 1})
    listed = [ticker.list_tasks(db, state="queue_full"), ticker.list_tasks(db, state="queue_full", owner=owner)]
    assert [[(task.name, task.waits_for) for task in tasks] for tasks in listed] == [[("reports", "queue_full")]] * 2
    assert scraped(asked)["ticker_tasks_queue_full"] == 1
    db.execute("""UPDATE ticker.tickers SET last_report = last_report || '{"ended": true}'""")
    assert [*ticker.list_tasks(db, state="queue_full"), *ticker.list_tasks(db, state="queue_full", owner=owner)] == []


def test_a_declared_limit_is_measured_over_all_its_keys(environ, db, asked):
    ticked(db)
    ticker.limit(db, "imap.*", concurrency=3, rate="2/1m", burst=2)
    ticker.limit(db, "unused", concurrency=5)
    for name, key in (("one", "imap.a"), ("two", "imap.b"), ("three", "no.limit"), ("four", "imap.a")):
        ticker.register(db, "poll", name=name, every="1h", limits=[key])
    db.execute(
        "UPDATE ticker.tasks SET next_run = clock_timestamp() - CASE name WHEN 'four' THEN interval '9 s' ELSE '61 m' END"
    )
    db.execute("UPDATE ticker.slots SET until = clock_timestamp() + CASE n WHEN 1 THEN interval '1 m' ELSE '-1 m' END")
    db.execute("UPDATE ticker.limited_keys SET closed_until = clock_timestamp() + interval '1 m' WHERE key <> 'imap.a'")
    found = scraped(asked)
    limits = {name: value for name, value in found.items() if "ticker_limit" in name}
    assert limits == {
        **{f'ticker_limit_{name}{{limit="imap.*"}}': value for name, value in {
            "active_runs": 2, "concurrency": 6, "used_starts": 2, "burst": 4, "waiting_tasks": 2, "closed_keys": 1}.items()},
        **{f'ticker_limit_{name}{{limit="unused"}}': value for name, value in {
            "active_runs": 0, "concurrency": 5, "waiting_tasks": 0, "closed_keys": 0}.items()},
    }  # fmt: skip


def test_of_very_many_limits_the_first_are_measured(environ, db, asked, monkeypatch):
    monkeypatch.setattr(standing, "LIMITS_AT_MOST", 1)
    for key in ("b", "a"):
        ticker.limit(db, key, concurrency=1)
    assert {name for name in scraped(asked) if name.startswith("ticker_limit_concurrency")} == {
        'ticker_limit_concurrency{limit="a"}'
    }


def test_of_an_empty_table_the_numbers_are_zero_and_what_never_was_is_not_there(asked):
    found = scraped(asked)
    assert (found["ticker_tasks"], found["ticker_oldest_due_age_seconds"], found["ticker_tickers_alive"]) == (0, 0, 0)
    assert "ticker_last_tick_timestamp_seconds" not in found


def test_a_ticker_is_alive_for_three_of_its_ticks_or_fifteen_seconds_unless_its_ticks_fail(environ, db, settings):
    for seconds, tick_ms in (1, 1_000), (13, 1_000), (17, 1_000), (80, 30_000), (100, 30_000), (3000, 3_600_000):
        ticked(db, ago=seconds * SECOND, tick_ms=tick_ms)
    assert scraped(Servers(settings))["ticker_tickers_alive"] == 4
    db.execute(
        "UPDATE ticker.tickers SET failure = 'x', failing_since = now() WHERE last_report->>'tick_ms' = '3600000'"
    )
    assert scraped(Servers(settings))["ticker_tickers_alive"] == 3


@pytest.mark.slow
def test_a_queue_that_is_empty_again_has_a_zero_and_does_not_vanish(environ, db, store, queue, redis, asked):
    ticker.register(db, "poll", every="1m")
    TickJob(store, queue, asked._settings, threading.Event())()
    found = scraped(asked)
    assert found['ticker_queue_jobs{queue="polling"}'] == found['ticker_queue_unattended_jobs{queue="polling"}'] == 1
    redis.flushdb()
    db.execute("UPDATE ticker.tasks SET waiting = '{}'")
    found = scraped(asked)
    assert [found[f'ticker_queue_{name}{{queue="polling"}}'] for name in ("jobs", "unattended_jobs", "oldest_waiting_seconds")
            ] == [0, 0, 0]  # fmt: skip


# --------------------------------------------------------------------------------------------- servers that are away


@pytest.mark.slow
def test_a_server_that_is_away_leaves_a_zero_and_nothing_of_what_it_tells(own_servers, caplog):
    postgres, valkey = own_servers
    asked = Servers(Settings(postgres.url, valkey.url), fresh=0.0)
    everything = scraped(asked)
    assert (everything["ticker_database_up"], everything["ticker_redis_up"]) == (1, 1)
    valkey.kill()
    assert grown(everything, scraped(asked)) == {"ticker_redis_up": -1}
    postgres.kill()
    assert scraped(asked) == scraped(asked) == {"ticker_database_up": 0, "ticker_redis_up": 0}
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        "metrics: Redis",
        "metrics: PostgreSQL",
    ]
    postgres.start(), valkey.start()
    assert scraped(asked) == everything


@pytest.mark.slow
def test_a_scrape_does_not_wait_for_a_server_that_hangs(environ, db, asked, monkeypatch):
    monkeypatch.setattr(servers, "PATIENCE", 0.1)
    with db.transaction():
        db.execute("LOCK TABLE ticker.tasks IN ACCESS EXCLUSIVE MODE")
        assert scraped(asked) == {"ticker_database_up": 0}
        assert scraped(asked) == {"ticker_database_up": 0}  # the same question still waits
    monkeypatch.undo()
    scraped(asked)
    assert scraped(asked)["ticker_database_up"] == 1


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_round_that_ends_in_whatever_way_is_over_and_the_next_scrape_asks_again(db, asked, monkeypatch, error):
    def fails(_queue, _names):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(standing, "queues", fails)
        assert scraped(asked) == {"ticker_database_up": 0}
    assert scraped(asked)["ticker_redis_up"] == 1


@pytest.mark.slow
def test_within_five_seconds_nobody_is_asked_twice(environ, db, settings):
    patient = Servers(settings)
    assert scraped(patient)["ticker_tasks"] == 0
    ticker.register(db, "poll", every="1m")
    assert scraped(patient)["ticker_tasks"] == 0
    assert scraped(Servers(settings))["ticker_tasks"] == 1


# -------------------------------------------------------------------------------------------- what a ticker did itself


def test_the_counts_of_ticks_add_up(settings):
    ticks = Ticks(settings)
    ticks.ticked(Report(NINE, due=Pushed(due=3, enqueued=2, errors=1)), 0.2)
    ticks.ticked(Report(NINE + MINUTE, due=Pushed(due=1, held=1)), 0.3)
    ticks.ticked(None, 5.0)
    found = scraped(ticks)
    assert [found[f"ticker_tick_{name}_total"] for name in ("due", "enqueued", "held", "errors", "failures")] == [
        4,
        2,
        1,
        1,
        1,
    ]
    assert found["ticker_tick_last_timestamp_seconds"] == (NINE + MINUTE).timestamp()
    assert [found[f"ticker_tick_duration_seconds_{name}"] for name in ("count", "sum")] == [2, 0.5]


def test_polls_that_elastic_intervals_save_are_counted_and_tasks_outside_their_hours_are_not_due(settings):
    ticks = Ticks(settings)
    for saved in (0, 3, 29):
        ticks.ticked(Report(NINE, due=Pushed(due=2, enqueued=1, outside_hours=1, saved=saved)), 0.2)
    found = scraped(ticks)
    assert (found["ticker_polls_saved_total"], found["ticker_tick_due_total"]) == (32, 3)


@pytest.mark.slow
def test_each_push_tells_how_late_it_was_by_the_databases_clock(play, settings):
    ticks = Ticks(settings)
    play.queue = ticks.queue
    ticker.register(play.db, "poll", every="1m")
    sql.on(play.db, "ticker")(
        "announce", names=["sum"], batches=[10], concurrencies=[1], repeatables=[False], queues=["polling"]
    )
    for name in ("a", "b"):
        ticker.register(play.db, "sum", name=name, every="1m")
    due = min(task.next_run for task in ticker.list_tasks(play.db))
    ticker.run_now(play.db, "poll")  # which has no occurrence
    play.at(play.since_begin(due) + 20)
    play.tick()
    found = scraped(ticks)
    counts = {name: value for name, value in found.items() if name.startswith("ticker_push_delay_seconds_count")}
    assert counts == {
        f'ticker_push_delay_seconds_count{{function="{name}"}}': value for name, value in (("poll", 1), ("sum", 2))
    }
    assert found['ticker_push_delay_seconds_sum{function="poll"}'] == pytest.approx(20, abs=0.5)


def test_a_planned_run_in_a_batch_has_no_delay():
    sent = JobSpec("job", "polling", (1, -5, 2, 1000), 1, 1, "sum x 2", BATCH_ENTRY)
    assert occurrences(sent) == [1000]


def test_the_difference_between_the_clocks_is_the_least_of_what_ticks_saw(settings):
    """A tick reads the database's clock at once, or after a look at a million rows; never before it began."""
    ticks = Ticks(settings)
    for late in (9, 0.1, 30):
        ticks.ticked(Report(clock.python_utc() + timedelta(seconds=3600 + late - 10)), 10.0)
    assert min(ticks._delays._ahead).total_seconds() == pytest.approx(3600.1, abs=0.05)


class Spoilt:
    """An observer with an error."""

    def __init__(self, queue):
        self.queue = queue

    def ticked(self, report, seconds):
        raise RuntimeError("no more room")


@pytest.mark.slow
def test_an_observer_that_fails_harms_no_tick(environ, db, store, queue, settings, caplog):
    ticker.register(db, "poll", every="1m")
    beat = TickJob(store, queue, settings, threading.Event(), Spoilt(queue))
    beat()
    assert (beat.failures, beat.busy, queue.lengths(["polling"])) == (0, False, {"polling": 1})
    assert [record.message for record in caplog.records if record.exc_info] == [sentence("logs.metrics_missed_a_tick")]


def test_a_tick_that_failed_is_observed_as_such(environ, store, queue, settings, monkeypatch):
    ticks = Ticks(settings)
    monkeypatch.setattr("ticker.daemon.tick_job.tick", lambda *_args, **_options: 1 / 0)
    TickJob(store, queue, settings, threading.Event(), ticks)()
    assert scraped(ticks)["ticker_tick_failures_total"] == 1
