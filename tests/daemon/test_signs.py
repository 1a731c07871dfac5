"""A ticker whose ticks fail, or whose pass takes long, shows that to whoever looks, through the server that lives."""

import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from redis import Redis

import ticker
from tests.cli.answers import answer
from tests.factories import SECOND, ticked
from tests.harness import command
from tests.running import Ticking, until
from tests.sentences import sentence
from ticker.daemon import tick_job
from ticker.daemon.tick_job import TickJob
from ticker.errors import QueueUnavailable
from ticker.queue.rq import FAILURE_PREFIX
from ticker.read import health, tasks
from ticker.settings import Settings

pytestmark = pytest.mark.usefixtures("environ")

Db = psycopg.Connection[Any]
KEY = f"{FAILURE_PREFIX}test1234"


@pytest.fixture
def beat(store: Any, queue: Any, settings: Settings) -> TickJob:
    return TickJob(store, queue, replace(settings, tick_ms=30_000), threading.Event())


@pytest.fixture
def fill(redis: Redis) -> Iterator[Callable[[], None]]:
    """Makes Redis refuse what takes memory."""
    yield lambda: redis.config_set("maxmemory", 1)
    redis.config_set("maxmemory", 0)


def read_only(db: Db) -> None:
    """For the transactions of new connections."""
    db.execute(f'ALTER DATABASE "{db.info.dbname}" SET default_transaction_read_only = on')


def disk_full(db: Db, *tables: str) -> None:
    """Makes each change of these tables fail as it does on a full disk."""
    db.execute(
        "CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE disk_full USING MESSAGE ="
        " 'could not extend file: No space left on device'; END $$"
    )
    for table in tables:
        db.execute(
            f"CREATE TRIGGER no_space BEFORE INSERT OR UPDATE ON ticker.{table} EXECUTE FUNCTION no_space()"  # type: ignore[arg-type]
        )


def beginnings() -> list[str]:
    """How each command begins that people call when nothing runs."""
    told = command("doctor", code=1)[0].partition("; and ")[0].splitlines()[:1]
    for words, code in (["health"], 1), (["why", "1"], 0), (["top", "--once"], 0):
        out, err = command(*words, code=code)
        assert code == 0 or out.count(err.removeprefix("error: ").strip()) == 0  # each problem is told once
        told += [(err.removeprefix("error: ") or out.removeprefix("problem: ")).splitlines()[0]]
    return told


def silenced(db: Db, seconds: float) -> None:
    """As if the last signs of all tickers were so much older."""
    db.execute(
        "UPDATE ticker.tickers SET last_tick_at = last_tick_at - %s, seen_at = seen_at - %s", [seconds * SECOND] * 2
    )


def failing(error: str) -> Any:
    return sentence(
        "health.ticks_fail", pid=os.getpid(), host=socket.gethostname(), span=re.compile(r"\d+ s"), error=error
    )


# ------------------------------------------------------------------------------------------------------ ticks that fail


@pytest.mark.slow
@pytest.mark.promise("L4")
def test_with_redis_full_all_begin_with_what_the_ticker_met_and_none_asks_for_a_worker(
    db: Db, beat: TickJob, fill: Callable[[], None]
) -> None:
    ticker.register(db, "plain", every="1m")
    beat()
    ticker.run_now(db, 1)
    fill()
    beat()
    met = failing(re.compile("Redis .REDIS_URL. answers with an error: .* 'maxmemory'"))
    assert beginnings() == [met] * 4
    assert "ticker worker" not in command("doctor", code=1)[0]
    assert [note["sentence"] for note in answer("doctor", code=1)["notes"] if note["check"] == "redis"] == [
        sentence("doctor.redis_full", used=re.compile("[0-9,]+"), most=1, error=re.compile(".*"))
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "breaks", [read_only, lambda db: disk_full(db, "tasks", "tickers")], ids=["read-only", "disk full"]
)
def test_if_postgresql_takes_no_writes_all_begin_with_what_the_ticker_has_published_in_redis(
    db: Db, beat: TickJob, redis: Redis, breaks: Callable[[Db], None]
) -> None:
    ticker.register(db, "plain", every="1m")
    breaks(db)
    beat()
    met = failing(
        re.compile("PostgreSQL .DATABASE_URL. .*(read_only is on|No space left on device; free \\w+ on its disk)")
    )
    assert beginnings() == [met] * 4
    assert 0 < redis.pttl(KEY) <= 90_000


