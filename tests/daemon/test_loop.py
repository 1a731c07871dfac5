"""The rhythm: it survives servers that go away, stops fast, and says what it does in one line."""

import logging
import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from redis import Redis

import ticker
from tests.running import Ticking, until
from tests.sentences import sentence
from ticker import clock
from ticker.daemon import loop, tick_job
from ticker.daemon.loop import EveryTick
from ticker.daemon.tick_job import TickJob
from ticker.db import steps
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.engine.passes import Pushed, Report
from ticker.errors import ConfigurationError, DatabaseUnavailable
from ticker.metrics import standing
from ticker.queue import inspect
from ticker.read import health, tasks
from ticker.settings import from_environment

MINUTE = timedelta(minutes=1)
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.slow
def test_one_line_per_tick_and_a_heartbeat(environ, db):
    ticker.register(db, "plain", every="1m")
    with Ticking() as process:
        process.says(r"tick due=1 enqueued=1 errors=0 took=\d+\.\d{3}$")
        process.says(r"tick due=0 enqueued=0 errors=0 took=")
        process.says(
            sentence(
                "logs.unattended", jobs="1 job waits", queue="polling", remedy="ticker worker --tasks ... polling"
            ).pattern
        )
        pid = db.execute("SELECT pid FROM ticker.tickers WHERE last_tick_at > now() - interval '1 minute'").fetchone()
        assert pid == (process.process.pid,)
        assert process.stop() == 0
    assert "ticker stopped" in process.lines[-1]
    assert not any("Traceback" in line for line in process.lines)


def test_the_line_of_a_tick_counts_no_task_outside_its_hours_and_has_what_is_above_zero():
    done = Report(NOW, due=Pushed(due=3, outside_hours=2, enough_jobs=1), left={"polling": 5})
    assert done.in_words(0.0123) == "due=1 enqueued=0 errors=0 enough_jobs=1 left=polling:5 took=0.012"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_it_counts_as_a_ticker_no_more(environ, db, settings, number):
    with Ticking() as process:
        process.says("tick due=0")
        assert [found.pid for found in tasks.tickers(db)] == [process.process.pid]
        assert process.stop(number) == 0
    assert tasks.tickers(db) == []
    stopped = sentence("health.last_ticker_stopped", at=re.compile(r"([0-9-]{10} )?[0-9:]{8}"), remedy="ticker run")
    assert stopped.within(health.look(settings).problems)
    assert steps.run(db, standing.tickers())["ticker_tickers_alive"] == {(): 0}


def test_the_row_of_a_ticker_that_ended_still_tells_that_the_clock_was_set_back(beat, db, store):
    beat()
    beat.deregister()
    db.execute("UPDATE ticker.tickers SET last_tick_at = last_tick_at + interval '1 hour'")
    assert store.clamp(None, 100)
    assert [found.last_report["ended"] for found in tasks.tickers(db, ended=True)] == [True]


@pytest.mark.promise("L4")
def test_it_survives_postgresql_and_redis_being_away_and_goes_on_by_itself(own_servers):
    postgres, valkey = own_servers
    with Ticking() as process:
        heard = process.says("tick due=0")
        valkey.kill()
        with connect(postgres.url) as db, db.transaction():
            task = ticker.register(db, "plain", every="1d")
        heard = process.says(
            sentence("logs.tick_failed_on_redis", setting="REDIS_URL", error=re.compile(".*")).pattern, after=heard
        )
        with connect(postgres.url) as db:
            assert ticker.get(db, task).waiting == ()  # Redis did not take the job, so nothing advanced
        valkey.start()
        heard = process.says("tick due=1 enqueued=1 errors=0", after=heard)
        postgres.kill()
        heard = process.says(sentence("logs.tick_failed_on_database", setting="DATABASE_URL").pattern, after=heard)
        postgres.start()
        process.says("tick due=0", after=heard)
        assert process.stop() == 0
    assert not any("Traceback" in line for line in process.lines)


