"""Makes a pass at every tick, survives any error that the pass raises, and stops quickly on a signal.

APScheduler makes the passes in its own thread. The main thread handles the signals, and checks by the monotonic clock
that ticks continue. If the wall clock were set back, APScheduler alone would pause for just as long.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from ticker import clock, notify
from ticker.daemon.minutes import MinuteCounter
from ticker.daemon.prune import Pruner
from ticker.daemon.systemd import Systemd
from ticker.daemon.tick_job import HANGING, Observer, TickJob
from ticker.db.listener import Listener, WakeUp
from ticker.db.store import PostgresStore
from ticker.queue.rq import RedisQueue
from ticker.settings import Settings
from ticker.signals import Noted, noted
from ticker.small_server import serving_probes

log = logging.getLogger("ticker")

LAST_WORD = 4.0  # seconds that a tick in progress gets when the ticker is stopped
DEREGISTERED_WITHIN = 0.5  # seconds of LAST_WORD, at most, for PostgreSQL to record that the ticker has ended
LAST_NOTICE = 0.8  # seconds that deliveries in progress get when the ticker is stopped


class EveryTick(BaseTrigger):  # type: ignore[misc]
    """Fires on a grid that starts at the first tick, also after ticks that came early. Missed ticks are not made up
    for.

    If an early tick moved the grid, everything that is due on it would be late.
    """

    def __init__(self, period: timedelta) -> None:
        self.period = period
        self._first: datetime | None = None

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        if self._first is None:
            self._first = now
            return now
        return now + self.period - (now - self._first) % self.period


def run(
    settings: Settings, observer: Observer | None = None, health: tuple[str | None, int | None] = (None, None)
) -> None:
    """Ticks until SIGTERM or SIGINT, then returns within 5 seconds, even if a server hangs.

    `health` is the address on which to answer probes, if its port is not None.
    """
    stopping, systemd = threading.Event(), Systemd()
    with noted((signal.SIGTERM, signal.SIGINT)) as asked:
        store = PostgresStore(settings.require_database(), settings.schema)
        queue = observer.queue if observer else RedisQueue.from_settings(settings)
        tick_job = TickJob(store, queue, settings, stopping, observer)
        with serving_probes(*health, tick_job.live, tick_job.ready):
            notifiers = notify.start(settings, stopping)
            start_threads(tick_job, settings, stopping, asked)
            logging.getLogger("apscheduler").setLevel(logging.ERROR)
            scheduler = BackgroundScheduler(timezone="UTC", daemon=True)
            every = EveryTick(timedelta(milliseconds=settings.tick_ms))
            job = scheduler.add_job(tick_job, every, misfire_grace_time=None)
            period = settings.tick_ms / 1000
            log.info("ticker started pid=%s tick=%gs", os.getpid(), period, extra={"event": "ticker_started"})
            scheduler.start()
            systemd.begun()
            while not asked.wait(min(tick_job.patience(), report(systemd, tick_job))):
                watch(tick_job, period, job)
            systemd.ends()
            stopping.set()
            notify.stop(notifiers, LAST_NOTICE)
            stop(scheduler, tick_job)


def start_threads(tick_job: TickJob, settings: Settings, stopping: threading.Event, asked: Noted) -> None:
    """Starts what works next to the ticks, each in its own thread."""
    listener = Listener(settings.require_listen(), settings.schema, stopping, asked.end_wait) if settings.wake else None
    tick_job.alarm, tick_job.ended = WakeUp(listener), asked.end_wait
    if listener is not None:
        listener.start()
    threading.Thread(target=tick_job.show_long_passes, name="ticker-signs", daemon=True).start()
    threads: list[Callable[..., threading.Thread]] = [Pruner, MinuteCounter]
    if settings.otel:
        from ticker.daemon.traces import Exporter  # its library is an extra

        threads.append(Exporter)
    for thread in threads:
        thread(PostgresStore(settings.require_database(), settings.schema), settings, stopping).start()


def report(systemd: Systemd, tick_job: TickJob) -> float:
    """Reports the ticker's state to systemd. Returns the number of seconds within which the next report is due."""
    moves = tick_job.moves()
    return systemd.report(moves, tick_job.last_line if moves else HANGING)


def watch(tick_job: TickJob, period: float, job: Any) -> None:
    """Triggers a tick early after a failure, when the alarm rings, and when no tick has begun for two periods.

    Measures time by the monotonic clock.
    """
    if tick_job.busy:
        tick_job.unstick()
        return
    waited = clock.monotonic() - tick_job.began
    due = tick_job.pause() if tick_job.failures else 2 * period
    if waited >= due or (tick_job.alarm is not None and not tick_job.failures and tick_job.alarm.rings()):
        tick_job.began = clock.monotonic()
        job.modify(next_run_time=clock.python_utc())


def stop(scheduler: Any, tick_job: TickJob) -> None:
    """Waits for a tick in progress, which checks between batches whether to stop. Abandons a tick that hangs."""
    ended = threading.Thread(target=scheduler.shutdown, kwargs={"wait": True}, daemon=True)
    until = clock.monotonic() + LAST_WORD
    ended.start()
    ended.join(LAST_WORD)
    if ended.is_alive():
        log.warning(
            "a tick hangs and is abandoned; what it did not commit is pushed again by the next tick",
            extra={"event": "tick_abandoned"},
        )
        logging.shutdown()
        os._exit(0)
    deregister = threading.Thread(target=tick_job.deregister, daemon=True)
    deregister.start()
    deregister.join(max(0.0, min(DEREGISTERED_WITHIN, until - clock.monotonic())))
    log.info("ticker stopped", extra={"event": "ticker_stopped"})
