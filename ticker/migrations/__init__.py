"""Creates and checks the tables: `ticker db upgrade | sql | check`. Alembic is imported only in this package."""

import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from threading import Event
from typing import Any

import psycopg
import sqlalchemy as sa
from alembic import command, op
from alembic import context as environment
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects.postgresql import DOMAIN
from sqlalchemy.types import TypeEngine

from ticker.db import checks, tables
from ticker.db.checks import NO_REVISION, Revision, check_revision, pending
from ticker.db.connections import OLDEST_POSTGRESQL, first_line, parameters, translated
from ticker.db.drivers import PATH
from ticker.errors import ConfigurationError, RowLocked
from ticker.settings import current, psycopg_url, schema_name

UPGRADE_LOCK = 0x7469636B  # any number that is the same for all processes that upgrade
LOCK_WAIT = 0.5  # seconds: others queue behind it, and after 1 s, PostgreSQL would look for a deadlock and end one
TRIES = 60
WAITS = 120 * TRIES  # attempts, an hour: another upgrade may build the indexes of many rows
VERSION_TABLE = "ticker_version"  # not alembic_version: the application may have its own in the same schema

SET_UP = (  # so that no schema, not even public, counts as the default; PostgreSQL 17 added transaction_timeout
    f"SELECT pg_catalog.set_config('search_path', '{PATH}', {{is_local}}), pg_catalog.set_config(name, '0', {{is_local}})"
    " FROM pg_catalog.pg_settings WHERE name IN"
    " ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')"
)
HOLDER = (
    f"SELECT max(pid) FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND granted AND (classid, objid) = (0, {UPGRADE_LOCK})"
    " AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())"
)
"""Returns the process id of the session that holds the lock of upgrades, or null."""
log = logging.getLogger("ticker")


def engine(url: str) -> sa.Engine:
    """Returns an engine for one short piece of work. libpq reads the URL, as it does for the ticker."""
    address = psycopg_url(url)

    def connect() -> psycopg.Connection[Any]:
        """Connects without prepared statements, which would stay in a pooler's session.

        SQLAlchemy reads the default schema, then rolls back.
        """
        connection = psycopg.connect(prepare_threshold=None, **parameters(address))
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.execute(SET_UP.format(is_local=True))
        return connection

    return sa.create_engine("postgresql+psycopg://", poolclass=sa.NullPool, creator=connect)


def upgrade(url: str, schema: str = "ticker") -> str:
    """Upgrades the schema to the newest revision. Any number of processes may call it at once, any number of times.

    Each revision is a transaction, which waits for a lock for up to half a second and is then tried again. All tables
    are created in one. Returns the revision of the tables, which a newer release that still works with this one may have
    upgraded. Waits for another upgrade for up to an hour.
    """
    schema_name("schema", schema)
    tries, waits, holder = 0, 0, None
    while True:
        check_wait(waits, holder)
        try:
            with connected(url) as connection:
                holder = connection.exec_driver_sql(HOLDER).scalar_one()
                if not _is_alone(connection):
                    connection.rollback()
                    waits += 1
                    continue
                waits = 0
                connection.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
                there = revision_of(connection, schema)
                if not (left := pending(there, schema)):
                    return there.name
                is_new = there == NO_REVISION
                command.upgrade(config(schema, connection, is_new=is_new), left[-1] if is_new else left[0])
            tries = 0
        except RowLocked as error:
            tries += 1
            if tries == TRIES:
                raise RowLocked(
                    f"schema {schema}: the next revision was not applied: in each of {TRIES} attempts of {LOCK_WAIT} s,"
                    " another transaction held a lock that it needs; end long transactions, which"
                    " pg_stat_activity lists, and run: ticker db upgrade"
                ) from error
            Event().wait(LOCK_WAIT)  # transactions that waited for this attempt come first


def check_wait(attempts: int, holder: int | None) -> None:
    """Warns once, after half a minute, that another session holds the lock of upgrades. Raises RowLocked after an hour."""
    if attempts not in (TRIES, WAITS):
        return
    sentence = (
        f"in each of {attempts} attempts of {LOCK_WAIT} s, another session held the lock of upgrades; unless it upgrades the"
        f" tables, run: SELECT pg_terminate_backend({holder})"
    )
    if attempts == WAITS:
        raise RowLocked(f"the tables were not upgraded: {sentence}")
    log.warning("the upgrade waits: %s", sentence, extra={"event": "upgrade_waits"})


