"""Reads figures from PostgreSQL and Redis when they are scraped.

The queries run in a thread next to the ticks, on their own connection, at most every five seconds. A tick never waits
for a scrape, a ticker that is not scraped reads nothing, and several scrapers cost no more than one.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from contextvars import copy_context

from ticker import clock
from ticker.db import connections
from ticker.db.steps import Steps, run
from ticker.errors import TickerError
from ticker.metrics import standing
from ticker.metrics.ended import Ended
from ticker.metrics.families import Figures
from ticker.queue.rq import RedisQueue
from ticker.read import overview
from ticker.settings import Settings

log = logging.getLogger("ticker")

FRESH = 5.0  # seconds for which figures are reused
PATIENCE = 6.0  # seconds that a scrape waits: Redis times out after 4, and Prometheus gives up after 10
DATABASE, REDIS = "ticker_database_up", "ticker_redis_up"


class Servers:
    """Both servers. Raises nothing: an unavailable server has an `..._up` of 0, and no other figures."""

    def __init__(self, settings: Settings, *, fresh: float = FRESH) -> None:
        self._settings, self._fresh = settings, fresh
        self._lock = threading.Lock()
        self._answer: Future[Figures] | None = None
        self._began = 0.0
        self._ended, self._waiting = Ended(), standing.Waiting()
        self._queue: RedisQueue | None = None
        self._away: set[str] = set()

    def figures(self) -> Figures:
        """Returns figures that are at most five seconds old, within six seconds. Thread-safe."""
        with self._lock:
            if self._answer is None or (self._answer.done() and clock.monotonic() - self._began >= self._fresh):
                self._answer, self._began = self._round(), clock.monotonic()
            last = self._answer
        try:
            return last.result(PATIENCE)
        except TimeoutError:
            return {DATABASE: {(): 0}}

    def _round(self) -> "Future[Figures]":
        """Begins a round of queries in a thread of its own."""
        answer, context = Future[Figures](), copy_context()  # in which a test may have set a clock

        def ask() -> None:
            figures: Figures = {DATABASE: {(): 0}}
            try:
                figures = context.run(self._ask)
            finally:
                answer.set_result(figures)  # whatever ended the round, the next scrape begins another one

        threading.Thread(target=ask, name="ticker-metrics", daemon=True).start()
        return answer

    def _ask(self) -> Figures:
        return {**self._asked(DATABASE, self._of_database), **self._asked(REDIS, self._of_redis)}

    def _asked(self, name: str, ask: Callable[[], Figures]) -> Figures:
        try:
            figures = ask()
            self._away.discard(name)
            return {name: {(): 1}, **figures}
        except TickerError as error:
            self._say_once(name, str(error))
        except Exception:
            log.exception("metrics: no %s because of an internal error", name, extra={"event": "metrics_failed"})
        return {name: {(): 0}}

    def _say_once(self, name: str, sentence: str) -> None:
        if name not in self._away:
            log.warning("metrics: %s", sentence, extra={"event": "metrics_failed"})
        self._away.add(name)

    def _of_database(self) -> Figures:
        url = self._settings.require_database()
        with connections.translated(), closing(connections.connect(url, name="ticker-metrics")) as db:
            db.prepares_after = None  # plans each statement for its own times
            return run(db, self._figures())

    def _figures(self) -> Steps[Figures]:
        now = {**(yield from standing.tasks()), **(yield from standing.tickers())}
        now |= {**(yield from standing.limits()), **(yield from standing.needs()), **(yield from self._waiting.look())}
        self._ended.know(function.name for function in (yield from overview.functions.steps()))
        yield from self._ended.look()
        return {**now, **self._ended.figures()}

    def _of_redis(self) -> Figures:
        self._queue = self._queue or RedisQueue.from_url(self._settings.require_redis())
        return standing.queues(self._queue, self._waiting.seconds)
