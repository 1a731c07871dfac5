"""What a request works with: one connection of a pool, whose every wait is bounded."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ticker.db.connections import Connection
from ticker.db.pool import Pool
from ticker.read.health import POSTGRESQL, CircuitBreaker
from ticker.settings import Settings


class Database:
    """The database that DATABASE_URL names. Connects only at the first request, and not while `breaker` knows that the
    database hangs."""

    def __init__(self, settings: Settings, breaker: CircuitBreaker) -> None:
        self._pool = Pool(settings.require_database(), name="ticker-web")
        self._breaker = breaker

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Every statement is planned for its own parameters: most of a list's filters are not given."""
        with self._alive() as connection:
            connection.prepares_after = None
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction: all of it, or nothing."""
        with self._alive() as connection, connection.transaction():
            yield connection

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def _alive(self) -> Iterator[Connection]:
        """One that the server has not ended meanwhile: after its restart, no request shall fail for each spare one."""
        with self._breaker.asking(POSTGRESQL), ExitStack() as stack:
            while not (connection := stack.enter_context(self._pool.connection())).is_alive:
                connection.close()
            yield connection
