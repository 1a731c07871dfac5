"""No state stays in a session, and nothing that is set there, for a role or for a database changes what we do."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict
from rq.timeouts import JobTimeoutException

import ticker
from tests import plans
from tests.conftest import admin, connect
from tests.factories import create_trace
from tests.running import ROOT, until, work
from tests.sentences import sentence
from ticker import migrations
from ticker.cli import main
from ticker.db import connections, sql
from ticker.db.connections import BY_INDEX, ONE_PLAN, SETTINGS, Connection, translated
from ticker.db.store import PostgresStore
from ticker.embedded import Servers
from ticker.engine.tick import tick
from ticker.errors import ConfigurationError, DatabaseUnavailable, RowLocked
from ticker.queue import inspect
from ticker.queue.rq import RedisQueue
from ticker.read import health
from ticker.settings import Settings
from wrappers.sandbox.limits import SoftLimit

Db = psycopg.Connection[Any]

START = {
    "task_ids": [7], "occurrences": [plans.NOW], "functions": ["poll"], "tokens": [uuid4()], "now": None, "worker": "", "host": "",
    "pid": 1, "job_ids": [""], "boot": "b", "uptime": 1, "waits": False, "back": None,
}  # fmt: skip
END = {
    "task_ids": [7], "tokens": [uuid4()], "outcomes": ["succeeded"], "reasons": [""], "results": [None], "tracebacks": [""],
    "outputs": [""], "error_outputs": [""], "ages": [0.0], "pids": [None], "suspect_counts": [0], "now": None,
}  # fmt: skip
PLANNED: dict[str, dict[str, Any]] = {
    "start": START,
    "finish": END,
    "finish_limited": END,
}

SET_HERE = "SELECT name FROM pg_settings WHERE source IN ('session', 'client') ORDER BY name"
ODD = {
    "datestyle": "SQL, DMY", "intervalstyle": "sql_standard", "bytea_output": "escape", "timezone": "Asia/Kathmandu",
    "client_encoding": "LATIN1", "default_transaction_isolation": "serializable", "transform_null_equals": "on",
    "array_nulls": "off", "extra_float_digits": "-10", "standard_conforming_strings": "off",
}  # fmt: skip
CURRENT = ", ".join(f"current_setting('{name}') AS \"{name}\"" for name in (*SETTINGS, "transaction_isolation"))
EXPECTED = (*(value.partition(",")[0] for value in SETTINGS.values()), "read committed")


@pytest.fixture
def odd(db: Db) -> None:
    """The database has settings that other applications may want."""
    name = db.info.dbname
    for setting, value in ODD.items():
        db.execute(f"ALTER DATABASE \"{name}\" SET {setting} = '{value}'")  # type: ignore[arg-type]


def current(connection: Connection, *, alone: bool) -> tuple[str, ...]:
    with nullcontext() if alone else connection.transaction():
        [row] = connection.run(f"SELECT {CURRENT}", [])
    return tuple(value.partition(",")[0] for value in row.values())


@pytest.mark.slow
@pytest.mark.parametrize("alone", [True, False], ids=["one statement", "a transaction"])
@pytest.mark.parametrize("planned_once", [True, False])
def test_every_transaction_has_our_settings_and_leaves_none(
    alone: bool, planned_once: bool, odd: None, database_url: str
) -> None:
    with connections.connect(database_url, planned_once=planned_once) as connection:
        assert current(connection, alone=alone) == EXPECTED
        assert [name for (name,) in connection.execute(SET_HERE)] == ["application_name", "client_encoding"]


@pytest.mark.slow
def test_a_statement_alone_takes_one_round_trip(database_url: str, tmp_path: Path) -> None:
    with connections.connect(database_url) as connection, (tmp_path / "trace").open("w+b") as trace:
        connection.pgconn.trace(trace.fileno())
        sql.on(connection, "ticker")("instant", now=None)
        connection.pgconn.untrace()
        sent = [line.split("\t")[3] for line in (tmp_path / "trace").read_text().splitlines() if "\tF\t" in line]
    assert (sent.count("Sync"), sent.count("Query")) == (1, 0)


@pytest.mark.slow
def test_a_statement_that_fails_leaves_the_connection_usable(db: Db, database_url: str) -> None:
    task = ticker.register(db, "poll", every="1m")
    with connections.connect(database_url) as connection, db.transaction():
        db.execute("SELECT FROM ticker.tasks WHERE id = %s FOR UPDATE", [task.id])
        with pytest.raises(RowLocked), translated():
            connection.run("SELECT FROM ticker.tasks FOR UPDATE", [])
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.run("SELECT 1 / 0", [])
        with pytest.raises(DatabaseUnavailable, match="statement timeout"), translated(), connection.transaction():
            connection.run("SELECT set_config('statement_timeout', '1ms', true)", [])
            connection.run("SELECT pg_sleep(5)", [])
        assert connection.run("SELECT 1 AS n", []) == [{"n": 1}]


LAST_DESCRIPTOR = """
import os, resource
from ticker.db.connections import connect, translated
from ticker.errors import DatabaseUnavailable

