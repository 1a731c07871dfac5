"""Inspects the queues and workers that RQ knows: waiting jobs, listening workers, and their current work.

Before a process begins to work, `check` checks both servers.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from redis import Redis
from rq import Queue, Worker
from rq.utils import utcparse
from rq.worker_registration import WORKERS_BY_QUEUE_KEY

from ticker.db.checks import check_database
from ticker.db.installation import Installation
from ticker.db.store import PostgresStore
from ticker.errors import ConfigurationError, Unavailable
from ticker.queue import rq
from ticker.settings import Settings

log = logging.getLogger("ticker")

AT_MOST = 500
OVERDUE_MS = 45_000
"""RQ keeps a worker's key for a minute after its next heartbeat is due. A silent worker's key has less time left than
this.
"""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """How many waiting jobs, failed jobs that RQ still keeps, and workers a queue has."""

    name: str
    jobs: int
    failed: int
    workers: int


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A living worker. `state` is RQ's word (`busy`, `idle`, ...), and `job_id` is the worker's current job, if any.

    `silent` means that its heartbeat is overdue by more than 15 seconds.
    """

    name: str
    queues: tuple[str, ...]
    state: str
    host: str
    pid: int | None
    last_heard: datetime | None
    job_id: str
    silent: bool


@dataclass(frozen=True, slots=True)
class Attendance:
    """The first 500 queues and the first 500 workers, by name, and how many of each there are."""

    queues: tuple[QueueStatus, ...] = ()
    workers: tuple[WorkerStatus, ...] = ()
    queues_in_all: int = 0
    workers_in_all: int = 0


def look(url: str) -> Attendance:
    """Returns the workers, and the queues that ever had a job or have a worker now.

    Skips keys that are not RQ's. Raises QueueUnavailable if Redis does not answer.
    """
    with rq.translated(), closing(rq.connect(url, retries=0)) as connection:
        living = _living(connection)
        workers = _workers(connection, living[:AT_MOST])
        names = {queue.name for queue in rq.queues(connection)} | {q for worker in workers for q in worker.queues}
        queues = _queues(connection, sorted(names)[:AT_MOST], set(living))
        return Attendance(queues, workers, len(names), len(living))


def _living(connection: Redis) -> list[bytes]:
    """Returns the keys of living workers. A killed worker stays in RQ's set, but its own key expires."""
    keys = sorted(cast(set[bytes], connection.smembers(Worker.redis_workers_keys)))
    types = rq.answers(connection, [("TYPE", key) for key in keys])
    return [key for key, type_ in zip(keys, types, strict=True) if type_ == b"hash" and _name(key)]


def _workers(connection: Redis, keys: Sequence[bytes]) -> tuple[WorkerStatus, ...]:
    hashes = rq.answers(connection, [("HGETALL", key) for key in keys])
    left = rq.answers(connection, [("PTTL", key) for key in keys])
    return tuple(
        _worker(_name(key), {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in fields.items()}, ms)
        for key, fields, ms in zip(keys, hashes, left, strict=True)
        if isinstance(fields, dict)
    )


def _worker(name: str, fields: Mapping[str, str], left_ms: int) -> WorkerStatus:
    heard: datetime | None = None
    with suppress(ValueError):
        heard = utcparse(fields.get("last_heartbeat", ""))
    pid = fields.get("pid", "")
    return WorkerStatus(
        name, tuple(filter(None, fields.get("queues", "").split(","))), fields.get("state", "?"), fields.get("hostname", ""),
        int(pid) if pid.isdecimal() and len(pid) < 10 else None, heard, fields.get("current_job", ""),
        silent=0 <= left_ms < OVERDUE_MS,
    )  # fmt: skip


def _queues(connection: Redis, names: Sequence[str], living: set[bytes]) -> tuple[QueueStatus, ...]:
    """Returns the status of each named queue. A key of another type counts as empty."""
    queues = [Queue(name, connection=connection) for name in names]
    jobs = rq.answers(connection, [("LLEN", queue.key) for queue in queues])
    failed = rq.answers(connection, [("ZCARD", queue.failed_job_registry.key) for queue in queues])
    workers = rq.answers(connection, [("SMEMBERS", WORKERS_BY_QUEUE_KEY % name) for name in names])
    return tuple(
        QueueStatus(name, _count(waiting), _count(dead), len(living & listening) if isinstance(listening, set) else 0)
        for name, waiting, dead, listening in zip(names, jobs, failed, workers, strict=True)
    )


def _count(answer: Any) -> int:
    return answer if isinstance(answer, int) else 0


def _name(key: bytes) -> str:
    """Returns a worker's name, or an empty text if the key is not a worker's."""
    try:
        before, prefix, name = key.decode().partition(Worker.redis_worker_namespace_prefix)
    except UnicodeDecodeError:
        return ""
    return name if prefix and not before else ""


def check(settings: Settings, queues: Sequence[str] | None = None) -> Installation:
    """Checks both servers, and returns the installation. Raises ConfigurationError with one sentence that names the setting
    and what to do.

    `queues` are those to which a worker listens. None means the queues of all tasks, as for a ticker.
    """
    try:
        here, warning = check_database(settings)
        if warning:
            log.warning(warning, extra={"event": "configuration"})
        check_redis(settings, here.id, queues_of_tasks(settings) if queues is None else queues)
    except Unavailable as error:
        raise ConfigurationError(str(error)) from None
    return here


def queues_of_tasks(settings: Settings) -> list[str]:
    with closing(PostgresStore(settings.require_database(), settings.schema)) as store:
        return store.queues()


def check_redis(settings: Settings, here: str, queues: Sequence[str]) -> None:
    with closing(rq.RedisQueue.from_url(settings.require_redis())) as queue:
        queue.check()
        for name, holder in queue.holders(queues).items():
            if holder != here:
                raise ConfigurationError(
                    f"REDIS_URL: {rq.leased(name, holder)}; use another queue, another database of this Redis, or another Redis"
                )
