"""Listens for the NOTIFY of applications that change a task, in a thread with its own connection.

Nothing depends on it: the next regular tick finds what it misses.
"""

import logging
import threading
from collections.abc import Callable

import psycopg

from ticker import clock
from ticker.db.connections import connect, first_line
from ticker.errors import ConfigurationError

log = logging.getLogger("ticker")

CHANNEL = "ticker_wake"
GLANCE = 0.5  # seconds between two checks of whether to stop
PAUSE = 5.0  # seconds before it connects again
POOLER = (
    "TICKER_WAKE: changes wait for the next tick, because the connection goes through a pooler, which does not forward NOTIFY; "
    "set TICKER_LISTEN_URL to the address of PostgreSQL itself"
)


class Listener(threading.Thread):
    """Sets `heard` when a task of the schema has changed, and after each new connection, in case it missed a change.

    Then it calls `tell`.
    """

    def __init__(
        self, url: str, schema: str, stopping: threading.Event, tell: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(name="ticker-listener", daemon=True)
        self._url, self._schema, self._stopping, self._tell = url, schema, stopping, tell
        self.heard = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen()
                return
            except (psycopg.Error, OSError, ConfigurationError) as error:
                log.warning(
                    "cannot listen for changes: %s; they wait for the next tick",
                    first_line(error),
                    extra={"event": "listen_failed"},
                )
                self._stopping.wait(PAUSE)

    def _listen(self) -> None:
        with connect(self._url, name="ticker listener", variable="TICKER_LISTEN_URL or DATABASE_URL") as connection:
            if connection.has_pooler:
                log.warning(POOLER, extra={"event": "listen_failed"})
                return
            connection.execute(f"SET idle_session_timeout = 0; LISTEN {CHANNEL}")
            self._hear()
            while not self._stopping.is_set():
                if any(notice.payload == self._schema for notice in connection.notifies(timeout=GLANCE)):
                    self._hear()

    def _hear(self) -> None:
        self.heard.set()
        self._tell()


class WakeUp:
    """Decides when to start a pass early: after a notification, or because the next task is due or may have room."""

    SHORTEST = 0.2  # seconds between two passes, however much happens; more if a pass takes longer

    def __init__(self, listener: Listener | None) -> None:
        self._heard = listener.heard if listener else threading.Event()
        self._last, self._pause = clock.monotonic(), self.SHORTEST
        self._due: float | None = None

    def served(self, seconds: float | None, took: float = 0.0) -> None:
        """Notes that a pass has ended after `took` seconds, and that the next work is due in `seconds`."""
        self._last, self._pause = clock.monotonic(), max(self.SHORTEST, took)
        self._due = None if seconds is None else self._last + seconds

    def rings(self) -> bool:
        """Returns whether a pass should start now. It is called repeatedly, and returns True once for each ring."""
        now = clock.monotonic()
        if now < self._last + self._pause:
            return False
        if self._heard.is_set() or (self._due is not None and now >= self._due):
            self._heard.clear()
            self._last, self._due = now, None
            return True
        return False

    def patience(self, most: float) -> float:
        """Returns the seconds until the alarm may ring, but at most `most`."""
        due = self._last if self._heard.is_set() else self._due
        return most if due is None else min(most, max(max(due, self._last + self._pause) - clock.monotonic(), 0.01))