@pytest.mark.slow
def test_it_stops_although_the_database_hangs(own_servers):
    """A stopped postmaster answers nothing, and a backend that is stopped cannot time out a statement by itself."""
    postgres, _ = own_servers
    with Ticking() as process, connect(postgres.url) as db:
        process.says("tick due=0")
        find = "SELECT pid FROM pg_stat_activity WHERE application_name = 'ticker' AND pid <> pg_backend_pid()"
        [backend] = until(lambda: db.execute(find).fetchone(), "the ticker's backend")
        os.kill(backend, signal.SIGSTOP)
        try:
            began = time.monotonic()
            assert process.stop() == 0
            assert time.monotonic() - began < 6
        finally:
            os.kill(backend, signal.SIGCONT)


@pytest.mark.parametrize(
    ("previous", "now", "expected"),
    [
        (NOW, NOW, NOW + MINUTE),
        (NOW, NOW + 0.4 * MINUTE, NOW + MINUTE),
        (NOW + 0.3 * MINUTE, NOW + 0.3 * MINUTE, NOW + MINUTE),  # an early tick
        (NOW, NOW + MINUTE, NOW + 2 * MINUTE),
        (NOW, NOW + 10.5 * MINUTE, NOW + 11 * MINUTE),
        (NOW, NOW + timedelta(days=366), NOW + timedelta(days=366) + MINUTE),
        (NOW, NOW - timedelta(hours=1), NOW - timedelta(hours=1) + MINUTE),
    ],
)
def test_a_beat_is_never_made_up_for_and_never_far_away(previous, now, expected):
    every_tick = EveryTick(MINUTE)
    assert every_tick.get_next_fire_time(None, NOW) == NOW
    assert every_tick.get_next_fire_time(previous, now) == expected


class Job:
    """Stands for APScheduler's job: remembers when it was told to run."""

    def __init__(self):
        self.told = []

    def modify(self, next_run_time):
        self.told.append(next_run_time)


@pytest.fixture
def beat(store, queue, settings):
    return TickJob(store, queue, replace(settings, tick_ms=30_000), threading.Event())


@pytest.mark.parametrize(
    ("waited", "failures", "busy", "nudged"),
    [(59, 0, False, False), (61, 0, False, True), (61, 0, True, False), (0.9, 1, False, False), (1.1, 1, False, True),
     (29, 20, False, False), (31, 20, False, True)],
)  # fmt: skip
def test_the_watch_nudges_a_beat_that_stopped_and_retries_one_that_failed(beat, waited, failures, busy, nudged):
    beat.began, beat.failures, beat.busy = loop.clock.monotonic() - waited, failures, busy
    job = Job()
    loop.watch(beat, 30, job)
    assert bool(job.told) == nudged


def test_a_failed_tick_is_one_sentence_and_an_error_of_ours_a_traceback(beat, caplog, monkeypatch):
    def unavailable(*_args, **_kwargs):
        raise DatabaseUnavailable("PostgreSQL (DATABASE_URL) does not answer: connection refused")

    monkeypatch.setattr(tick_job, "tick", unavailable)
    with caplog.at_level(logging.INFO, "ticker"):
        beat()
        beat()
        monkeypatch.setattr(tick_job, "tick", lambda *_args, **_kwargs: 1 / 0)
        beat()
    assert [record.getMessage() for record in caplog.records] == [
        sentence("logs.tick_failed", error="PostgreSQL (DATABASE_URL) does not answer: connection refused", span="1 s"),
        sentence("logs.tick_failed", error="PostgreSQL (DATABASE_URL) does not answer: connection refused", span="2 s"),
        sentence("logs.tick_failed_on_its_own"),
    ]
    assert caplog.records[2].exc_info
    assert beat.failures == 3


def test_the_pause_after_failures_is_bounded_however_many_there_were(beat):
    """A night without PostgreSQL: 2 to the power of the failures is no float any more."""
    beat.failures = 5000
    assert beat.pause() == 30


