"""The migrations create the tables, once, whoever runs them and under whatever schema name."""

import re
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from click.testing import CliRunner
from rq import SimpleWorker

import ticker
from tests.db.freeze import ddl_of_tables
from tests.db.look import TABLES, behaviour, look
from tests.sentences import sentence
from ticker import migrations
from ticker.cli import main
from ticker.db import checks, tables
from ticker.db.connections import connect
from ticker.db.json_text import NESTED_AT_MOST
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.errors import BadInput, ConfigurationError
from ticker.model import (
    BATCH_AT_MOST,
    COUNT_AT_MOST,
    INTERVALS_AT_MOST,
    JSON_AT_MOST,
    NAME_AT_MOST,
    OUTPUT_AT_MOST,
    PRIORITY_AT_MOST,
    RETRIES_AT_MOST,
    TEXT_AT_MOST,
    EventKind,
    Kind,
    Outcome,
    RunKind,
)
from ticker.queue import inspect
from ticker.schedules.duration import LONGEST


@pytest.fixture
def empty_url(new_database: Callable[[], str]) -> str:
    """A database in which nobody has created anything."""
    return new_database()


@pytest.fixture
def empty(empty_url: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(empty_url) as connection:
        yield connection


# ------------------------------------------------------------------------------------------------- what they create


@pytest.mark.slow
@pytest.mark.parametrize("schema", ["ticker", "jobs"])
@pytest.mark.smoke
def test_alembic_finds_no_difference_between_a_migrated_database_and_the_tables_for_applications(schema, empty_url):
    migrations.upgrade(empty_url, schema)
    options = {**migrations.options(schema), "compare_server_default": True}
    with migrations.engine(empty_url).connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Computed default on tasks.phase_ms")  # its formula stands in SQL only
            assert compare_metadata(context, tables.define(schema)) == []
        assert {f"{schema}.{name}" for name in sa.inspect(connection).get_table_names(schema)} == {
            f"{schema}.{migrations.VERSION_TABLE}", *tables.define(schema).tables,
        }  # fmt: skip


def test_the_tables_for_applications_are_those_that_the_revisions_create(db):
    """With what Alembic does not compare: the order of columns, CHECKs, and the fillfactor."""
    db.execute(f"CREATE SCHEMA other; SET search_path TO other, ticker; {ddl_of_tables()}")
    db.execute("SET search_path TO ticker")  # so that both are printed with bare names
    assert {kind: defined for kind, defined in look(db, "other").items() if kind != "domains"} == {
        kind: created for kind, created in look(db, "ticker").items() if kind != "domains"
    }


def test_the_domains_allow_exactly_what_the_code_allows(db):
    rules = {name.removeprefix("ticker_"): rule for name, _, rule in look(db, "ticker")["domains"]}
    deepest = {500, NESTED_AT_MOST + 2, 0}
    numbers = {
        "plain": {NAME_AT_MOST}, "named": {NAME_AT_MOST}, "short": {NAME_AT_MOST}, "prose": {TEXT_AT_MOST},
        "output": {OUTPUT_AT_MOST}, "duration": {0, LONGEST}, "span": {1000, LONGEST}, "box": {100, LONGEST},
        "count": {0, COUNT_AT_MOST}, "limit": {1, COUNT_AT_MOST}, "intervals": {1, INTERVALS_AT_MOST},
        "retries": {0, RETRIES_AT_MOST}, "priority": {-PRIORITY_AT_MOST, PRIORITY_AT_MOST}, "batch": {1, BATCH_AT_MOST},
        "object": {JSON_AT_MOST, *deepest}, "registered": {4 * JSON_AT_MOST, *deepest}, "readable": {JSON_AT_MOST, *deepest},
        "template": {8 * JSON_AT_MOST},
    }  # fmt: skip
    for domain, limits in numbers.items():
        assert {int(number) for number in re.findall(r"(?<!\w)-?\d+", rules[domain])} == limits, domain
    for domain, words in {"outcome": Outcome, "what": EventKind, "kind": Kind, "run_kind": RunKind}.items():
        assert set(re.findall(r"'(\w+)'::text", rules[domain])) == set(words), domain


def test_no_index_is_there_twice_under_two_names(db):
    definitions = [re.sub(r"INDEX \w+ ON", "INDEX ON", text) for *_, text in look(db, "ticker")["indexes"]]
    assert len(set(definitions)) == len(definitions)


@pytest.mark.slow
def test_the_ddl_alone_creates_what_an_upgrade_creates(db, empty, empty_url):
    empty.execute(migrations.ddl())
    assert look(empty, "ticker") == look(db, "ticker")
    assert behaviour(empty) == behaviour(db)
    assert migrations.problems(empty_url) == []


@pytest.mark.slow
def test_an_upgrade_after_the_ddl_changes_nothing(empty, empty_url):
    empty.execute(migrations.ddl())
    before = look(empty, "ticker")
    migrations.upgrade(empty_url)
    assert look(empty, "ticker") == before


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_tables_are_created_while_another_transaction_keeps_its_snapshot(empty_url):
    """An index that is built concurrently would wait for its end."""
    with psycopg.connect(empty_url) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("SELECT count(*) FROM pg_class")
        assert migrations.upgrade(empty_url) == migrations.newest()


@pytest.mark.slow
def test_an_upgrade_may_run_again_at_any_time_and_keeps_what_is_there(db, database_url):
    ticker.register(db, "poll", every="1m")
    before = look(db, "ticker")
    migrations.upgrade(database_url)
    migrations.upgrade(database_url)
    assert look(db, "ticker") == before
    assert db.execute("SELECT version_num FROM ticker.ticker_version").fetchall() == [(migrations.newest(),)]
    assert [task.name for task in ticker.list_tasks(db)] == ["poll"]


@pytest.mark.slow
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
        assert [upgrade.result(timeout=60) for upgrade in upgrades] == [migrations.newest()] * 5
    assert look(empty, "ticker") == look(db, "ticker")
    assert migrations.problems(empty_url) == []


@pytest.mark.slow
def test_an_upgrade_that_fails_leaves_nothing_behind(empty, empty_url):
    empty.execute("CREATE SCHEMA ticker; CREATE TABLE ticker.tickers (id int)")
    with pytest.raises(ConfigurationError, match='relation "tickers" already exists'):
        migrations.upgrade(empty_url)
    assert empty.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'ticker'").fetchall() == [("tickers",)]


@pytest.mark.slow
def test_the_application_may_have_migrations_of_its_own_in_the_same_schema(empty, empty_url):
    empty.execute("CREATE TABLE alembic_version (version_num text); INSERT INTO alembic_version VALUES ('abc')")
    empty.execute("CREATE TABLE channels (id int)")
    migrations.upgrade(empty_url, "public")
    assert migrations.problems(empty_url, "public") == []
    assert empty.execute("SELECT version_num FROM alembic_version").fetchall() == [("abc",)]


ENV = """
from alembic import context
from sqlalchemy import MetaData, create_engine
from ticker.migrations import include_name

engine = create_engine(context.config.get_main_option("url"))
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=MetaData(), include_schemas=True{})
    with context.begin_transaction():
        context.run_migrations()
"""
TEMPLATE = "revision, down_revision = ${repr(up_revision)}, None\ndef upgrade():\n    ${upgrades}\n"


@pytest.mark.slow
@pytest.mark.parametrize("schema", ["ticker", "public"])
@pytest.mark.parametrize(
    ("option", "dropped"), [(", include_name=include_name", 1), ("", len(TABLES) + 2)], ids=["with", "without"]
)
def test_an_autogenerated_revision_of_the_application_drops_its_own_tables_alone(
    option, dropped, schema, empty, empty_url, tmp_path, monkeypatch
):
    monkeypatch.setenv("TICKER_SCHEMA", schema)
    empty.execute("CREATE TABLE former (id int)")
    migrations.upgrade(empty_url, schema)
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(ENV.format(option))
    (tmp_path / "script.py.mako").write_text(TEMPLATE)
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "os")
    config.set_main_option("url", empty_url.replace("postgresql://", "postgresql+psycopg://").replace("%", "%%"))
    revision = command.revision(config, "all", autogenerate=True)
    assert Path(revision.path).read_text().count("op.drop_table(") == dropped


