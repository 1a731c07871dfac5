"""Reads the settings of a command, opens its database transaction, and names its user."""

import getpass
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ticker import clock, settings
from ticker.cli.options import ref
from ticker.errors import ConfigurationError, DatabaseUnavailable, UnknownTask
from ticker.read import entries
from ticker.schedules import once
from ticker.settings import Settings

if TYPE_CHECKING:
    from ticker.db.connections import Connection
    from ticker.db.store import PostgresStore

T = TypeVar("T")
EVERY = 0.25  # seconds between two queries of `awaited`


def configured(**options: str | None) -> Settings:
    """Returns the settings from the environment. Options override them: `tick="10s"` is --tick, and replaces
    TICKER_TICK.
    """
    given = {f"TICKER_{name.upper()}": text for name, text in options.items() if text is not None}
    try:
        return settings.from_environment({**os.environ, **given})
    except ConfigurationError as error:
        variable, _, problem = str(error).partition(":")
        if variable not in given:
            raise
        option = variable.removeprefix("TICKER_").lower().replace("_", "-")
        raise click.UsageError(f"--{option}:{problem}") from None


@contextmanager
def connected(url: str = "", variable: str = "DATABASE_URL") -> "Iterator[Connection]":
    """Opens a connection to `url`, or by default to DATABASE_URL.

    Raises ConfigurationError if the server does not answer, and DatabaseUnavailable if it goes away.
    """
    from ticker.db import connections

    url = url or configured().require_database()
    try:
        with connections.translated(variable):
            connection = connections.connect(url, name="ticker-cli", variable=variable)
    except DatabaseUnavailable as error:
        raise ConfigurationError(str(error)) from error
    with connections.translated(variable), closing(connection):
        yield connection


@contextmanager
def database(url: str = "", variable: str = "DATABASE_URL") -> "Iterator[Connection]":
    """Opens such a connection, and begins a transaction."""
    with connected(url, variable) as connection, connection.transaction():
        yield connection


@contextmanager
def on_task(task: str | None, owner: str | None) -> "Iterator[tuple[Connection, Any]]":
    """Begins a transaction, and yields it with the id or the name of the task. Suggests --owner if no task without an
    owner has the name.
    """
    named = ref(task, owner)
    try:
        with database() as db:
            yield db, named
    except UnknownTask as error:
        if isinstance(named, str) and owner is None:
            raise UnknownTask(f"{error} without an owner; for an owner's task, add --owner type:id") from None
        raise


def require_answer() -> None:
    """Raises ConfigurationError if the database server does not answer."""
    with database():
        pass


def awaited(look: Callable[[Any], T], is_over: Callable[[T, float], bool]) -> T:
    """Repeats `look(db)` until `is_over(answer, waited)` is true of its answer, and returns that. `waited` is in seconds,
    up to the beginning of the query.
    """
    began, pause = clock.monotonic(), threading.Event()
    while True:
        waited = clock.monotonic() - began
        with database() as db:
            answer = look(db)
        if is_over(answer, waited):
            return answer
        pause.wait(EVERY)


@contextmanager
def store(settings: Settings) -> "Iterator[PostgresStore]":
    from ticker.db.store import PostgresStore

    with closing(PostgresStore(settings.require_database(), settings.schema)) as opened:
        yield opened


def instant(db: Any, option: str, text: str | None) -> datetime | None:
    """Returns the value of an option: a time, or a duration from now by the database's clock."""
    return None if text is None else once.instant(option, text, lambda: entries.instant(db))


def user() -> str:
    """Returns the name of the user who runs this process, or the uid if the user has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid {os.getuid()}"
