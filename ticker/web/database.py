"""What a request works with: one connection of a pool, whose every wait is bounded."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from ticker.connections import Pool
from ticker.settings import Settings


class Database:
    """The database that DATABASE_URL names; nothing is connected before the first request."""

    def __init__(self, settings: Settings) -> None:
        self._pool = Pool(settings.require_database(), name="ticker-web")

    @contextmanager
    def reading(self) -> Iterator[psycopg.Connection[Any]]:
        """Every statement is planned for its own parameters: most of a list's filters are not given."""
        with self._pool.connection() as connection:
            connection.prepare_threshold = None
            yield connection

    @contextmanager
    def writing(self) -> Iterator[psycopg.Connection[Any]]:
        """One transaction: all of it, or nothing."""
        with self._pool.connection() as connection, connection.transaction():
            yield connection

    def close(self) -> None:
        self._pool.close()
