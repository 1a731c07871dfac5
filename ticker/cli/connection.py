"""Reads the settings of a command and opens its database transaction."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ticker import settings
from ticker.errors import ConfigurationError, DatabaseUnavailable
from ticker.settings import Settings

if TYPE_CHECKING:
    from ticker.db.connections import Connection


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
def database(url: str = "", variable: str = "DATABASE_URL") -> "Iterator[Connection]":
    """Opens a connection to `url`, or by default to DATABASE_URL, and begins a transaction.

    Raises ConfigurationError if the server does not answer, and DatabaseUnavailable if it goes away.
    """
    from ticker.db import connections

    url = url or configured().require_database()
    try:
        with connections.translated(variable):
            connection = connections.connect(url, name="ticker-cli", variable=variable)
    except DatabaseUnavailable as error:
        raise ConfigurationError(str(error)) from error
    with connections.translated(variable), closing(connection), connection.transaction():
        yield connection


def now(db: Any) -> datetime:
    """Returns the current time by the database's clock."""
    from ticker.read import entries

    return entries.instant(db)
