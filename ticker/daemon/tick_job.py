"""Runs one tick after another: logs it, records it as a heartbeat, counts workers, and survives any error."""

import logging
import math
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from ticker import clock
from ticker.daemon.signs import Signs
from ticker.db.listener import WakeUp
from ticker.db.store import PostgresStore
from ticker.engine import timing
from ticker.engine.key_limits import LOOK_AHEAD
from ticker.engine.passes import Report, TickOptions
from ticker.engine.tick import tick
from ticker.errors import TickerError
from ticker.notify.deliver import in_words
from ticker.notify.webhook import Webhook
from ticker.queue import rq
from ticker.queue.rq import RedisQueue, Staff
from ticker.schedules import interval
from ticker.settings import Settings

log = logging.getLogger("ticker")

FIRST_PAUSE = 1.0  # seconds after a failed tick; doubled each time, up to the period of the ticks
HANGS = 20.0  # seconds of one batch; the server's own timeouts end a statement after 5
QUEUES_EVERY = 120  # ticks between two reads of the queues of all tasks: an hour
CHECK_EVERY = 0.5  # seconds between two checks by the main thread
LONG_PASS = 5.0  # seconds of a pass after which it gives a sign of life: a ticker is silent after 15 at the earliest
STUCK = 120.0  # seconds without progress of a tick: six times the limit of a batch, so a slow server is not the cause
HANGING = f"a tick hangs: it has made no progress for {STUCK:g} s, and the watchdog gets no more pings"

T = TypeVar("T")


class PushThreads:
    """Calls the same function in this thread and in another one, which is reused, to push the due tasks of one tick.

    While Redis stores the jobs of one batch, PostgreSQL finds the rows of the next, and Python packs jobs. With a
    single thread, two of the three are always idle. A third thread would find no free core.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "ticker-push")

    def __call__(self, push: Callable[[], T]) -> list[T]:
        """Returns both answers once both calls have ended. Raises an error of either call, preferably this thread's."""
        other = self._thread.submit(push)
        try:
            own = push()
        finally:
            other.exception()  # waits
        return [own, other.result()]


class Heartbeat:
    """Calls TICKER_HEARTBEAT_URL after good ticks, so that a service outside notices when all tickers are gone.

    Calls the URL, which is a secret, in a thread of its own, at most once at a time. No tick waits for it.
    """

    def __init__(self, url: str) -> None:
        self._endpoint = Webhook(url)
        self._calling = threading.Lock()
        self._fails = False

    def beat(self) -> None:
        if self._calling.acquire(blocking=False):
            threading.Thread(target=self._call, name="ticker-heartbeat", daemon=True).start()

    def _call(self) -> None:
        try:
            status = self._endpoint.request("GET", b"", {"User-Agent": "rq-ticker", "Connection": "close"})
            self._log("" if 200 <= status < 300 else f"it answered {status}")
        except Exception as error:
            self._log(in_words(error))
        finally:
            self._calling.release()

    def _log(self, problem: str) -> None:
        """Logs when trouble begins or ends, but does not repeat itself."""
        if problem and not self._fails:
            log.warning("TICKER_HEARTBEAT_URL was not reached: %s", problem, extra={"event": "heartbeat_failed"})
        elif self._fails and not problem:
            log.info("TICKER_HEARTBEAT_URL is reached again", extra={"event": "heartbeat_recovered"})
        self._fails = bool(problem)


class Observer(Protocol):
    """Observes ticks. Any error that it raises is logged and affects no tick."""

    queue: RedisQueue
    """The queue that the ticks push to."""

    def ticked(self, report: Report | None, seconds: float) -> None:
        """Receives the report of a tick that has ended, or None if it failed, and how many seconds it took."""