# ------------------------------------------------------------------------------------------------- what does not fit


@pytest.mark.slow
def test_a_database_that_fits_has_no_problems(database_url):
    assert migrations.problems(database_url) == []
    assert checks.are_as_frozen(database_url, "ticker")


@pytest.mark.slow
def test_an_empty_database_is_named(empty_url):
    assert migrations.problems(empty_url) == [sentence("db.no_tables", schema="ticker", remedy="ticker db upgrade")]
    assert not checks.are_as_frozen(empty_url, "ticker")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            "ALTER TABLE ticker.tasks DROP COLUMN declared_in",
            sentence(
                "db.column_is_missing", schema="ticker", column="tasks.declared_in", remedy="ticker db upgrade --sql"
            ),
        ),
        (
            "DROP INDEX ticker.tasks_due",
            sentence("db.thing_is_missing", schema="ticker", thing="index tasks_due", remedy="ticker db upgrade --sql"),
        ),
        (
            "DROP TABLE ticker.tickers",
            sentence("db.thing_is_missing", schema="ticker", thing="table tickers", remedy="ticker db upgrade --sql"),
        ),
        (
            "ALTER TABLE ticker.tasks DROP CONSTRAINT tasks_owner_name",
            sentence(
                "db.thing_is_missing",
                schema="ticker",
                thing="constraint tasks_owner_name",
                remedy="ticker db upgrade --sql",
            ),
        ),
        (
            "ALTER TABLE ticker.tasks ALTER queue DROP NOT NULL",
            sentence("db.column_differs", schema="ticker", column="tasks.queue", remedy="ticker db upgrade --sql"),
        ),
        (
            "ALTER TABLE ticker.tasks ALTER push_error TYPE text",
            sentence("db.column_differs", schema="ticker", column="tasks.push_error", remedy="ticker db upgrade --sql"),
        ),
        (
            "ALTER TABLE ticker.runs ALTER boot TYPE ticker.ticker_prose",
            sentence("db.column_differs", schema="ticker", column="runs.boot", remedy="ticker db upgrade --sql"),
        ),
        (
            "ALTER TABLE ticker.runs ALTER pid TYPE text",
            sentence("db.column_differs", schema="ticker", column="runs.pid", remedy="ticker db upgrade --sql"),
        ),
    ],
)
def test_what_is_missing_is_named_in_a_sentence(change, problem, db, database_url):
    db.execute(change)
    assert migrations.problems(database_url) == [problem]
    assert not checks.are_as_frozen(database_url, "ticker")


