"""Schedules jobs as rq-scheduler does, with RQ alone: tests/importing/test_real_rq_scheduler.py compares the two."""

from datetime import UTC, datetime
from typing import Any

from redis import Redis
from rq.job import Job, JobStatus

from ticker.importing.sources.rq_scheduler import SCHEDULE

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def poll(channel: int = 0) -> int:
    """Polls nothing."""
    return channel


class Mailbox:
    def poll(self) -> None:
        """Polls nothing."""


def schedule(
    redis: Redis, id_: str, at: datetime = NOON, func: Any = poll, *, queue: str = "polling", **fields: Any
) -> Job:
    """Stores an entry. `fields` are those of `Job.create`, and the meta by which it repeats."""
    repeats = {name: fields.pop(name) for name in ("interval", "repeat", "cron_string") if name in fields}
    meta = {**fields.pop("meta", {}), **repeats}
    job = Job.create(
        func,
        connection=redis,
        id=id_,
        status=JobStatus.SCHEDULED,
        meta=meta,
        **{"timeout": 20, "result_ttl": -1} | fields,
    )
    job.origin = queue
    job.save()
    redis.zadd(SCHEDULE, {id_: int(at.timestamp())})
    return job