class TickJob:
    """Runs one tick after another, and knows how the last one went."""

    def __init__(
        self, store: PostgresStore, queue: RedisQueue, settings: Settings, stopping: threading.Event,
        observer: Observer | None = None,
    ) -> None:  # fmt: skip
        self._store, self._queue, self._settings, self._stopping = store, queue, settings, stopping
        self._observer = observer
        self._signs = Signs(store, queue, settings.tick_ms)
        self._push_threads = PushThreads()
        self._heartbeat = Heartbeat(settings.heartbeat_url) if settings.heartbeat_url else None
        self._unattended: dict[str, int] = {}
        self._queues: list[str] = []
        self._delays: Mapping[str, float] = {}
        self._leased: dict[str, str] = {}
        self._passes = 0
        self.alarm: WakeUp | None = None
        self.ended: Callable[[], None] = lambda: None
        """Called after each pass."""
        self.failures = 0
        self.began = self._moved = clock.monotonic()
        self._last_pass = -math.inf
        self.busy = False
        self.last_line = "no tick yet"

    def __call__(self) -> None:
        """Makes one pass and logs it. Raises nothing."""
        self.began = self._moved = clock.monotonic()
        self.busy, done = True, None
        try:
            report = self._pass()
            self._lease_queues()
            self._delays = self._queue.ages(self._queues)
            unattended = self._count_workers(report.now).unattended
            self._warn_of_unattended_queues(unattended)
            self._log(report)
            self._beat(list(unattended))
            self._signs.succeeded()
            self.failures, done = 0, report
        except TickerError as error:
            self.failures += 1
            sentence = "tick failed: %s; next attempt in %.0f s"
            self.last_line = sentence % (error, self.pause())
            log.error(sentence, error, self.pause(), extra={"event": "tick_failed"})
            self._signs.failed(error)
        except Exception as error:
            self.last_line = "tick failed on an internal error; the next tick tries again"
            log.exception(self.last_line, extra={"event": "tick_failed"})
            self._signs.failed(error)
            self.failures += 1
        finally:
            self._observe(done)
            self._moved, self.busy = clock.monotonic(), False
            self.ended()

    def deregister(self) -> None:
        """Records that this ticker has ended. If that fails, the ticker is reported as silent after a while."""
        with suppress(TickerError):
            self._store.deregister(self._signs.id)

    def pause(self) -> float:
        """Returns the seconds until the next attempt after a failure."""
        return float(min(FIRST_PAUSE * 2 ** min(self.failures - 1, 20), self._settings.tick_ms / 1000))

    def patience(self) -> float:
        """Returns the seconds until the main thread checks again. The alarm is ignored during a pass or after a
        failure.
        """
        if self.alarm is None or self.busy or self.failures:
            return CHECK_EVERY
        return self.alarm.patience(CHECK_EVERY)

    def unstick(self) -> None:
        """Interrupts the connections in use if a single batch has used one of them for longer than HANGS."""
        if self._store.pool.waited() > HANGS:
            log.error(
                "PostgreSQL (DATABASE_URL) has not answered for %.0f s: the connection is given up",
                HANGS,
                extra={"event": "connection_given_up"},
            )
            self._store.pool.interrupt()

    def moves(self) -> bool:
        """Returns whether a pass makes progress, or the next one is not long overdue.

        An unavailable server does not count, because it only ends a pass. A pass may take minutes, and uses connections
        all that time. The longest current use of a connection shows how long the pass has been stuck.
        """
        waited = self._store.pool.waited()
        if self.busy and waited:
            self._moved = max(self._moved, clock.monotonic() - waited)
        idle = 0.0 if self.busy else 2 * self._settings.tick_ms / 1000
        return clock.monotonic() - self._moved < idle + STUCK

    def show_long_passes(self) -> None:
        """Gives a sign of life during each long pass that makes progress, until the ticker stops."""
        while not self._stopping.wait(LONG_PASS):
            if self.busy and clock.monotonic() - self.began > LONG_PASS and self.moves():
                self._signs.show_pass()

    def live(self) -> str:
        """Returns why a restart would help, or an empty text."""
        return "" if self.moves() else HANGING

    def ready(self) -> str:
        """Returns why the last tick was not a good one, or an empty text."""
        return self.last_line if self.failures or not self._passes else ""

    def _pass(self) -> Report:
        settings, last, self._last_pass = self._settings, self._last_pass, clock.monotonic()
        # after a start, or a long pass
        came_late = (self._last_pass - last) * 1000 > settings.tick_ms * interval.JITTER
        options = TickOptions(
            look_ahead=timing.LOOK_AHEAD,
            batch=settings.batch,
            stop=self._stopping.is_set,
            period=settings.tick_ms,
            beat=0 if came_late else settings.tick_ms,
            depths=settings.queue_depth,
            waiting_jobs=settings.waiting_jobs,
            ahead=LOOK_AHEAD // timedelta(milliseconds=1) if self.alarm else 0,
            delays=self._delays,
            push_threads=self._push_threads,
        )
        report = tick(self._store, self._queue, clock.now(), options)
        done = {**report.counts, "left": report.left, "tick_ms": settings.tick_ms}
        with suppress(TickerError):  # without Redis, what the tick did is recorded all the same
            done["redis"] = self._queue.place()
        self._store.heartbeat(self._signs.id, self._signs.host, self._signs.pid, report.now, done, settings.tick_ms)
        if self.alarm is not None:
            took = clock.monotonic() - self.began
            next_due = self._store.next_due(report.now) if settings.wake else None
            look = None if report.look_at is None else (report.look_at - report.now).total_seconds() - took
            self.alarm.served(min((at for at in (next_due, look) if at is not None), default=None), took)
        return report

    def _log(self, report: Report) -> None:
        took = round(clock.monotonic() - self.began, 3)
        self.last_line = f"tick {report.in_words(took)}"
        log.info(
            self.last_line, extra={"event": "tick", "fields": {**report.counts, "left": report.left, "took": took}}
        )

    def _observe(self, done: Report | None) -> None:
        try:
            if self._observer is not None:
                self._observer.ticked(done, clock.monotonic() - self.began)
        except Exception:
            log.exception("the metrics missed a tick", extra={"event": "metrics_failed"})

    def _lease_queues(self) -> None:
        """Renews our leases. Warns once about a queue that another installation uses, because that slows both of them
        down.
        """
        if self._passes % QUEUES_EVERY == 0:
            self._queues = self._store.queues() or self._queues
        self._passes += 1
        leased = self._queue.lease(self._store.installation, self._queues)
        for name, holder in leased.items() - self._leased.items():
            log.warning(
                "%s; give each installation its own queues, or its own Redis",
                rq.leased(name, holder),
                extra={"event": "queue_leased"},
            )
        self._leased = leased

    def _beat(self, unattended: list[str]) -> None:
        """Calls the heartbeat's URL, unless one of our queues has jobs and no worker."""
        if self._heartbeat and not (unattended and self._store.execute("waiting_queues", queues=unattended)):
            self._heartbeat.beat()

    def _count_workers(self, now: datetime) -> Staff:
        """Stores how many workers listen to each of our queues, and are busy. Only the server of the queues may fail
        the tick.
        """
        staff = self._queue.staff(self._queues)
        try:
            self._store.sample(self._signs.id, now, {name: staff.waiting[name] for name in self._queues}, staff.crews)
        except TickerError as error:
            log.warning("the workers are not counted: %s", error, extra={"event": "workers_not_counted"})
        return staff

    def _warn_of_unattended_queues(self, unattended: Mapping[str, int]) -> None:
        """Warns once about each queue of tasks without workers, at the second tick in a row, because a worker may still be
        starting.
        """
        for name, count in unattended.items():
            self._unattended[name] = self._unattended.get(name, 0) + 1
            if self._unattended[name] == 2 and name in self._store.queues():
                log.warning("%s", rq.without_worker(name, count), extra={"event": "queue_unattended"})
        self._unattended = {name: ticks for name, ticks in self._unattended.items() if name in unattended}
