"""Closes minutes: counts what ended in each, and keeps the counts right. Adds up hours.

`closed` runs the statements of `ticker/db/sql/minutes.sql` until nothing is left to do. Any number of tickers may do so at the same
time, because each step locks its minute, or its hour, and skips those that are locked.
"""

import logging
import threading
from collections.abc import Callable, Iterator

from ticker import clock
from ticker.daemon import needs
from ticker.db.store import PostgresStore
from ticker.errors import TickerError
from ticker.model import Outcome, Reason
from ticker.schedules.duration import DAY
from ticker.settings import Settings

log = logging.getLogger("ticker")

EVERY = 15.0  # seconds between two attempts
REST = 4  # after an outage, the ticker rests so many times as long as each step took: it uses a fifth of a connection's time
CHANGES = 1000  # changes that one statement applies
KEPT_MS = 30 * DAY  # minutes; hours are kept for 400 days
Step = Callable[[PostgresStore, Settings], bool]


def closed(store: PostgresStore, settings: Settings) -> Iterator[float]:
    """Closes all minutes that have been over for 70 s, oldest first. Yields how many seconds each step took, after its commit."""
    store.execute("reopen_minutes", now=clock.now())
    for step in STEPS:
        while True:
            began = clock.monotonic()
            if not step(store, settings):
                break
            yield clock.monotonic() - began


def close_minute(store: PostgresStore, _: Settings) -> bool:
    with store.transaction() as execute:
        execute("prepare_to_count")
        minutes = execute("next_minute", now=clock.now(), keep_ms=KEPT_MS)
        for minute in minutes:
            execute("close_minute", at=minute["at"], outcomes=[*Outcome], reasons=[*Reason])
            execute("measure_functions", at=minute["at"])
        return bool(minutes)


def apply_changes(store: PostgresStore, _: Settings) -> bool:
    return bool(store.execute("apply_changes", limit=CHANGES)[0]["count"])


def sum_hour(store: PostgresStore, _: Settings) -> bool:
    with store.transaction() as execute:
        hours = execute("next_hour")
        for hour in hours:
            execute("sum_hour", at=hour["at"])
        return bool(hours)


STEPS: tuple[Step, ...] = (close_minute, apply_changes, sum_hour)


class Roller(threading.Thread):
    """Closes minutes in its own thread and on its own connection. No tick waits for it."""

    def __init__(self, store: PostgresStore, settings: Settings, stopping: threading.Event) -> None:
        super().__init__(name="ticker-minutes", daemon=True)
        self._store, self._settings, self._stopping = store, settings, stopping

    def run(self) -> None:
        while not self._stopping.wait(EVERY):
            self.attempt()

    def attempt(self) -> None:
        """Closes what is over. Logs errors and raises nothing, so that the next attempt continues."""
        try:
            for seconds in closed(self._store, self._settings):
                if self._stopping.wait(REST * seconds):
                    return
            needs.measure(self._store, self._settings)
        except TickerError as error:
            log.warning("minutes are closed later: %s", error, extra={"event": "minutes_failed"})
        except Exception:
            log.exception("minutes are closed later, because of an internal error", extra={"event": "minutes_failed"})
