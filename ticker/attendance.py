"""Queues and workers as RQ knows them: how many jobs wait where, who listens, and what he does."""

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

from redis import Redis
from rq import Queue, Worker
from rq.worker import BaseWorker

from ticker import enqueue
from ticker.errors import ConfigurationError

WORKERS_AT_MOST = 500


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """How many jobs wait in a queue, how many failed ones RQ still holds, and how many workers listen."""

    name: str
    jobs: int
    failed: int
    workers: int


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker that lives; `state` is RQ's word (`busy`, `idle`, ...), `job_id` what it works on, if anything."""

    name: str
    queues: tuple[str, ...]
    state: str
    host: str
    pid: int | None
    last_heard: datetime | None
    job_id: str


def look(url: str) -> tuple[list[QueueStatus], list[WorkerStatus]]:
    """Both by name, at most 500 workers. QueueUnavailable where Redis does not answer, ConfigurationError where what is
    there is none of RQ's."""
    with enqueue.translated(), closing(enqueue.connect(url)) as connection:
        try:
            workers = [_worker(worker) for worker in Worker.all(connection=connection)[:WORKERS_AT_MOST]]
            return _queues(connection, workers), sorted(workers, key=lambda worker: worker.name)
        except (ValueError, TypeError, KeyError) as error:  # UnicodeError is a ValueError
            raise ConfigurationError(f"REDIS_URL: what is there is none of RQ's: {type(error).__name__}") from error


def _queues(connection: Redis, workers: list[WorkerStatus]) -> list[QueueStatus]:
    """Those that had a job once, or have a worker now."""
    names = {queue.name for queue in Queue.all(connection=connection)} | {
        q for worker in workers for q in worker.queues
    }
    found = []
    for name in sorted(names):
        queue = Queue(name, connection=connection)
        listening = sum(name in worker.queues for worker in workers)
        found.append(QueueStatus(name, queue.count, queue.failed_job_registry.get_job_count(cleanup=False), listening))
    return found


def _worker(worker: BaseWorker) -> WorkerStatus:
    heard = worker.last_heartbeat
    return WorkerStatus(
        worker.name, tuple(worker.queue_names()), str(worker.get_state()), worker.hostname or "", worker.pid,
        heard and (heard if heard.tzinfo else heard.replace(tzinfo=UTC)), worker.get_current_job_id() or "",
    )  # fmt: skip
