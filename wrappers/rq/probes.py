"""Answers the probes of a worker: whether its loop moves, and whether it can work."""

from typing import TYPE_CHECKING

from rq.worker import WorkerStatus

from ticker import clock

if TYPE_CHECKING:
    from wrappers.rq.worker import Worker

MARGIN = 60.0  # seconds beyond RQ's longest wait, after which the worker is missing from its list, too

_worker: "Worker | None" = None


def watch(worker: "Worker") -> None:
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
    if _worker is None:
        return "the worker is starting"
    if _worker.is_stopping:
        return "the worker is stopping"
    if not _worker.reaches_redis:
        return "Redis (REDIS_URL) did not answer the worker's last heartbeat"
    return "ends of runs wait for PostgreSQL (DATABASE_URL)" if _worker.has_unwritten else ""