@pytest.mark.slow
def test_what_somebody_added_is_no_problem(db, database_url):
    db.execute("ALTER TABLE ticker.tasks ADD COLUMN of_mine text; CREATE INDEX ON ticker.runs (created_at)")
    db.execute("CREATE TABLE ticker.of_mine (id int); CREATE TABLE tasks (id int)")
    assert migrations.problems(database_url) == []


@pytest.mark.slow
def test_a_user_who_may_not_create_anything_is_told_so_in_a_sentence(empty, empty_url):
    role = f"weak_{uuid4().hex[:12]}"
    empty.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
    try:
        with pytest.raises(
            ConfigurationError,
            check=sentence(
                "errors.permission_denied", setting="DATABASE_URL", database=re.compile(r"ticker_test_\w+")
            ).__eq__,
        ):
            migrations.upgrade(re.sub("//([^@/]*@)?", f"//{role}:{role}@", empty_url, count=1))
    finally:
        empty.execute(f"DROP ROLE {role}")


# ----------------------------------------------------------------------------------------------------- schema names


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_a_check_prints_no_warning_of_a_library(db, database_url):
    assert migrations.problems(database_url) == []


@pytest.mark.slow
def test_two_schemas_in_one_database_know_nothing_of_each_other(db, database_url):
    migrations.upgrade(database_url, "second")
    db.execute("DROP TABLE second.tickers")
    assert migrations.problems(database_url) == []
    assert migrations.problems(database_url, "second") == [
        sentence("db.thing_is_missing", schema="second", thing="table tickers", remedy="ticker db upgrade --sql")
    ]


