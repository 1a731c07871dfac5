"""Provides a temporary schema for a replay, on an embedded PostgreSQL or on your DATABASE_URL."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn
from uuid import uuid4

import psycopg

from ticker import embedded, migrations
from ticker.db import connections
from ticker.errors import ConfigurationError, DatabaseUnavailable
from ticker.settings import psycopg_url

PREFIX = "ticker_replay_"
SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Scratch:
    """Migrated tables that no other process uses, and a connection in autocommit mode."""

    url: str
    schema: str
    connection: connections.Connection

    def empty(self) -> None:
        """Empties the tables for the next timing table."""
        for table in ("tasks", "runs", "tickers"):
            self.connection.run(f'DELETE FROM "{self.schema}".{table}', [])


@contextmanager
def scratch(environ: Mapping[str, str] | None = None) -> Iterator[Scratch]:
    """Creates a schema on DATABASE_URL, or on an embedded server if that is unset or empty. Removes it at the end.

    Within the block, TICKER_SCHEMA names the schema. Raises ConfigurationError if the server does not answer or cannot
    be started.
    """
    environ = os.environ if environ is None else environ
    with ExitStack() as at_the_end:
        given = environ.get("DATABASE_URL", "")
        url = psycopg_url(given) if given else at_the_end.enter_context(embedded.postgres(environ)).url
        schema = f"{PREFIX}{uuid4().hex[:12]}"
        at_the_end.enter_context(interruptible())
        connection = at_the_end.enter_context(closing(_connected(url)))
        at_the_end.callback(_drop, url, schema)
        migrations.upgrade(url, schema)
        at_the_end.enter_context(_named(schema))
        yield Scratch(url, schema, connection)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turns SIGTERM and SIGHUP into KeyboardInterrupt within the block, so that the schema is removed."""
    before = {number: signal.signal(number, _interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _connected(url: str) -> connections.Connection:
    """Returns a connection. Raises ConfigurationError if the server does not answer."""
    try:
        with connections.translated():
            return connections.connect(url, name="ticker-replay")
    except DatabaseUnavailable as error:
        raise ConfigurationError(str(error)) from error


def _drop(url: str, schema: str) -> None:
    """Drops the schema on a connection of its own, as the other one may be in the middle of a statement."""
    try:
        with connections.connect(url, name="ticker-replay") as connection:
            connection.run(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE', [])
    except psycopg.Error as error:
        reason = connections.first_line(error)
        raise DatabaseUnavailable(
            f"schema {schema} could not be dropped: {reason}; run: DROP SCHEMA {schema} CASCADE"
        ) from error


@contextmanager
def _named(schema: str) -> Iterator[None]:
    before = os.environ.get("TICKER_SCHEMA")
    os.environ["TICKER_SCHEMA"] = schema
    try:
        yield
    finally:
        if before is None:
            del os.environ["TICKER_SCHEMA"]
        else:
            os.environ["TICKER_SCHEMA"] = before