def _is_alone(connection: sa.Connection) -> bool:
    """Takes the lock of upgrades, or returns False. Does not wait for long, because CREATE INDEX CONCURRENTLY waits for
    a transaction that waits.
    """
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_WAIT}s'")
    try:
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": UPGRADE_LOCK})
    except sa.exc.OperationalError as error:
        if isinstance(error.orig, psycopg.errors.LockNotAvailable):
            return False
        raise
    return True


def revision_of(connection: sa.Connection, schema: str) -> Revision:
    if not MigrationContext.configure(connection, opts=options(schema)).get_current_heads():
        return NO_REVISION
    return checks.revision(connection.connection.driver_connection, schema)  # type: ignore[arg-type]


def ddl(schema: str = "ticker") -> str:
    """Returns the DDL that `upgrade` runs on an empty database."""
    schema_name("schema", schema)
    out = io.StringIO()
    out.write(f'CREATE SCHEMA IF NOT EXISTS "{schema}";\n\n')
    command.upgrade(config(schema, output=out), "head", sql=True)
    return out.getvalue()


def script(schema: str, start: str = "") -> str:
    """Returns the SQL of an upgrade from a revision, or from no tables, for the caller's transaction."""
    out = io.StringIO()
    if not start:  # there may be a table of versions without a row
        out.write(f'CREATE SCHEMA IF NOT EXISTS "{schema}";\nDROP TABLE IF EXISTS "{schema}".{VERSION_TABLE};\n')
    found = config(schema, output=out)
    found.attributes["transactional_ddl"] = False
    command.upgrade(found, f"{start or 'base'}:head", sql=True)
    return _keeping_search_path(out.getvalue())


def drop(schema: str) -> str:
    """Returns the SQL that drops the tables and all that belongs to them, for the caller's transaction."""
    text = (checks.VERSIONS.parent / "drop.sql").read_text(encoding="utf-8")
    return _keeping_search_path(f'SET LOCAL search_path TO "{schema}";\n{text}')


def include_name(name: str | None, kind: str, parents: Mapping[str, str | None]) -> bool:
    """Keeps an application's Alembic from dropping our tables: context.configure(..., include_name=include_name)."""
    schema = current().schema
    ours = {VERSION_TABLE, *(table.name for table in tables.metadata.tables.values())}
    return not (kind == "table" and name in ours and (parents.get("schema_name") or "public") == schema)


def run(folder: str) -> None:
    """Runs a revision's SQL, or prints it for `ddl`. It does not use op.execute, which reads :name as a parameter."""
    attributes = environment.config.attributes
    text = (
        sql_of(folder)
        .replace("{schema}", f'"{attributes["schema"]}"')
        .replace("{environment}", attributes["environment"])
    )
    if environment.is_offline_mode() or attributes["is_new"]:  # all in one transaction
        text = text.replace(" CONCURRENTLY", "")
    if environment.is_offline_mode():
        op.get_context().impl.static_output(text)
    elif "CONCURRENTLY" in text:  # each statement alone, while this transaction holds the lock of upgrades
        with closing(op.get_bind().engine.raw_connection()) as other:
            driver: Any = other.driver_connection
            driver.rollback()
            driver.autocommit = True
            driver.execute(SET_UP.format(is_local=False))
            for statement in statements(text):
                driver.execute(statement)
    else:
        op.get_bind().exec_driver_sql(text, execution_options={"no_parameters": True})  # % does not mark a parameter


def sql_of(folder: str) -> str:
    files = sorted((checks.VERSIONS / folder).glob("*.sql"))
    return "\n\n".join(file.read_text(encoding="utf-8") for file in files)


def statements(text: str) -> list[str]:
    """Returns the statements of a revision, without comments and the bodies of functions."""
    bare = re.sub(r"(?s:\$\$.*?\$\$|BEGIN ATOMIC.*?\nEND)|--.*", "", text)
    return [" ".join(statement.split()) for statement in bare.split(";") if statement.strip()]