@pytest.mark.slow
def test_a_backend_that_hangs_is_given_up_and_the_tick_goes_on(own_servers, store_of):
    """A stopped backend cannot end a statement by itself; the ticker breaks the connection, as a network would."""
    postgres, _ = own_servers
    store = store_of(postgres.url)
    store.now()
    with connect(postgres.url) as db:
        find = "SELECT pid FROM pg_stat_activity WHERE application_name = 'ticker' AND pid <> pg_backend_pid()"
        [backend] = db.execute(find).fetchone()
    os.kill(backend, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(store.now)
            until(lambda: store.pool.waited() > 0.05, "it waits")
            store.pool.interrupt()
            with pytest.raises(DatabaseUnavailable):
                asked.result(timeout=30)
    finally:
        os.kill(backend, signal.SIGCONT)
    assert store.now()
    assert store.pool.waited() == 0.0


@pytest.fixture
def store_of():
    stores = []

    def make(url):
        stores.append(PostgresStore(url))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.mark.slow
def test_a_redis_that_evicts_is_refused(own_servers):
    _, valkey = own_servers
    with Redis.from_url(valkey.url) as redis:
        redis.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(
        ConfigurationError, check=sentence("errors.policy_is", policy="allkeys-lru", remedy="noeviction").within
    ):
        inspect.check(from_environment({"DATABASE_URL": own_servers[0].url, "REDIS_URL": valkey.url}))


@pytest.mark.slow
def test_a_queue_without_a_worker_is_named_once(beat, environ, db, caplog):
    ticker.register(db, "plain", every="1m")
    with caplog.at_level(logging.WARNING, "ticker"):
        beat()
        assert caplog.records == []  # a worker may be on its way
        beat()
        beat()
    assert [record.getMessage() for record in caplog.records] == [
        sentence(
            "logs.unattended", jobs="1 job waits", queue="polling", remedy="ticker worker --tasks ... polling"
        )
    ]  # fmt: skip


@pytest.mark.slow
def test_a_queue_that_no_task_uses_any_more_is_not_named(beat, environ, db, caplog):
    task = ticker.register(db, "plain", every="1m")
    with caplog.at_level(logging.WARNING, "ticker"):
        beat()
        ticker.unregister(db, task)
        beat()
        beat()
    assert caplog.records == []


@pytest.mark.slow
def test_a_tick_of_the_loop_looks_a_second_ahead(environ, db, store, queue, settings):
    task = ticker.register(db, "plain", every="1h", first=store.now() + timedelta(seconds=9))
    with clock.use(lambda: task.next_run - timedelta(seconds=1)):
        TickJob(store, queue, settings, threading.Event())()
    assert ticker.get(db, task).waiting == (task.next_run,)


# -------------------------------------------------------------------------------------------------- woken by changes


@pytest.fixture
def sleeper(environ, monkeypatch):
    """A ticker that would sleep for an hour after its first tick, but for what wakes it."""
    monkeypatch.setenv("TICKER_WAKE", "on")
    with Ticking("--tick", "1h") as sleeper:
        sleeper.says("tick due=0")
        yield sleeper
        assert sleeper.stop() == 0


def pushed(redis, count):
    until(lambda: redis.llen("rq:queue:polling") >= count, f"{count} jobs in the queue")


@pytest.mark.slow
def test_a_task_that_is_registered_edited_resumed_or_run_wakes_a_sleeping_ticker(sleeper, db, redis):
    task = ticker.register(db, "poll", every="1h")
    pushed(redis, 1)
    ticker.run_now(db, task)
    pushed(redis, 2)
    ticker.pause(db, task)
    ticker.resume(db, task)
    pushed(redis, 3)
    ticker.register(db, "poll", name="later", every="1h", first=datetime.now(UTC) + timedelta(hours=2))
    ticker.edit(db, "later", cron="* * * * * *")
    pushed(redis, 4)


@pytest.mark.promise("L1")
def test_it_sleeps_exactly_until_the_next_task_is_due(sleeper, db, redis):
    ticker.register(db, "poll", every="1h", first=datetime.now(UTC) + timedelta(seconds=3))
    pushed(redis, 1)
    sleeper.says("tick due=1 enqueued=1")


@pytest.mark.slow
def test_it_looks_again_when_a_token_of_a_rate_is_free(sleeper, db, redis):
    db.execute("INSERT INTO ticker.limits (key, rate, period_ms, burst) VALUES ('api', 1, 1000, 1)")
    with db.transaction():
        for name in ("one", "two"):
            ticker.register(db, "poll", name=name, every="1h")
        db.execute("UPDATE ticker.tasks SET limits = '{api}'")
    pushed(redis, 1)
    assert redis.llen("rq:queue:polling") == 1
    with db.transaction():  # as a start does; that notifies nobody
        db.execute("UPDATE ticker.tasks SET waiting = '{}'")
        db.execute("UPDATE ticker.slots SET until = clock_timestamp() + interval '1 second'")
    pushed(redis, 2)


@pytest.mark.slow
def test_a_change_that_is_rolled_back_wakes_nobody_and_one_of_another_schema_neither(sleeper, db):
    lines = len(sleeper.lines)
    with pytest.raises(ZeroDivisionError), db.transaction():
        ticker.register(db, "poll", every="1h")
        1 / 0  # noqa: B018
    db.execute("SELECT pg_notify('ticker_wake', 'another')")
    db.execute("SELECT pg_notify('ticker_wake', 'ticker')")  # what comes first is heard first
    sleeper.says("tick due=0", after=lines)
    assert len(sleeper.lines) == lines + 1


@pytest.mark.slow
def test_without_the_setting_a_change_waits_for_the_rhythm(environ, db, redis):
    with Ticking("--tick", "1h") as sleeper:
        sleeper.says("tick due=0")
        ticker.register(db, "poll", every="1h")
        db.execute("SELECT pg_notify('ticker_wake', 'ticker')")
        assert sleeper.stop() == 0
    assert redis.llen("rq:queue:polling") == 0


@pytest.mark.slow
def test_without_the_setting_it_still_looks_again_for_tasks_that_wait_for_room(environ, db, redis):
    db.execute("INSERT INTO ticker.limits (key, concurrency) VALUES ('imap', 1)")
    with db.transaction():
        for name in ("one", "two"):
            ticker.register(db, "poll", name=name, every="1h")
        db.execute("UPDATE ticker.tasks SET limits = '{imap}'")
    with Ticking("--tick", "1h") as sleeper:
        pushed(redis, 1)
        db.execute("UPDATE ticker.tasks SET waiting = '{}'")  # it has started, and has ended
        pushed(redis, 2)
        assert sleeper.stop() == 0


@pytest.mark.slow
def test_it_hears_again_after_postgresql_was_away(sleeper, db, redis):
    db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ticker listener'")
    sleeper.says(sentence("logs.cannot_hear").pattern)
    ticker.register(db, "poll", every="1h")
    pushed(redis, 1)


# --------------------------------------------------------------------------------------------- workers, counted at ticks


@pytest.mark.slow
def test_a_tick_counts_the_workers_and_the_jobs_of_our_queues(beat, environ, db, redis):
    ticker.register(db, "plain", every="1m", queue="mail")
    ticker.register(db, "plain", name="other", every="1d", queue="reports")
    for name, state in (("a", "busy"), ("b", "idle")):
        redis.hset(f"rq:worker:{name}", "state", state)
        redis.sadd("rq:workers:mail", f"rq:worker:{name}")
    for _ in range(2):
        beat()
    rows = db.execute(
        "SELECT queue, sum(samples), sum(listening), sum(busy), sum(waiting) FROM ticker.minutes GROUP BY 1 ORDER BY 1"
    )
    assert rows.fetchall() == [("mail", 2, 4, 2, 2), ("reports", 2, 0, 0, 2)]
    [found] = tasks.tickers(db)
    assert found.last_report["crews"] == [[["mail"], 2, 1]]


@pytest.mark.slow
def test_workers_that_cannot_be_counted_fail_no_tick(beat, environ, db, caplog):
    ticker.register(db, "plain", every="1m")
    db.execute("ALTER TABLE ticker.minutes RENAME TO hidden")
    beat()
    assert beat.failures == 0 and sentence("logs.workers_uncounted").within(caplog.text)
