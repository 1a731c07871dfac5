"""Publishes signs of life between the ticks: why the ticks fail, and that a pass takes long.

Without them, a ticker whose server refuses writes looks like one that was killed, and so does one that pushes a
million tasks. The row is the place for both. If PostgreSQL fails, a key in Redis has the failure.
"""

import os
import socket
from contextlib import closing, suppress
from uuid import uuid4

from ticker import clock
from ticker.db import checks, connections, sql
from ticker.db.store import PostgresStore
from ticker.errors import ConfigurationError, DatabaseUnavailable, TickerError, escaped
from ticker.queue.rq import RedisQueue, TickFailure
from ticker.read.health import longest_silence
from ticker.settings import Settings

FAILURE_AT_MOST = 500  # characters
UNEXPECTED = "an internal error, {}; the traceback is in the log of the ticker"


def show_refusal(settings: Settings, error: Exception) -> None:
    """Shows in the tables, if they are ours, why this ticker does not start. Raises nothing."""
    with (
        suppress(TickerError),
        connections.translated(),
        closing(connections.connect(settings.require_database())) as db,
    ):
        checks.check_ours(db, checks.read_facts(db, settings.schema), settings)
        why = escaped(str(error))[:FAILURE_AT_MOST]
        sql.on(db, settings.schema)("show_refusal", host=socket.gethostname(), pid=os.getpid(), why=why)


class Signs:
    """The signs of one ticker, which has an id, a host and a process."""

    def __init__(self, store: PostgresStore, queue: RedisQueue, tick_ms: int) -> None:
        self.id, self.host, self.pid = str(uuid4()), socket.gethostname(), os.getpid()
        self._store, self._queue, self._tick_ms = store, queue, tick_ms
        self._failure, self._failing_since = "", 0.0
        self._is_published = True  # perhaps by the process before this one

    def failed(self, error: Exception) -> None:
        """Publishes a failed tick to the server that did not cause it, or else to the other one. Raises nothing."""
        self._failing_since = self._failing_since if self._failure else clock.monotonic()
        text = str(error) if isinstance(error, TickerError) else UNEXPECTED.format(type(error).__name__)
        self._failure, self._is_published = escaped(text)[:FAILURE_AT_MOST], True
        is_of_postgresql = isinstance(error, DatabaseUnavailable | ConfigurationError)
        places = (self._to_redis, self._to_row) if is_of_postgresql else (self._to_row, self._to_redis)
        for publish in places[: 1 if isinstance(error, ConfigurationError) else 2]:  # the tables may not be ours
            with suppress(TickerError):
                publish()
                return

    def succeeded(self) -> None:
        """Clears the failure, if any, in both places. Raises nothing: the next tick tries again."""
        self._failure = ""
        if self._is_published:
            with suppress(TickerError):
                self._to_row()
                self._to_redis()
                self._is_published = False

    def show_pass(self) -> None:
        """Shows that a pass goes on. Raises nothing."""
        with suppress(TickerError):
            self._to_row()

    def _to_row(self) -> None:
        self._store.show_sign(self.id, self.host, self.pid, self._tick_ms, self._failure, self._failing_ms)

    def _to_redis(self) -> None:
        failure = TickFailure(self.id, self.host, self.pid, self._failing_ms, self._failure) if self._failure else None
        self._queue.publish_failure(self._store.installation, failure, longest_silence(self._tick_ms))

    @property
    def _failing_ms(self) -> int:
        return round(1000 * (clock.monotonic() - self._failing_since)) if self._failure else 0
