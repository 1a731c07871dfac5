"""What a request works with: one connection of a pool, whose every wait is bounded."""

import select
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg

from ticker.connections import Pool
from ticker.health import POSTGRESQL, Silences
from ticker.settings import Settings


class Database:
    """The database that DATABASE_URL names; nothing is connected before the first request, nor while `silences` know that
    it hangs."""

    def __init__(self, settings: Settings, silences: Silences) -> None:
        self._pool = Pool(settings.require_database(), name="ticker-web")
        self._silences = silences

    @contextmanager
    def reading(self) -> Iterator[psycopg.Connection[Any]]:
        """Every statement is planned for its own parameters: most of a list's filters are not given."""
        with self._alive() as connection:
            connection.prepare_threshold = None
            yield connection

    @contextmanager
    def writing(self) -> Iterator[psycopg.Connection[Any]]:
        """One transaction: all of it, or nothing."""
        with self._alive() as connection, connection.transaction():
            yield connection

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def _alive(self) -> Iterator[psycopg.Connection[Any]]:
        """One that the server has not ended meanwhile: after its restart, no request shall fail for each spare one."""
        with self._silences.asking(POSTGRESQL), ExitStack() as stack:
            while has_news(connection := stack.enter_context(self._pool.connection())):
                connection.close()
            yield connection


def has_news(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server has sent something that nobody asked for: to a connection that waits, its end."""
    looked = select.poll()
    looked.register(connection.fileno(), select.POLLIN)
    return bool(looked.poll(0))