def problems(url: str, schema: str = "ticker") -> list[str]:
    """Returns one sentence for each difference between the database and the requirements of this release."""
    with connected(url) as connection:
        version = int(connection.exec_driver_sql("SHOW server_version_num").scalar_one()) // 10_000
        if version < OLDEST_POSTGRESQL:
            return [f"PostgreSQL {version} is too old; {OLDEST_POSTGRESQL} or newer is needed"]
        if (there := revision_of(connection, schema)) == NO_REVISION:
            return [f"schema {schema} has no tables; run: ticker db upgrade"]
        try:
            check_revision(there, schema)
        except ConfigurationError as error:
            return [str(error)]
        context = MigrationContext.configure(connection, opts=options(schema))
        with warnings.catch_warnings(action="ignore"):  # a newer SQLAlchemy warns of what Alembic does
            differences = compare_metadata(context, tables.define(schema))
        return [
            f"schema {schema}: {words}; see: ticker db upgrade --sql" for words in map(_in_words, differences) if words
        ]


def newest(schema: str = "ticker") -> str | None:
    return ScriptDirectory.from_config(config(schema)).get_current_head()


def config(
    schema: str,
    connection: sa.Connection | None = None,
    output: io.StringIO | None = None,
    *,
    is_new: bool = False,
) -> Config:
    """Returns Alembic's configuration for the revisions. The tables store TICKER_ENVIRONMENT when they are created.

    `is_new` means that there are no tables yet, so no index needs to be built concurrently.
    """
    schema_name("schema", schema)
    result = Config(output_buffer=output) if output else Config()
    result.set_main_option("script_location", str(checks.VERSIONS.parent).replace("%", "%%"))
    result.set_main_option("path_separator", "os")
    result.attributes["connection"] = connection
    result.attributes["schema"] = schema
    result.attributes["is_new"] = is_new
    result.attributes["environment"] = current().environment
    return result


def options(schema: str) -> dict[str, Any]:
    """Returns the options with which Alembic compares only this schema."""
    return {
        "version_table": VERSION_TABLE,
        "version_table_schema": schema,
        "include_schemas": True,
        "include_name": _only(schema),
        "compare_type": _has_another_type,
    }


def _keeping_search_path(text: str) -> str:
    keep = "SELECT pg_catalog.set_config('ticker.search_path', pg_catalog.current_setting('search_path'), true);\n"
    restore = "SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('ticker.search_path'), true);\n"
    return f"{keep}{text}{restore}"


@contextmanager
def connected(url: str) -> Iterator[sa.Connection]:
    with translated():
        try:
            with engine(url).begin() as connection:
                connection.exec_driver_sql(SET_UP.format(is_local=True))
                yield connection
        except sa.exc.ProgrammingError as error:  # an option that libpq does not know, or a missing right
            raise ConfigurationError(f"DATABASE_URL: {first_line(error.orig or error)}") from error
        except sa.exc.DBAPIError as error:
            raise (error.orig or error) from error


def _only(schema: str) -> Any:
    def include(name: str | None, kind: str, parents: Mapping[str, str | None]) -> bool:
        return name == schema if kind == "schema" else True

    return include


def _has_another_type(
    _context: Any, _column: Any, column: sa.Column[Any], inspected: TypeEngine[Any], declared: TypeEngine[Any]
) -> bool | None:
    """Compares a domain by its name and its base type, which is the column's type in `tables`. None lets Alembic
    decide.
    """
    domain = column.info.get("domain")
    if not isinstance(inspected, DOMAIN):
        return True if domain else None
    return inspected.name != f"ticker_{domain}" or not isinstance(inspected.data_type, type(declared))


def _in_words(difference: Any) -> str:
    """Returns one of Alembic's differences in words, or an empty string for additional objects, which do no harm."""
    match difference:
        case [(_, _, table, column, *_), *_]:
            return f"column {table}.{column} has a different type or default, or may be null"
        case ("add_column", _, table, column):
            return f"column {table}.{column.name} is missing"
        case (("add_table" | "add_index" | "add_constraint") as kind, missing):
            return f"{kind.removeprefix('add_')} {missing.name} is missing"
    return ""
