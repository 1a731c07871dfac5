"""No state stays in a session, and nothing that is set there, for a role or for a database changes what we do."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict

import ticker
from tests.conftest import connect
from tests.running import ROOT, until, work
from ticker import connections, health, sql, startup
from ticker.cli import main
from ticker.connections import SETTINGS, Connection, translated
from ticker.enqueue import RedisQueue
from ticker.errors import DatabaseUnavailable, RowLocked
from ticker.settings import Settings
from ticker.store import PostgresStore
from ticker.tick import tick

Db = psycopg.Connection[Any]

SET_HERE = "SELECT name FROM pg_settings WHERE source IN ('session', 'client') ORDER BY name"
ODD = {
    "datestyle": "SQL, DMY", "intervalstyle": "sql_standard", "bytea_output": "escape", "timezone": "Asia/Kathmandu",
    "client_encoding": "LATIN1", "default_transaction_isolation": "serializable", "transform_null_equals": "on",
    "array_nulls": "off", "extra_float_digits": "-10", "standard_conforming_strings": "off",
}  # fmt: skip
CURRENT = f"SELECT {', '.join(f'current_setting($${name}$$)' for name in (*SETTINGS, 'transaction_isolation'))}"
EXPECTED = (*(value.partition(",")[0] for value in SETTINGS.values()), "read committed")


@pytest.fixture
def odd(db: Db) -> None:
    """The database has settings that other applications may want."""
    name = db.info.dbname
    for setting, value in ODD.items():
        db.execute(f"ALTER DATABASE \"{name}\" SET {setting} = '{value}'")  # type: ignore[arg-type]


def current(connection: Connection, *, alone: bool) -> tuple[str, ...]:
    cursor = connection.cursor()
    with connection.at_once() if alone else connection.transaction():
        cursor.execute(CURRENT)  # type: ignore[arg-type]
    [row] = cursor.fetchall()
    return tuple(value.partition(",")[0] for value in row)


@pytest.mark.parametrize("alone", [True, False], ids=["one statement", "a transaction"])
@pytest.mark.parametrize("planned_once", [True, False])
def test_every_transaction_has_our_settings_and_leaves_none(
    alone: bool, planned_once: bool, odd: None, database_url: str
) -> None:
    with connections.connect(database_url, planned_once=planned_once) as connection:
        assert current(connection, alone=alone) == EXPECTED
        assert [name for (name,) in connection.execute(SET_HERE)] == ["application_name", "client_encoding"]


def test_a_statement_alone_takes_one_round_trip(database_url: str, tmp_path: Path) -> None:
    with connections.connect(database_url) as connection, (tmp_path / "trace").open("w+b") as trace:
        connection.pgconn.trace(trace.fileno())
        sql.on(connection, "ticker")("instant", now=None)
        connection.pgconn.untrace()
        sent = [line.split("\t")[3] for line in (tmp_path / "trace").read_text().splitlines() if "\tF\t" in line]
    assert (sent.count("Sync"), sent.count("Query")) == (1, 0)


def test_a_statement_that_fails_leaves_the_connection_usable(db: Db, database_url: str) -> None:
    task = ticker.register(db, "poll", every="1m")
    with connections.connect(database_url) as connection, db.transaction():
        db.execute("SELECT FROM ticker.tasks WHERE id = %s FOR UPDATE", [task.id])
        execute = sql.on(connection, "ticker")
        with pytest.raises(RowLocked), translated():
            execute("find_task", owner_type="", owner_id="", name="poll")
        with pytest.raises(DatabaseUnavailable, match="statement timeout"), translated(), connection.at_once():
            connection.execute("SELECT set_config('statement_timeout', '1ms', true)")
            connection.execute("SELECT pg_sleep(5)")
        assert execute("instant", now=None)
        with pytest.raises(DatabaseUnavailable), translated(), connection.transaction():
            connection.execute("SELECT set_config('statement_timeout', '1ms', true)")
            connection.execute("SELECT pg_sleep(5)")
        assert execute("instant", now=None)


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


def test_settings_of_the_database_change_nothing(
    odd: None, db: Db, settings: Settings, queue: RedisQueue, environ: dict[str, str]
) -> None:
    startup.check(settings)
    with connect(settings.database_url) as connection:
        task = ticker.register(connection, "plain", every="1m", kwargs={"channel_id": 1})
        connection.execute(
            "CREATE TABLE trace (id bigint GENERATED ALWAYS AS IDENTITY, what text, value jsonb, pid int)"
        )
        store = PostgresStore(settings.database_url)
        tick(store, queue)
        store.close()
        work()
        [run] = ticker.list_runs(connection)
        assert run.outcome == "succeeded" and run.occurrence == task.next_run
        assert health.look(settings).ahead is not None
        for command in (["list"], ["why", str(task.id)], ["runs", str(task.id)], ["show", str(task.id)], ["tick"]):
            assert CliRunner().invoke(main, command).exit_code == 0, command


def test_a_worker_without_jobs_holds_no_session(
    db: Db, store: PostgresStore, queue: RedisQueue, environ: dict[str, str], tmp_path: Path
) -> None:
    db.execute("CREATE TABLE trace (id bigint GENERATED ALWAYS AS IDENTITY, what text, value jsonb, pid int)")
    patch = "import wrappers.worker; wrappers.worker.IDLE = 1\nfrom wrappers.__main__ import main; main()"
    command = [sys.executable, "-c", patch, "--tasks", "tests.polls", "polling"]
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
