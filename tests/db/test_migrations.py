"""The migrations create what `tables.define` says, once, whoever runs them and under whatever schema name."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from alembic import command
from rq import SimpleWorker

import ticker
from tests.conftest import admin, of_database
from ticker import migrations
from ticker.db import tables
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.embedded import Servers
from ticker.engine.tick import tick
from ticker.errors import BadInput, ConfigurationError

TABLES = ("tasks", "runs", "tickers", "events", "notices", "templates", "functions", "installation")


@pytest.fixture
def empty_url(servers: Servers) -> Iterator[str]:
    """A database in which nobody has created anything."""
    name = f"ticker_empty_{uuid4().hex[:12]}"
    admin(servers, f'CREATE DATABASE "{name}"')
    yield of_database(servers.database_url, name)
    admin(servers, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def empty(empty_url: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(empty_url) as connection:
        yield connection


def look(db: psycopg.Connection[Any], schema: str) -> dict[str, set[Any]]:
    """All that makes up the tables: columns in their order, constraints, indexes, domains, as PostgreSQL prints them."""
    columns = """
        SELECT table_name, row_number() OVER (PARTITION BY table_name ORDER BY ordinal_position), column_name, data_type, udt_name, domain_name, is_nullable, column_default,
            is_identity, identity_generation, character_maximum_length
        FROM information_schema.columns WHERE table_schema = %s AND table_name = ANY (%s)"""
    constraints = """
        SELECT r.relname, c.conname, pg_get_constraintdef(c.oid), c.convalidated
        FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid
        WHERE c.connamespace = %s::regnamespace AND r.relname = ANY (%s)"""
    indexes = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = %s AND tablename = ANY (%s)"
    found = {
        name: set(db.execute(query, [schema if name != "constraints" else f'"{schema}"', list(TABLES)]).fetchall())
        for name, query in [("columns", columns), ("constraints", constraints), ("indexes", indexes)]
    }
    domains = """
        SELECT t.typname, format_type(t.typbasetype, t.typtypmod), pg_get_constraintdef(c.oid)
        FROM pg_type t JOIN pg_constraint c ON c.contypid = t.oid WHERE t.typnamespace = %s::regnamespace"""
    options = "SELECT relname, reloptions FROM pg_class WHERE relnamespace = %s::regnamespace AND relname = ANY (%s)"
    found["options"] = {(name, *(said or ())) for name, said in db.execute(options, [f'"{schema}"', list(TABLES)])}
    found["domains"] = set(db.execute(domains, [f'"{schema}"']).fetchall())
    found["indexes"] = {(*names, text.replace(f" ON {schema}.", " ON ")) for *names, text in found["indexes"]}
    return found


# ------------------------------------------------------------------------------------------------- what they create


def test_the_migrated_tables_equal_those_that_the_code_defines(db, database_url):
    db.execute("CREATE SCHEMA defined")
    engine = migrations.engine(database_url)
    tables.define("defined").create_all(engine)
    migrated, defined = look(db, "ticker"), look(db, "defined")
    assert {name for _, name, *_ in migrated["constraints"]} >= {
        "tasks_fit",
        "tasks_waiting",
        "runs_ended",
        "tasks_pkey",
    }
    assert {name for _, name, _ in migrated["indexes"]} >= {"tasks_due", "runs_one_record", "tasks_owner_name"}
    assert {name for name, *_ in migrated["domains"]} == {f"ticker_{name}" for name in tables.RULES}
    assert ("tasks", "fillfactor=85") in migrated["options"]
    assert len(migrated["columns"]) == sum(len(table.columns) for table in tables.define().tables.values())
    assert migrated == defined


def test_no_index_is_there_twice_under_two_names(db):
    definitions = [re.sub(r"INDEX \w+ ON", "INDEX ON", text) for *_, text in look(db, "ticker")["indexes"]]
    assert len(set(definitions)) == len(definitions)


def functions(db: psycopg.Connection[Any]) -> list[Any]:
    return db.execute(
        "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'ticker'::regnamespace ORDER BY proname"
    ).fetchall()


def test_the_ddl_alone_creates_what_an_upgrade_creates(db, empty, empty_url):
    empty.execute(migrations.ddl())
    assert look(empty, "ticker") == look(db, "ticker")
    assert functions(empty) == functions(db)
    assert migrations.problems(empty_url) == []


def test_an_upgrade_after_the_ddl_changes_nothing(empty, empty_url):
    empty.execute(migrations.ddl())
    before = look(empty, "ticker")
    migrations.upgrade(empty_url)
    assert look(empty, "ticker") == before


def test_an_upgrade_may_run_again_at_any_time_and_keeps_what_is_there(db, database_url):
    ticker.register(db, "poll", every="1m")
    before = look(db, "ticker")
    migrations.upgrade(database_url)
    migrations.upgrade(database_url)
    assert look(db, "ticker") == before
    assert db.execute("SELECT version_num FROM ticker.ticker_version").fetchall() == [(migrations.newest(),)]
    assert [task.name for task in ticker.list_tasks(db)] == ["poll"]


def test_five_upgrades_at_once_of_an_empty_database_create_it_once(empty, empty_url, db):
    """All five wait at the same lock until it is let go."""
    waiting = """SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
        WHERE datname = current_database() AND locktype = 'advisory' AND objid = %s AND NOT granted"""
    with ThreadPoolExecutor(5) as pool:
        with empty.transaction():
            empty.execute("SELECT pg_advisory_xact_lock(%s)", [migrations.UPGRADE_LOCK])
            upgrades = [pool.submit(migrations.upgrade, empty_url) for _ in range(5)]
            while empty.execute(waiting, [migrations.UPGRADE_LOCK]).fetchone() != (5,):
                assert not any(upgrade.done() for upgrade in upgrades)
        assert [upgrade.result(timeout=60) for upgrade in upgrades] == [None] * 5
    assert look(empty, "ticker") == look(db, "ticker")
    assert migrations.problems(empty_url) == []


def test_an_upgrade_that_fails_leaves_nothing_behind(empty, empty_url):
    empty.execute("CREATE SCHEMA ticker; CREATE TABLE ticker.tickers (id int)")
    with pytest.raises(ConfigurationError, match='relation "tickers" already exists'):
        migrations.upgrade(empty_url)
    assert empty.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'ticker'").fetchall() == [("tickers",)]


def test_the_application_may_have_migrations_of_its_own_in_the_same_schema(empty, empty_url):
    empty.execute("CREATE TABLE alembic_version (version_num text); INSERT INTO alembic_version VALUES ('abc')")
    empty.execute("CREATE TABLE channels (id int)")
    migrations.upgrade(empty_url, "public")
    assert migrations.problems(empty_url, "public") == []
    assert empty.execute("SELECT version_num FROM alembic_version").fetchall() == [("abc",)]


# ------------------------------------------------------------------------------------------------- what does not fit


def test_a_database_that_fits_has_no_problems(database_url):
    assert migrations.problems(database_url) == []


def test_an_empty_database_is_named(empty_url):
    assert migrations.problems(empty_url) == ["schema ticker has no tables; run: ticker db upgrade"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("ALTER TABLE ticker.tasks DROP COLUMN declared_in", "column tasks.declared_in is missing"),
        ("DROP INDEX ticker.tasks_due", "index tasks_due is missing"),
        ("DROP TABLE ticker.tickers", "table tickers is missing"),
        ("ALTER TABLE ticker.tasks DROP CONSTRAINT tasks_owner_name", "constraint tasks_owner_name is missing"),
        (
            "ALTER TABLE ticker.tasks ALTER queue DROP NOT NULL",
            "column tasks.queue has another type or default, or may be null",
        ),
        ("ALTER TABLE ticker.runs ALTER pid TYPE text", "column runs.pid has another type or default, or may be null"),
    ],
)
def test_what_is_missing_is_named_in_a_sentence(change, problem, db, database_url):
    db.execute(change)
    assert migrations.problems(database_url) == [f"schema ticker: {problem}; see: ticker db sql"]


def test_what_somebody_added_is_no_problem(db, database_url):
    db.execute("ALTER TABLE ticker.tasks ADD COLUMN note text; CREATE INDEX ON ticker.runs (created_at)")
    db.execute("CREATE TABLE ticker.of_mine (id int); CREATE TABLE tasks (id int)")
    assert migrations.problems(database_url) == []


def test_a_revision_of_a_newer_ticker_is_named_and_left_alone(db, database_url):
    db.execute("UPDATE ticker.ticker_version SET version_num = '9999'")
    assert migrations.problems(database_url) == [
        f"schema ticker is at revision 9999, and {migrations.newest()} is needed; run: ticker db upgrade"
    ]
    with pytest.raises(ConfigurationError, match=r"^schema ticker cannot be upgraded by this ticker: .*9999"):
        migrations.upgrade(database_url)


def test_a_user_who_may_not_create_anything_is_told_so_in_a_sentence(empty, empty_url):
    role = f"weak_{uuid4().hex[:12]}"
    empty.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
    try:
        with pytest.raises(
            ConfigurationError, match=r"^DATABASE_URL: permission denied for database ticker_empty_\w+$"
        ):
            migrations.upgrade(re.sub("//([^@/]*@)?", f"//{role}:{role}@", empty_url, count=1))
    finally:
        empty.execute(f"DROP ROLE {role}")


# ----------------------------------------------------------------------------------------------------- schema names


@pytest.mark.parametrize("schema", ["jobs", "Jobs_2", "select"])
def test_another_schema_works_from_the_upgrade_to_the_record_of_a_run(
    schema, empty, empty_url, environ, redis, queue, function, monkeypatch
):
    monkeypatch.setenv("DATABASE_URL", empty_url)
    monkeypatch.setenv("TICKER_SCHEMA", schema)
    monkeypatch.setenv("TICKER_HARD_LIMIT", "off")
    calls: list[int] = []
    function("poll")(lambda: calls.append(1))
    migrations.upgrade(empty_url, schema)
    ticker.register(empty, "poll", every="1m")
    store = PostgresStore(empty_url, schema)
    assert tick(store, queue).enqueued == 1
    store.close()
    SimpleWorker(["polling"], connection=redis).work(burst=True, logging_level="ERROR")
    assert calls == [1]
    assert [run.outcome for run in ticker.list_runs(empty)] == ["succeeded"]
    assert migrations.problems(empty_url, schema) == []
    assert empty.execute("SELECT to_regnamespace('ticker')").fetchone() == (None,)


def test_two_schemas_in_one_database_know_nothing_of_each_other(db, database_url):
    migrations.upgrade(database_url, "second")
    db.execute("DROP TABLE second.tickers")
    assert migrations.problems(database_url) == []
    assert migrations.problems(database_url, "second") == [
        "schema second: table tickers is missing; see: ticker db sql"
    ]


def test_an_upgrade_of_tables_in_use_leaves_each_occurrence_one_record_and_the_job_that_carries_it(empty, empty_url):
    upgrade_to("0005", empty_url)
    due = datetime(2026, 3, 1, 12, tzinfo=UTC)
    empty.execute(
        "INSERT INTO ticker.tasks (name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue, next_run, waiting, carrier)"
        " VALUES ('a', 'poll', 'interval', 60000, 5000, 30000, 1000, 'polling', %(due)s, %(waiting)s, 'b1'),"
        " ('b', 'poll', 'interval', 60000, 5000, 30000, 1000, 'polling', %(due)s, '{}', 'b1')",
        {"due": due, "waiting": [due - timedelta(minutes=1), due]},
    )
    empty.execute(
        "INSERT INTO ticker.runs (task_id, kind, state, outcome, reason, occurrence, started_at, ended_at) VALUES"
        " (1, 'scheduled', 'ended', 'dropped', 'expired', %(due)s, NULL, %(due)s),"
        " (1, 'scheduled', 'ended', 'succeeded', '', %(due)s, %(due)s, %(due)s),"
        " (1, 'scheduled', 'ended', 'dropped', 'duplicate', %(due)s, NULL, %(due)s),"
        " (1, 'manual', 'ended', 'succeeded', '', NULL, %(due)s, %(due)s)",
        {"due": due},
    )
    migrations.upgrade(empty_url)
    assert migrations.problems(empty_url) == []
    assert empty.execute("SELECT id, outcome FROM ticker.runs ORDER BY id").fetchall() == [
        (2, "succeeded"), (4, "succeeded"),
    ]  # fmt: skip
    micros = str(int(due.timestamp() * 1_000_000))
    assert empty.execute("SELECT batch_jobs FROM ticker.tasks ORDER BY id").fetchall() == [({micros: "b1"},), (None,)]


def upgrade_to(revision, url):
    with migrations.engine(url).connect() as connection, connection.begin():
        connection.exec_driver_sql("CREATE SCHEMA ticker")
        command.upgrade(migrations.config("ticker", connection), revision)


@pytest.mark.parametrize(
    "schema",
    [
        "",
        " ",
        "a b",
        'a"b',
        "a;b",
        "a.b",
        "1a",
        "a-b",
        "schémä",
        "a" * 64,
        "pg_temp",
        "information_schema",
        "a\n",
        "%s",
    ],
)
def test_what_is_no_schema_name_is_refused_before_anything_is_done(schema):
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing"
    for use in (migrations.ddl, lambda name: migrations.upgrade(nowhere, name)):
        with pytest.raises(BadInput, match="is no schema name"):
            use(schema)
