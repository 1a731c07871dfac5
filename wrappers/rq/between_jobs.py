"""What a worker does between jobs: it waits for the next one, writes waiting ends, reports to Redis, and ends.

`live` and `ready` answer the probes: whether the worker's loop moves, and whether the worker can work.
"""

import logging
import math
import sys
import time
from enum import Enum, auto
from typing import Any

from redis import Redis
from redis.exceptions import RedisError
from rq import worker_registration
from rq.exceptions import StopRequested
from rq.worker import WorkerStatus

from ticker import clock
from ticker.engine import jobs
from ticker.errors import TickerError
from ticker.queue.rq import kept_alive
from wrappers.pipeline.database import Database, announce
from wrappers.pipeline.waiting_ends import LAST_WORD, PATIENCE, WaitingEnds
from wrappers.rq.compatibility import birth_fields
from wrappers.rq.corrupt_jobs import SurvivingWorker, is_trouble_of_the_server
from wrappers.sandbox import limits, shared_state

log = logging.getLogger("ticker.run")

LOOK = 1  # seconds between two attempts to write waiting ends, at most
TTL = 75  # seconds, at most: RQ then waits for a job for up to 60, and for an answer of Redis for up to 70
ANNOUNCED_EVERY = 3600  # seconds; announcements are forgotten after three hours
ANNOUNCED_AGAIN = 60  # seconds after the start, and after an announcement that failed
IDLE = 20  # seconds without a job after which a worker closes its connection to PostgreSQL
BEAT = 1.0  # seconds for which a heartbeat counts, and the answer that no worker is suspended; RQ asks for each job
MARGIN = 60.0  # seconds beyond RQ's longest wait, after which the worker is missing from its list, too


class Phase(Enum):
    """A worker goes from IDLE to TAKEN, then to STARTED or FORGOTTEN, and back to IDLE.

    While it waits for a job's process, it is in WAITED, and then returns to TAKEN or STARTED.
    """

    IDLE = auto()
    """Between jobs."""
    TAKEN = auto()
    """A job was taken from the queue. Another application's job stays in this phase, because only RQ handles it."""
    STARTED = auto()
    """The job is ours, and RQ knows that it started. Its process does not report that again."""
    FORGOTTEN = auto()
    """The job is ours, may not run, and is no longer in Redis. It gets no process."""
    WAITED = auto()
    """The worker waits for the job's process. Meanwhile, a signal handler of RQ may wait for it as well."""