def test_a_tick_says_to_which_redis_it_pushes_and_is_recorded_if_that_is_unknown(
    db: Db, beat: TickJob, queue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise QueueUnavailable("Redis (REDIS_URL) does not answer")

    report = "SELECT last_report->>'redis', last_tick_at IS NOT NULL FROM ticker.tickers"
    beat()
    assert db.execute(report).fetchall() == [(queue.place(), True)]
    db.execute("DELETE FROM ticker.tickers")
    monkeypatch.setattr(queue, "place", away)
    beat()
    assert db.execute(report).fetchall() == [(None, True)]


def test_the_first_good_tick_clears_what_was_published_even_by_the_process_before_it(
    db: Db, beat: TickJob, redis: Redis, settings: Settings, fill: Callable[[], None]
) -> None:
    ticker.register(db, "plain", every="1m")
    fill()
    beat()
    assert len(health.look(settings).failures) == 1
    redis.config_set("maxmemory", 0)
    redis.set(KEY, "[]", px=15_000)
    beat()
    assert (health.look(settings).failures, redis.exists(KEY)) == ((), 0)


def test_the_failure_of_one_of_two_tickers_is_a_warning(db: Db, settings: Settings) -> None:
    ticked(db)
    ticked(db)
    db.execute(
        "UPDATE ticker.tickers SET failure = 'it broke', failing_since = now() WHERE id = (SELECT min(id::text)::uuid FROM ticker.tickers)"
    )
    look = health.look(settings)
    assert (look.problems, len(look.warnings)) == ((), 1)
    assert look.warnings[0].endswith(": it broke")


def test_the_failure_of_a_ticker_that_is_silent_or_was_stopped_is_not_shown(db: Db, settings: Settings) -> None:
    ticked(db, 100 * SECOND)
    ticked(db, ended=True)
    db.execute("UPDATE ticker.tickers SET failure = 'it broke', failing_since = now()")
    assert health.look(settings).failures == ()


@pytest.mark.parametrize("text", ["", "{}", "[1, 2]", '["x", "h", 1, 1, "s"]', "[" * 5000, "\xff"])
def test_what_others_write_to_the_key_is_no_failure(db: Db, redis: Redis, settings: Settings, text: str) -> None:
    ticked(db)
    redis.set(KEY, text)
    assert health.look(settings).problems == ()


def test_an_internal_error_is_published_and_tables_of_another_installation_are_left_alone(
    db: Db, beat: TickJob, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tick_job, "tick", lambda *_, **__: 1 / 0)
    beat()
    assert health.look(settings).problems[0] == failing(re.compile("an internal error, ZeroDivisionError; .* log .*"))
    monkeypatch.undo()
    db.execute("DELETE FROM ticker.tickers")
    db.execute("UPDATE ticker.installation SET database_oid = 1")
    beat()
    assert db.execute("SELECT count(*) FROM ticker.tickers").fetchone() == (0,)


# --------------------------------------------------------------------------------------------- long passes, and silence


def test_a_pass_that_takes_long_is_no_silence_while_it_makes_progress(
    db: Db, beat: TickJob, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of the signs waits for the event between two looks. Each of its waits stands for two minutes of the pass."""
    told: list[tuple[str, ...]] = []

    def long_pass(*_: Any, **__: Any) -> Any:
        silenced(db, 120)
        beat.show_long_passes()
        told.append(health.look(settings).problems)
        return ticked_pass(*_, **__)

    ticked_pass = tick_job.tick
    beat()
    silenced(db, 120)
    assert sentence("health.no_tick_within", span="1m30s", rest=re.compile(".*")).begins(
        health.look(settings).problems[0]
    )
    monkeypatch.setattr(tick_job, "tick", long_pass)
    monkeypatch.setattr(tick_job, "LONG_PASS", 0.0)
    monkeypatch.setattr(beat, "_stopping", Waits(2))
    beat()
    assert told == [()]
    monkeypatch.setattr(beat, "_stopping", Waits(2))
    monkeypatch.setattr(beat, "moves", lambda: False)
    beat()
    assert len(told[1]) == 1  # a pass that hangs


class Waits:
    """An event that is set after so many waits."""

    def __init__(self, count: int) -> None:
        self.left = count

    def wait(self, _: float) -> bool:
        self.left -= 1
        return self.left < 0

    def is_set(self) -> bool:
        return False


@pytest.mark.slow
def test_a_ticker_that_is_killed_is_noticed_after_three_of_its_ticks_whatever_the_reader_is_set_to(
    db: Db, settings: Settings
) -> None:
    with Ticking("--tick", "5s") as process:
        process.says("tick due=0")
        process.process.send_signal(signal.SIGKILL)
        process.process.wait()
    until(lambda: tasks.tickers(db), "its row")
    silenced(
        db,
        10
        - db.execute(
            "SELECT extract(epoch FROM clock_timestamp() - last_tick_at)::float8 FROM ticker.tickers"
        ).fetchone()[0],
    )  # type: ignore[index]
    assert health.look(settings).problems == ()
    silenced(db, 7)
    assert len(health.look(replace(settings, tick_ms=300_000)).problems) == 1


def test_a_dead_ticker_is_listed_until_another_one_is_started(db: Db, settings: Settings) -> None:
    for ago in 3600, 600:
        ticked(db, ago * SECOND)
    assert len(health.look(settings).tickers) == 2
    db.execute(
        "INSERT INTO ticker.tickers (id, pid, started_at, last_tick_at) VALUES (gen_random_uuid(), 8, now() - interval '5 m', now())"
    )
    assert [found.pid for found in health.look(settings).tickers] == [8]


# ------------------------------------------------------------------------------------------------- a refused start


def test_a_ticker_that_refuses_to_start_says_why_to_whoever_looks_and_only_for_its_last_try(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticker.register(db, "plain", every="1m")
    redis_url = os.environ["REDIS_URL"]
    for _ in range(2):
        monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
        error = command("run", code=78)[1].removeprefix("error: ").strip()
        monkeypatch.setenv("REDIS_URL", redis_url)
        assert "127.0.0.1:1" in error
        ago = re.compile(r"\d+ s ago")
        told = sentence("health.last_ticker_refused", pid=os.getpid(), host=socket.gethostname(), ago=ago, error=error)
        assert told.within(command("health", code=1)[1])
        assert told.within(command("doctor", code=1)[0])
        assert error in command("why", "1")[0]
    assert db.execute("SELECT count(*) FROM ticker.tickers").fetchone() == (1,)


def test_a_refusal_is_no_news_once_a_ticker_ticks(db: Db, beat: TickJob, monkeypatch: pytest.MonkeyPatch) -> None:
    redis_url = os.environ["REDIS_URL"]
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    command("run", code=78)
    monkeypatch.setenv("REDIS_URL", redis_url)
    beat()
    assert "refused" not in command("health")[0]


def test_nothing_is_written_to_tables_of_another_environment(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TICKER_ENVIRONMENT", "elsewhere")
    db.execute("UPDATE ticker.installation SET environment = 'here'")
    command("run", code=78)
    assert db.execute("SELECT count(*) FROM ticker.tickers").fetchone() == (0,)
