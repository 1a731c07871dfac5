"""Everything works through PgBouncer in transaction mode, and leaves nothing in its sessions. Run with: pytest -m pooler."""

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.factories import create_trace
from tests.poolers import is_installed, pooler, through
from tests.running import ROOT
from tests.sentences import sentence
from ticker import migrations, settings
from ticker.db import connections, listener, sql
from ticker.db.connections import connect, translated
from ticker.db.listener import Listener
from ticker.db.store import PostgresStore
from ticker.embedded import Servers
from ticker.engine.tick import tick
from ticker.errors import DatabaseUnavailable
from ticker.queue import inspect
from ticker.queue.rq import RedisQueue
from ticker.settings import Settings
from ticker.web import application

pytestmark = [pytest.mark.pooler, pytest.mark.timeout(600)]

Db = psycopg.Connection[Any]
POOL, WORKERS, RUNS = 10, 30, 1000


@pytest.fixture
def folder(servers: Servers) -> Iterator[Path]:
    assert is_installed(), "apt-get install pgbouncer"
    with pooler(servers.database_url, size=POOL) as folder:
        yield folder


@pytest.fixture
def pooled(folder: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> str:
    url = through(folder, database_url)
    monkeypatch.setenv("DATABASE_URL", url)
    return url


def left(folder: Path, url: str) -> set[tuple[str, ...]]:
    """Whatever another client would find in the sessions of the pool: one transaction in each, all at once."""
    found: set[tuple[str, ...]] = set()
    with ExitStack() as open_:
        for _ in range(POOL):
            other = open_.enter_context(psycopg.connect(url))
            found |= {("setting", name, value) for name, value in other.execute(
                "SELECT name, setting FROM pg_settings WHERE source IN ('session', 'client') AND name <> 'application_name'")}  # fmt: skip
            found |= {("statement", name) for (name,) in other.execute("SELECT name FROM pg_prepared_statements")}
            found |= {("channel", name) for (name,) in other.execute("SELECT pg_listening_channels()")}
            found |= {("lock", kind) for (kind,) in other.execute(
                "SELECT locktype FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'")}  # fmt: skip
    return found


def test_thirty_workers_on_ten_sessions_run_everything_and_leave_nothing(
    pooled: str, folder: Path, db: Db, queue: RedisQueue, settings: Settings
) -> None:
    inspect.check(Settings(pooled, settings.redis_url))
    create_trace(db)
    for number in range(RUNS):
        ticker.register(db, "plain", every="1h", name=f"{number}", kwargs={"channel_id": number})
    store = PostgresStore(pooled)
    assert tick(store, queue).enqueued == RUNS
    store.close()
    command = [sys.executable, "-m", "wrappers", "--tasks", "tests.sample_tasks", "--burst", "polling"]
    workers = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(WORKERS)]
    assert [worker.wait() for worker in workers] == [0] * WORKERS
    ended = db.execute("SELECT outcome, reason FROM ticker.runs").fetchall()
    assert len(ended) == RUNS
    late = [reason for _, reason in ended if sentence("why.start_took").begins(reason)]  # 30 starts on few processors
    assert {outcome for outcome, reason in ended if reason not in late} == {"succeeded"}
    assert len(late) < RUNS // 10
    assert left(folder, pooled) == set()


def test_a_transaction_keeps_its_settings_while_others_use_the_pool(pooled: str) -> None:
    with ExitStack() as open_:
        clients = [open_.enter_context(connect(pooled)) for _ in range(POOL)]
        for client in clients:
            open_.enter_context(client.transaction())
        for client in clients:
            assert client.execute("SELECT current_setting('statement_timeout')").fetchone() == ("5s",)


def test_tables_are_made_through_it_and_its_sessions_stay_clean(folder: Path, new_database: Callable[[], str]) -> None:
    url = through(folder, new_database())
    migrations.upgrade(url)
    assert migrations.problems(url) == []
    assert left(folder, url) == set()


def test_the_page_reads_and_writes_through_it(pooled: str, folder: Path, db: Db, redis_url: str) -> None:
    task = ticker.register(db, "poll", every="1m")
    web = application(Settings(pooled, redis_url), trusted=True)
    with TestClient(web) as client:
        for path in ("/", "/tasks", f"/tasks/{task.id}", "/processes", "/api/v1/tasks"):
            assert client.get(path).status_code == 200, path
        paused = client.post(f"/api/v1/tasks/{task.id}/pause", json={"reason": "x"})
        assert paused.status_code == 200, paused.text
    assert left(folder, pooled) == set()


def test_sessions_that_are_pooled_whole_work_too(servers: Servers, database_url: str) -> None:
    with pooler(servers.database_url, mode="session") as folder, connect(through(folder, database_url)) as connection:
        assert sql.on(connection, "ticker")("instant", now=None)


def test_a_pooler_that_keeps_prepared_statements_is_told(pooled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert connect(pooled).prepares_after is None
    monkeypatch.setenv("TICKER_PREPARED_STATEMENTS", "on")
    settings._checked.cache_clear()
    assert connect(pooled).prepares_after == 5


def test_a_pool_that_is_too_small_is_named(
    servers: Servers, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ANSWER_TIMEOUT", 1.0)
    with pooler(servers.database_url, size=1) as folder:
        url = through(folder, database_url)
        busy = connect(url)
        with busy, busy.transaction(), pytest.raises(DatabaseUnavailable) as error, translated():
            connect(url)
    assert str(error.value) == (
        sentence("errors.pool_too_small", setting="DATABASE_URL", span="1 s", remedy="default_pool_size")
    )


def test_changes_wake_no_ticker_through_it_and_that_is_said_once(
    pooled: str, database_url: str, db: Db, caplog: pytest.LogCaptureFixture
) -> None:
    deaf, stopping = Listener(pooled, "ticker", threading.Event()), threading.Event()
    with caplog.at_level(logging.WARNING):
        deaf.start()
        deaf.join()
    assert caplog.messages == [listener.POOLER]
    direct = Listener(Settings(pooled, listen_url=database_url).require_listen(), "ticker", stopping)
    direct.start()
    try:
        assert direct.heard.wait(60)
    finally:
        stopping.set()
        direct.join()
