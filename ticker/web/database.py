"""Gives each request a database connection from a pool, with bounded waits."""

from collections.abc import Iterator
from contextlib import contextmanager

from ticker.db.connections import Connection
from ticker.db.pool import Pool
from ticker.read.health import POSTGRESQL, CircuitBreaker
from ticker.settings import Settings


class Database:
    """The database that DATABASE_URL names. Connects at the first request, but not while `breaker` knows that the database
    hangs."""

    def __init__(self, settings: Settings, breaker: CircuitBreaker) -> None:
        self._pool = Pool(settings.require_database(), name="ticker-web")
        self._breaker = breaker

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yields a connection that plans each statement for its own parameters, as most filters of a list are unset."""
        with self._breaker.asking(POSTGRESQL), self._pool.connection() as connection:
            connection.prepares_after = None
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yields a connection within a transaction."""
        with self._breaker.asking(POSTGRESQL), self._pool.connection() as connection, connection.transaction():
            yield connection

    def close(self) -> None:
        self._pool.close()
