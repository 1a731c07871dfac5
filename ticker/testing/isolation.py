"""Provides servers on which tests cannot touch other data: a schema of their own, and a Redis database that was empty."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from uuid import uuid4

from ticker import embedded, migrations, settings
from ticker.db import installation, sql
from ticker.db.connections import connect
from ticker.errors import ConfigurationError
from ticker.settings import Settings, psycopg_url
from ticker.testing.queues import claimed

PREFIX = "ticker_testing_"
ENVIRONMENT = "ticker.testing"  # TICKER_ENVIRONMENT of the tables that the kit creates; it empties no others


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers that kits use: a database, a schema without tables, and an empty Redis database.

    The first kit creates the tables, and each kit begins by deleting their rows. It refuses tables that no kit created.
    Without `empties_tables`, it uses the tables of the schema as they are.
    """

    database_url: str
    redis_url: str
    schema: str
    empties_tables: bool = True

    @property
    def environ(self) -> dict[str, str]:
        """The variables that name the servers, the schema, and the environment of the kit's tables."""
        variables = {"DATABASE_URL": self.database_url, "REDIS_URL": self.redis_url, "TICKER_SCHEMA": self.schema}
        return variables | {"TICKER_ENVIRONMENT": ENVIRONMENT} if self.empties_tables else variables


@contextmanager
def servers(environ: Mapping[str, str] | None = None) -> Iterator[Servers]:
    """Uses DATABASE_URL and REDIS_URL from `environ`. Starts an embedded server for each one that is missing or empty.

    In the database, the tables are in a new schema `ticker_testing_...`, which the end of the block drops. The Redis
    database must be empty, and is empty again after the block.

    Raises ConfigurationError if a server is missing or cannot be started, or if the Redis database is not empty.
    """
    environ = os.environ if environ is None else environ
    schema = f"{PREFIX}{uuid4().hex[:12]}"
    with ExitStack() as at_the_end:
        given = environ.get("DATABASE_URL", "")
        url = psycopg_url(given) if given else at_the_end.enter_context(embedded.postgres(environ)).url
        redis_url = at_the_end.enter_context(redis(environ))
        at_the_end.callback(_drop, url, schema)
        create_tables(url, schema)
        yield Servers(url, redis_url, schema)


@contextmanager
def redis(environ: Mapping[str, str]) -> Iterator[str]:
    """Yields the URL of an empty Redis database: that of REDIS_URL, or of an embedded server if that is missing or
    empty.
    """
    with ExitStack() as at_the_end:
        url = environ.get("REDIS_URL") or at_the_end.enter_context(embedded.valkey(environ)).url
        at_the_end.enter_context(claimed(url))
        yield url


def create_tables(url: str, schema: str) -> None:
    """Creates or upgrades the kit's tables. Raises ConfigurationError if the schema has tables that no kit created."""
    with closing(connect(url, name="ticker-testing")) as connection:
        [row] = connection.run("SELECT to_regclass($1) AS found", [f'"{schema}".installation'])
        here = installation.read(sql.on(connection, schema)) if row["found"] else None
        if here and here.environment != ENVIRONMENT:
            server = connection.info
            raise ConfigurationError(
                f"DATABASE_URL: the test kit deletes all rows, and the tables in schema {schema!r} of {server.host}:{server.port}"
                f"/{server.dbname} belong to {here.in_words}: name a schema without tables, and the kit creates its own there"
            )
    with settings.use(Settings(environment=ENVIRONMENT)):
        migrations.upgrade(url, schema)


def _drop(url: str, schema: str) -> None:
    with connect(url, name="ticker-testing") as connection:
        connection.run(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE', [])
