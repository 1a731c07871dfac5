"""What a command works with: the settings, and one transaction in the database that they name."""

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
    """The settings of the environment, and over them the options that were given: `tick="10s"` is --tick, TICKER_TICK."""
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
    """One transaction, in DATABASE_URL unless `url` is given. ConfigurationError: no server was there; DatabaseUnavailable: it went away."""
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
    """The instant, by the clock that decides: the database's."""
    from ticker.read import entries

    return entries.instant(db)