def refused_everywhere(refusal, db, environ):
    before = look(db, "ticker")
    assert migrations.problems(environ["DATABASE_URL"]) == [refusal]
    for arguments in ("db upgrade", "tick"):
        done = CliRunner().invoke(main, arguments.split())
        assert (done.exit_code, done.stdout) == (78, "")
        assert refusal == done.stderr.removeprefix("error: ").removesuffix("\n")
    assert look(db, "ticker") == before


@pytest.mark.slow
@pytest.mark.parametrize("revision", ["0000", "0001.00000000"])
def test_a_database_of_another_version_is_refused_in_one_sentence_and_left_alone(revision, db, environ):
    """An earlier one, and an earlier edition of the first revision, which did not have `oldest`."""
    db.execute("UPDATE ticker.ticker_version SET version_num = %s", [revision])
    if revision != "0000":
        db.execute("ALTER TABLE ticker.ticker_version DROP COLUMN oldest")
    refusal = sentence(
        "errors.unknown_revision", schema="'ticker'", revision=f"'{revision}'", newest=migrations.newest(),
        setting="TICKER_SCHEMA", remedy="ticker db upgrade",
    )  # fmt: skip
    refused_everywhere(refusal, db, environ)
    assert db.execute("SELECT version_num FROM ticker.ticker_version").fetchall() == [(revision,)]


@pytest.mark.slow
@pytest.mark.parametrize(("revision", "oldest"), [("0019", "0018"), ("9999", "9999")])
def test_a_later_revision_that_needs_a_later_release_is_refused_in_one_sentence(revision, oldest, db, environ):
    db.execute("UPDATE ticker.ticker_version SET version_num = %s, oldest = %s", [revision, oldest])
    refusal = sentence(
        "errors.needs_a_newer_release",
        schema="'ticker'",
        revision=f"'{revision}'",
        oldest=oldest,
        newest=migrations.newest(),
    )
    refused_everywhere(refusal, db, environ)
    assert db.execute("SELECT version_num, oldest FROM ticker.ticker_version").fetchall() == [(revision, oldest)]


@pytest.mark.slow
def test_a_release_works_with_a_later_revision_that_allows_it(db, environ, settings):
    """So that an old process can restart in the middle of a rolling upgrade, also by `ticker db upgrade && ticker run`."""
    db.execute("UPDATE ticker.ticker_version SET version_num = '9999'")
    assert migrations.problems(environ["DATABASE_URL"]) == []
    inspect.check(settings)
    done = CliRunner().invoke(main, ["db", "upgrade"])
    assert (done.exit_code, done.output) == (0, "schema ticker is at revision 9999\n")
    assert db.execute("SELECT version_num FROM ticker.ticker_version").fetchall() == [("9999",)]


@pytest.mark.slow
def test_a_drop_leaves_nothing_of_what_the_upgrade_made(empty, empty_url):
    migrations.upgrade(empty_url)
    empty.execute(migrations.drop("ticker"))
    left = """SELECT relname FROM pg_class WHERE relnamespace = 'ticker'::regnamespace
        UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'ticker'::regnamespace
        UNION ALL SELECT typname FROM pg_type WHERE typnamespace = 'ticker'::regnamespace"""
    assert empty.execute(left).fetchall() == []
    migrations.upgrade(empty_url)
    assert migrations.problems(empty_url) == []


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
        with pytest.raises(BadInput, check=sentence("errors.no_schema_name").within):
            use(schema)