class IdleWorker(SurvivingWorker):
    """RQ's forking worker, which keeps in touch with both servers while it waits for jobs."""

    max_connection_wait_time = 5.0  # seconds; with RQ's minute, a worker sleeps long after Redis is back

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._phase = Phase.IDLE
        self._database: Database | None = None
        self._unwritten = WaitingEnds()
        self._idle_since = math.inf
        self.moved_at = clock.monotonic()
        self._announces_at = self.moved_at + ANNOUNCED_AGAIN
        self._reaches_redis = False
        self._beat_at, self._beat_for = -math.inf, 0  # by clock.monotonic; seconds for which RQ's list keeps the worker
        self._state_in_redis = ""
        self._asked_at = -math.inf  # whether the workers are suspended, by clock.monotonic
        super().__init__(*args, **kwargs | {"worker_ttl": min(kwargs.get("worker_ttl") or TTL, TTL)})

    def _set_connection(self, connection: Redis) -> Redis:
        """Overrides RQ's method to keep the connection alive, while the worker waits for a job and for commands."""
        return super()._set_connection(kept_alive(connection))

    def dequeue_job_and_maintain_ttl(self, timeout: int | None, max_idle_time: int | None = None) -> Any:
        """Overrides RQ's method to try waiting ends every second, and to wait also for a Redis that refuses calls.

        RQ's worker ends if its Redis becomes a replica, or is full. A worker that stays idle closes its connection to
        PostgreSQL.
        """
        self._idle_since = clock.monotonic()
        try:
            while True:
                try:
                    return self._dequeue(timeout, max_idle_time)
                except RedisError as error:
                    if not is_trouble_of_the_server(error):
                        raise
                    log.error(
                        "the worker waits because Redis (REDIS_URL) refuses its calls: %s",
                        error,
                        extra={"event": "redis_refuses"},
                    )
                    time.sleep(self.max_connection_wait_time)
        finally:
            self._idle_since = math.inf

    def _dequeue(self, timeout: int | None, max_idle_time: int | None) -> Any:
        while self._unwritten and timeout is not None:
            if job := super().dequeue_job_and_maintain_ttl(LOOK, LOOK):
                return job
            if max_idle_time is not None and clock.monotonic() - self._idle_since > max_idle_time:
                return None
        if self._database is not None and timeout is not None and (max_idle_time is None or max_idle_time > IDLE):
            if job := super().dequeue_job_and_maintain_ttl(IDLE, IDLE):
                return job
            max_idle_time = max_idle_time and max_idle_time - IDLE
        return super().dequeue_job_and_maintain_ttl(timeout, max_idle_time)

    def handle_warm_shutdown_request(self) -> None:
        """Overrides RQ's method so that a group begins nothing new. Its active runs continue to their own ends.

        A worker without a job stops by an exception, which libraries that catch all exceptions may swallow. So this
        also notes the request, and the worker stops after the next job at the latest.
        """
        super().handle_warm_shutdown_request()  # type: ignore[no-untyped-call]
        self._stop_requested = True
        shared_state.stop()

    def teardown(self) -> None:
        """Overrides RQ's method, which runs when the worker ends, to try the waiting ends first."""
        is_requested, is_cold = self._shutdown_requested_date is not None, isinstance(sys.exception(), SystemExit)
        try:
            self._write_last(0.0 if is_cold else LAST_WORD if is_requested else PATIENCE)
        except StopRequested:
            self._write_last(LAST_WORD)
        super().teardown()  # type: ignore[no-untyped-call]

    def _write_last(self, seconds: float) -> None:
        if self._unwritten:
            self.moved_at = clock.monotonic() + seconds  # until then, `live` misses no heartbeat
            self._unwritten.drain(self._connected(), limits.now() + seconds)

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Overrides RQ's method to write waiting ends, except after a start, when that run's limits already apply.

        A worker that is missing from RQ's list (after FLUSHALL, or if Redis came back empty) registers again. RQ calls
        this up to four times for each job: within a second, Redis hears it once.
        """
        self.moved_at = clock.monotonic()
        self._mind_database()
        if not self.is_horse and self.moved_at >= self._announces_at:
            is_announced = announce(self.queue_names(), survives=TickerError)
            self._announces_at = self.moved_at + (ANNOUNCED_EVERY if is_announced else ANNOUNCED_AGAIN)
        seconds, least = timeout or self.worker_ttl + 60, timeout or self.worker_ttl
        if pipeline is None and self.moved_at < self._beat_at + BEAT and least <= self._beat_for:
            return
        try:
            self._beat(seconds, pipeline)
        except RedisError:
            self._reaches_redis = False
            raise
        self._reaches_redis = True
        self._beat_for = seconds
        if pipeline is None:  # otherwise, it was not asked whether Redis knows the worker
            self._beat_at = self.moved_at

    def register_birth(self) -> None:
        """Overrides RQ's method to note in Redis that this worker is of our class."""
        super().register_birth()  # type: ignore[no-untyped-call]
        self.connection.hset(self.key, jobs.OURS, 1)

    def _beat(self, timeout: int, pipeline: Any) -> None:
        if pipeline is not None:
            super().heartbeat(timeout, pipeline)
            return
        with self.connection.pipeline(transaction=False) as calls:
            super().heartbeat(timeout, calls)
            calls.hexists(self.key, jobs.OURS)
            *_, is_known = calls.execute()
        if not is_known and not self.is_horse:  # during a run, RQ itself writes `birth` again, but not its lists
            self.connection.hset(self.key, mapping=birth_fields(self) | {jobs.OURS: 1})
            self._state_in_redis = ""
            worker_registration.register(self)

    def check_for_suspension(self, burst: bool) -> None:
        """Overrides RQ's method, which asks before each job, to ask at most once a second."""
        if clock.monotonic() >= self._asked_at + BEAT:
            super().check_for_suspension(burst)
            self._asked_at = clock.monotonic()

    def set_state(self, state: str, pipeline: Any = None) -> None:
        """Overrides RQ's method to write a state once: after each job, RQ calls it twice with the same one."""
        self._state = state
        if pipeline is not None or state != self._state_in_redis:
            super().set_state(state, pipeline)
            self._state_in_redis = state if pipeline is None else ""  # a pipeline may fail

    def _mind_database(self) -> None:
        """Tries to write the waiting ends, or closes a connection that has been idle for a long time."""
        is_between_runs = self._phase is not Phase.WAITED and not shared_state.open_runs()
        if self._unwritten and not self.is_horse and is_between_runs:
            self._unwritten.write(self._connected())
        elif self._database is not None and clock.monotonic() - self._idle_since >= IDLE:  # even while Redis is down
            self._database.close()

    def _connected(self) -> Database:
        """Returns the worker's own connection, which opens on first use, and again after an error."""
        self._database = self._database or Database.from_environment()
        return self._database

    def not_ready(self) -> str:
        """Returns why the worker cannot take or end a job now."""
        if self._stop_requested:
            return "the worker is stopping"
        if not self._reaches_redis:
            return "Redis (REDIS_URL) did not answer the worker's last heartbeat"
        return "ends of runs wait for PostgreSQL (DATABASE_URL)" if self._unwritten.is_delayed else ""


_worker: IdleWorker | None = None
"""The one worker of this process, from when it begins to work."""


def watch(worker: IdleWorker) -> None:
    global _worker
    _worker = worker


def live() -> str:
    """Returns why a restart would help: the loop has not come to a heartbeat, which it does even while Redis is down."""
    if _worker is None or _worker.get_state() == WorkerStatus.SUSPENDED:
        return ""
    waited, limit = clock.monotonic() - _worker.moved_at, _worker.worker_ttl + MARGIN
    return (
        f"the worker's loop has not moved for {waited:.0f} s, over the limit of {limit:.0f} s" if waited > limit else ""
    )


def ready() -> str:
    """Returns why the worker cannot take or end a job now."""
    return "the worker is starting" if _worker is None else _worker.not_ready()
