"""Counts what ended in each minute and hour, in a thread of the ticker: a picture, not a ledger.

Any number of tickers may do so at the same time: each minute is counted by one of them, and then once more twelve
minutes later.
"""

import logging
import threading
from collections.abc import Iterator

from ticker import clock
from ticker.daemon import needs
from ticker.db.store import PostgresStore
from ticker.errors import TickerError
from ticker.model import Outcome, Reason
from ticker.settings import Settings

log = logging.getLogger("ticker")

EVERY = 15.0  # seconds between two attempts
REST = 4  # after an outage, the ticker rests so many times as long as each count took: it uses a fifth of a connection's time


def counted(store: PostgresStore) -> Iterator[float]:
    """Counts all minutes that are to be counted, oldest first. Yields how many seconds each count took, after its
    commit.
    """
    began = clock.monotonic()
    while _count_next(store):
        yield clock.monotonic() - began
        began = clock.monotonic()


def _count_next(store: PostgresStore) -> bool:
    with store.transaction() as execute:
        execute("prepare_to_count")
        minutes = execute("next_minute")
        for minute in minutes:
            execute("count_minute", at=minute["at"], outcomes=[*Outcome], reasons=[*Reason])
            if not minute["is_second"]:
                execute("measure_functions", at=minute["at"])
            if minute["completes_hour"]:
                execute("sum_hour", at=minute["at"])
        return bool(minutes)


class MinuteCounter(threading.Thread):
    """Counts minutes, and measures needs, in its own thread and on its own connection. No tick waits for it."""

    def __init__(self, store: PostgresStore, settings: Settings, stopping: threading.Event) -> None:
        super().__init__(name="ticker-minutes", daemon=True)
        self._store, self._settings, self._stopping = store, settings, stopping

    def run(self) -> None:
        while not self._stopping.wait(EVERY):
            self.attempt()

    def attempt(self) -> None:
        """Counts what is over. Logs errors and raises nothing, so that the next attempt continues."""
        try:
            for seconds in counted(self._store):
                if self._stopping.wait(REST * seconds):
                    return
            needs.measure(self._store, self._settings)
        except TickerError as error:
            log.warning("minutes are counted later: %s", error, extra={"event": "minutes_failed"})
        except Exception:
            log.exception("minutes are counted later, because of an internal error", extra={"event": "minutes_failed"})
