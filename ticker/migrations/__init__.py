"""Creates and checks the tables: `ticker db upgrade | sql | check`. Alembic is imported here and nowhere else."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from ticker import tables
from ticker.settings import psycopg_url
from ticker.sql import statements
from ticker.store import translated

UPGRADE_LOCK = 0x7469636B  # any number, as long as it is the same for all who upgrade
CONNECT_TIMEOUT = 5  # seconds
OLDEST_SERVER = 15


def engine(url: str) -> sa.Engine:
    """An engine of our own, for one short piece of work."""
    address = psycopg_url(url).replace("postgresql://", "postgresql+psycopg://", 1)
    return sa.create_engine(address, poolclass=sa.NullPool, connect_args={"connect_timeout": CONNECT_TIMEOUT})


def upgrade(url: str, schema: str = "ticker") -> None:
    """Brings the schema to the newest revision; any number of processes may do it at once, any number of times."""
    with _connected(url) as connection, connection.begin():
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": UPGRADE_LOCK})
        connection.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        command.upgrade(config(schema, connection), "head")


def ddl(schema: str = "ticker") -> str:
    """The DDL that `upgrade` runs on an empty database."""
    out = io.StringIO()
    out.write(f'CREATE SCHEMA IF NOT EXISTS "{schema}";\n\n')
    command.upgrade(config(schema, output=out), "head", sql=True)
    return out.getvalue()


def problems(url: str, schema: str = "ticker") -> list[str]:
    """What keeps the database from fitting, a sentence each; empty when it fits."""
    with _connected(url) as connection:
        version = int(connection.exec_driver_sql("SHOW server_version_num").scalar_one()) // 10_000
        if version < OLDEST_SERVER:
            return [f"PostgreSQL {version} is too old; {OLDEST_SERVER} or newer is needed"]
        context = MigrationContext.configure(
            connection,
            opts={"version_table_schema": schema, "include_schemas": True, "include_name": _only(schema)},
        )
        current, head = context.get_current_revision(), newest(schema)
        if current != head:
            return [f"schema {schema} is at revision {current}, and {head} is needed; run: ticker db upgrade"]
        found = compare_metadata(context, tables.define(schema))
        return [f"schema {schema} is not as revision {head} left it: {difference}" for difference in found]


def newest(schema: str = "ticker") -> str | None:
    return ScriptDirectory.from_config(config(schema)).get_current_head()


def config(schema: str, connection: sa.Connection | None = None, output: io.StringIO | None = None) -> Config:
    statements(schema)  # refuses what is no schema name
    result = Config(output_buffer=output) if output else Config()
    result.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    result.set_main_option("path_separator", "os")
    result.attributes["connection"] = connection
    result.attributes["schema"] = schema
    return result


@contextmanager
def _connected(url: str) -> Iterator[sa.Connection]:
    with translated():
        try:
            with engine(url).connect() as connection:
                yield connection
        except sa.exc.DBAPIError as error:
            raise (error.orig or error) from error


def _only(schema: str) -> Any:
    def include(name: str | None, kind: str, parents: Mapping[str, str | None]) -> bool:
        return name == schema if kind == "schema" else name != "alembic_version"

    return include