connect(os.environ["DATABASE_URL"]).close()
free = os.dup(0)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    with translated():
        connect(os.environ["DATABASE_URL"])
except DatabaseUnavailable as error:
    print(error)
"""


@pytest.mark.slow
def test_a_process_without_descriptors_may_try_again_to_connect(database_url: str) -> None:
    environ = os.environ | {"DATABASE_URL": database_url}
    command = [sys.executable, "-c", LAST_DESCRIPTOR]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)
    assert "Too many open files" in done.stdout, done.stderr


@pytest.mark.parametrize("statement", ["start", "finish", "finish_limited"])
def test_a_worker_keeps_no_plan_that_reads_all_runs_though_it_made_it_when_there_were_none(
    statement: str, db: Db
) -> None:
    for table in ("runs", "tasks", "slots", "limited_keys"):
        db.execute(f"VACUUM ANALYZE ticker.{table}")
    for name, value in (ONE_PLAN | BY_INDEX).items():
        db.execute(f"SET {name} TO {value}")
    assert plans.read_whole(plans.plan(db, statement, **PLANNED[statement])) == set()


@pytest.mark.slow
def test_a_plan_of_empty_tables_is_made_again_once_they_have_filled(db: Db, database_url: str) -> None:
    """With statistics from when they were empty, PostgreSQL walks along the primary keys of `runs` and `tasks`."""
    db.execute("ALTER TABLE ticker.tasks SET (autovacuum_enabled = false)")
    db.execute("ALTER TABLE ticker.runs SET (autovacuum_enabled = false)")
    db.execute("VACUUM ANALYZE ticker.tasks, ticker.runs")
    with connections.connect(database_url, planned_once=True) as connection:
        ask = partial(sql.on(connection, "ticker"), "finish", **END)
        ask()
        assert {"tasks", "runs"} <= plans.walked(plan_of_the_last(connection))
        for rows in (plans.TASKS, plans.RUNS):
            db.execute(rows.replace(str(plans.ROWS), "5000"))
        for _ in range(9):
            ask()
        assert not {"tasks", "runs"} & plans.walked(plan_of_the_last(connection))
        assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (4,)


@pytest.mark.slow
def test_behind_a_pooler_a_statement_is_prepared_once(database_url: str) -> None:
    """A pooler gives prepared statements names of its own, so that none could be deallocated by ours."""
    with connections.connect(database_url, planned_once=True) as connection:
        connection.has_pooler = True
        names = set()
        for number in range(12):
            assert connection.run("SELECT $1::int AS n", [number]) == [{"n": number}]
            names |= set(connection.execute("SELECT name FROM pg_prepared_statements WHERE statement LIKE '%AS n'"))
        assert len(names) == 1


def plan_of_the_last(connection: Connection) -> list[dict[str, Any]]:
    """The plan that the connection keeps of the statement that it ran last."""
    name, number = connection.execute(
        "SELECT name, array_length(parameter_types, 1) FROM pg_prepared_statements WHERE statement LIKE 'WITH asked%'"
    ).fetchone()  # type: ignore[misc]
    with connection.transaction():
        explained = f"EXPLAIN (FORMAT JSON) EXECUTE {name}({', '.join(['NULL'] * number)})"
        [[[found]]] = connection.execute(explained).fetchall()  # type: ignore[arg-type]
    return list(plans.nodes(found["Plan"]))


def test_an_error_at_the_commit_is_that_error(db: Db, database_url: str) -> None:
    db.execute("CREATE TABLE once (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with connections.connect(database_url) as connection:
        for _ in range(2):
            with pytest.raises(psycopg.errors.UniqueViolation):
                connection.run("INSERT INTO public.once VALUES ($1), ($1)", [1])
            assert connection.run("SELECT count(*)::int AS n FROM public.once", []) == [{"n": 0}]


@pytest.mark.slow
@pytest.mark.parametrize("error", [SoftLimit, JobTimeoutException, KeyboardInterrupt, SystemExit])
def test_an_interrupted_statement_raises_what_interrupted_it(error: type[BaseException], database_url: str) -> None:
    def interrupt(*_: object) -> None:
        raise error

    with connections.connect(database_url) as connection, signal_handler(signal.SIGALRM, interrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(error), translated():
            connection.run("SELECT pg_sleep(4)", [])
        assert connection.closed


@contextmanager
def signal_handler(number: int, handler: Callable[..., None]) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(number, before)


@pytest.mark.slow
def test_a_libpq_without_pipelines_is_refused_in_a_sentence(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.pq, "version", lambda: 130_014)
    with pytest.raises(
        ConfigurationError, check=sentence("errors.old_libpq", found="libpq 13", needed="libpq 14").within
    ):
        connections.connect(database_url)


def test_prepared_statements_survive_errors(database_url: str) -> None:
    with connections.connect(database_url, planned_once=True) as connection:
        for value in (1, 0, 1, 0, 1):
            if value:
                assert connection.run("SELECT 6 / $1::int AS n", [value]) == [{"n": 6}]
            else:
                with pytest.raises(psycopg.errors.DivisionByZero):
                    connection.run("SELECT 6 / $1::int AS n", [value])
                with pytest.raises(ZeroDivisionError), connection.transaction():
                    connection.run("SELECT 6 / $1::int AS n", [2])
                    raise ZeroDivisionError


@pytest.mark.slow
def test_a_task_is_due_an_interval_later_when_the_clocks_of_the_database_change(
    db: Db, database_url: str, queue: RedisQueue
) -> None:
    """psycopg gives times in the zone of the session: 6 hours later on the clock of Berlin may be 7."""
    db.execute(f"ALTER DATABASE \"{db.info.dbname}\" SET timezone = 'Europe/Berlin'")  # type: ignore[arg-type]
    now = datetime(2027, 10, 31, 0, 59, 30, tzinfo=UTC)
    task = ticker.register(db, "poll", every="6h", first=now)
    store = PostgresStore(database_url)
    assert tick(store, queue, now=now).enqueued == 1
    assert store.now().utcoffset() == timedelta()
    store.close()
    assert ticker.get(db, task).next_run - now == timedelta(hours=6)  # type: ignore[operator]


@pytest.mark.slow
def test_settings_of_the_database_change_no_upgrade(servers: Servers, new_database: Callable[[], str]) -> None:
    name = conninfo_to_dict(url := new_database())["dbname"]
    admin(servers, f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'repeatable read'")
    admin(servers, f'ALTER DATABASE "{name}" SET lock_timeout = 1')
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(migrations.upgrade, url) for _ in range(4)]:
            done.result()
    assert migrations.problems(url) == []


def test_no_timeout_of_the_database_ends_an_upgrade(servers: Servers, new_database: Callable[[], str]) -> None:
    """PostgreSQL 17 added transaction_timeout, which also ends statements outside a transaction."""
    name = conninfo_to_dict(url := new_database())["dbname"]
    known = "SELECT name FROM pg_settings WHERE name ~ '^(statement|lock|(idle_in_)?transaction(_session)?)_timeout$'"
    with connect(url) as db:
        timeouts = [timeout for (timeout,) in db.execute(known)]
    for timeout in timeouts:
        admin(servers, f'ALTER DATABASE "{name}" SET {timeout} = 60000')
    with migrations.connected(url) as connection:
        assert {connection.exec_driver_sql(f"SHOW {timeout}").scalar() for timeout in timeouts} == {"0"}


@pytest.mark.slow
def test_an_error_undoes_the_whole_transaction(database_url: str, db: Db) -> None:
    with connections.connect(database_url) as connection:
        with pytest.raises(ZeroDivisionError), connection.transaction():
            ticker.register(connection, "outer", every="1m")
            with pytest.raises(KeyError), connection.transaction():
                ticker.register(connection, "inner", every="1m")
                raise KeyError
            raise ZeroDivisionError
        with connection.transaction():
            ticker.register(connection, "kept", every="1m")
    assert [task.name for task in ticker.list_tasks(db)] == ["kept"]


@pytest.mark.slow
def test_settings_of_the_database_change_nothing(
    odd: None, db: Db, settings: Settings, queue: RedisQueue, environ: dict[str, str]
) -> None:
    inspect.check(settings)
    with connect(settings.database_url) as connection:
        task = ticker.register(connection, "plain", every="1m", kwargs={"channel_id": 1})
        create_trace(connection)
        store = PostgresStore(settings.database_url)
        tick(store, queue)
        store.close()
        work()
        [run] = ticker.list_runs(connection)
        assert run.outcome == "succeeded" and run.occurrence == task.next_run
        assert health.look(settings).ahead is not None
        for command in (["list"], ["why", str(task.id)], ["runs", str(task.id)], ["list", str(task.id)], ["tick"]):
            assert CliRunner().invoke(main, command).exit_code == 0, command


@pytest.mark.slow
def test_a_worker_without_jobs_holds_no_session(
    db: Db, store: PostgresStore, queue: RedisQueue, environ: dict[str, str], tmp_path: Path
) -> None:
    create_trace(db)
    patch = "import wrappers.rq.worker; wrappers.rq.worker.IDLE = 1\nfrom wrappers.__main__ import main; main()"
    command = [sys.executable, "-c", patch, "--tasks", "tests.sample_tasks", "polling"]
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=ROOT, env=os.environ, stdout=log, stderr=log)
    try:
        for number in (1, 2):
            ticker.register(db, "plain", every="1m", name=f"{number}", kwargs={"channel_id": number})
            tick(store, queue)
            until(lambda number=number: len(ticker.list_runs(db, outcome="succeeded")) == number, "the run ends")
            until(lambda: sessions(db) == 0, "the worker has no session")
    finally:
        worker.terminate()
        worker.wait()


def sessions(db: Db) -> int:
    found = db.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ticker-run' AND datname = %s",
                       [conninfo_to_dict(os.environ["DATABASE_URL"])["dbname"]]).fetchone()  # fmt: skip
    assert found
    return int(found[0])
