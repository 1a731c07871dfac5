"""How long we wait for a server that takes a connection, or a statement, and never answers."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, cast
from uuid import uuid4

import psycopg
import pytest
from redis import Redis

from tests.refusals import SECRET, not_startable
from tests.sentences import Sentence, sentence
from ticker import migrations
from ticker.db import connections
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.embedded import Servers
from ticker.errors import DatabaseUnavailable, QueueUnavailable
from ticker.queue import rq
from ticker.queue.rq import RedisQueue
from ticker.settings import Settings
from wrappers.__main__ import with_connect_timeout
from wrappers.pipeline import finish
from wrappers.pipeline.database import Database
from wrappers.pipeline.waiting_ends import WaitingEnds
from wrappers.sandbox import limits, shared_state

Db = psycopg.Connection[Any]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Somebody who takes every connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECT_TIMEOUT", 1)
    monkeypatch.setattr(connections, "ANSWER_TIMEOUT", 2)
    monkeypatch.setattr(rq, "SOCKET_TIMEOUT", 0.2)


@pytest.mark.slow
def test_a_postgresql_that_never_answers_is_given_up(silent_port: int, redis_url: str, impatient: None) -> None:
    url = f"postgresql://u:{SECRET}@127.0.0.1:{silent_port}/app"
    assert sentence("errors.database_unavailable_as", setting="DATABASE_URL").begins(
        not_startable(Settings(url, redis_url))
    )


@pytest.mark.slow
def test_a_redis_that_never_answers_is_given_up(silent_port: int, database_url: str, impatient: None) -> None:
    url = f"redis://:{SECRET}@127.0.0.1:{silent_port}/0"
    assert sentence("errors.redis_times_out", setting="REDIS_URL").begins(not_startable(Settings(database_url, url)))
    with pytest.raises(QueueUnavailable):
        RedisQueue.from_url(url).states(["t1-1"])


@pytest.mark.parametrize(("option", "seconds"), [("keepalives=1", "5"), ("connect_timeout=7", "7")])
def test_the_limits_on_waits_are_those_of_the_url_or_else_ours(database_url: str, option: str, seconds: str) -> None:
    url = with_option(database_url, option)
    with connect(url) as ours, closing(migrations.engine(url).raw_connection()) as of_migrations:
        for connection in ours, cast(Any, of_migrations.driver_connection):
            limits = connection.info.get_parameters()
            assert (limits["connect_timeout"], limits["keepalives_idle"]) == (seconds, "10")


def with_option(url: str, option: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{option}"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (
            sentence("errors.database_unusable", setting="DATABASE_URL"),
            "connection failed: SSL error: certificate verify failed",
        ),
        (
            sentence("errors.database_unavailable_as", setting="DATABASE_URL"),
            "consuming input failed: server closed the connection unexpectedly",
        ),
    ],
)
def test_only_an_error_without_an_answer_says_that_there_was_none(said: Sentence, error: str) -> None:
    with pytest.raises(DatabaseUnavailable, check=said.begins), connections.translated():
        raise psycopg.OperationalError(error)


@contextmanager
def stopped(db: Db, name: str) -> Iterator[None]:
    """The newest backend of that name hangs: it takes a statement, and cannot end it by a timeout of its own. (Those of
    closed connections end some time later.)
    """
    named = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"
    [pid] = db.execute(f"{named} ORDER BY backend_start DESC LIMIT 1", [name]).fetchone()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_a_backend_that_hangs_is_given_up_and_the_next_call_connects_anew(
    servers: Servers, database_url: str, impatient: None
) -> None:
    tables = PostgresStore(database_url)
    tables.now()
    with connect(database_url, name="looks on") as db, stopped(db, "ticker"):
        with pytest.raises(DatabaseUnavailable, check=sentence("errors.no_answer_within", span="2 s").within):
            tables.now()
        assert tables.now()
    tables.close()


@pytest.mark.parametrize("option", ["keepalives=1", "target_session_attrs=read-write"])
def test_a_server_that_takes_no_writes_counts_as_away(database_url: str, option: str) -> None:
    """After a failover the old primary may live on as a standby; the new one is found again by the next attempt."""
    with connect(database_url) as db:
        name = db.execute("SELECT current_database()").fetchone()[0]  # type: ignore[index]
        db.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    url = with_option(database_url, option)
    with closing(PostgresStore(url)) as standby, pytest.raises(DatabaseUnavailable, match="accepts no writes"):
        standby.heartbeat(str(uuid4()), "h", 1, standby.now(), {})


@pytest.mark.slow
def test_a_horse_gives_up_a_backend_that_hangs(database_url: str, impatient: None) -> None:
    database = Database(database_url, "ticker")
    database.open()
    with connect(database_url, name="looks on") as db, stopped(db, "ticker-run"):
        with pytest.raises(DatabaseUnavailable, check=sentence("errors.no_answer_to_a_statement").within):
            database.execute("instant", now=None)
        assert database.execute("instant", now=None)
    database.close()


@pytest.mark.slow
def test_a_worker_does_not_wait_for_ever_to_close_the_record_of_a_dead_horse(
    silent_port: int, redis_url: str, impatient: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgresql://u:{SECRET}@127.0.0.1:{silent_port}/app")
    monkeypatch.setattr(shared_state, "_page", None)
    shared_state.share()
    shared_state.begin(limits.now())
    shared_state.write_names("t7-1", "poll", "mail_channels:5")
    shared_state.write(7, str(uuid4()), 1)
    finish.close_record(Database.from_environment(), waiting := WaitingEnds(), "died of SIGSEGV")
    assert sentence("logs.not_recorded_yet", setting="DATABASE_URL").within(caplog.text)
    assert len(waiting) == 1
    assert SECRET not in caplog.text


@pytest.mark.parametrize("url", ["redis://h:6379/1", "rediss://h/0?ssl_cert_reqs=none", "unix:///tmp/socket?db=3"])
def test_rqs_own_connection_gives_up_a_redis_that_cannot_be_reached(url: str) -> None:
    bounded = Redis.from_url(with_connect_timeout(url)).connection_pool.connection_kwargs
    assert bounded["socket_connect_timeout"] == 5.0
    assert bounded["db"] == Redis.from_url(url).connection_pool.connection_kwargs["db"]
    assert with_connect_timeout(f"{url}{'&' if '?' in url else '?'}socket_connect_timeout=1")[-2:] == "=1"
