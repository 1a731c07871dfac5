"""Puts aside a job that breaks a worker: removes it from RQ's lists, logs and counts it, and keeps it for an hour."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast

from redis import Redis
from redis.exceptions import RedisError
from rq import Queue as RQQueue
from rq import registry
from rq.exceptions import NoSuchJobError, StopRequested
from rq.executions import ExecutionRegistry
from rq.job import Job as RQJob
from rq.results import Result

from ticker.errors import quoted
from wrappers.pipeline import serialize

log = logging.getLogger("ticker.run")

COUNTERS = "ticker:refused"
"""The key of a hash in Redis with the number of jobs put aside, by event (`poison`, `forged`)."""

KEPT = 3600  # seconds for which the hash of such a job is kept for inspection, under ticker:EVENT:ID

REGISTRIES = (
    registry.CanceledJobRegistry, registry.DeferredJobRegistry, registry.FailedJobRegistry,
    registry.FinishedJobRegistry, registry.ScheduledJobRegistry,
    *(vars(registry)[name] for name in ("ReadyJobRegistry",) if hasattr(registry, name)),  # since RQ 3
)  # fmt: skip
"""The registries of a queue with the ids of jobs that no worker has."""


class Poison(Exception):
    """A job that cannot be read or that broke its worker. `event` names this kind of job in the log and in the counter."""

    event = "poison"

    def __init__(self, reason: str, job_id: str | bytes = "") -> None:
        super().__init__(reason)
        self.job_id = job_id


@contextmanager
def unreadable_is_poison(job_id: str, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turns every error in the block that a job's hash can cause into a Poison for that job. Server errors pass."""
    try:
        yield
    except (NoSuchJobError, StopRequested):
        raise
    except Poison as poison:
        poison.job_id = poison.job_id or job_id
        raise
    except Exception as error:
        if isinstance(error, but) or is_trouble_of_the_server(error):
            raise
        raise Poison(serialize.sentence(error), job_id) from error


def is_trouble_of_the_server(error: Exception) -> bool:
    """Returns whether Redis itself has failed. A key of another type is the job's fault instead."""
    return isinstance(error, RedisError) and "WRONGTYPE" not in str(error)


def put_aside(
    connection: Redis, queues: Iterable[RQQueue], poison: Poison, because: BaseException | None = None
) -> None:
    """Skips a job, removes it from RQ's registries, and keeps its hash for an hour under another key."""
    queues, job_id = list(queues), poison.job_id
    pass_over(connection, queues, poison, because)
    aside = f"ticker:{poison.event}:{job_id!s}"
    with connection.pipeline(transaction=False) as pipeline:
        for queue in queues:
            for kind in REGISTRIES:
                pipeline.zrem(kind.key_template.format(queue.name), job_id)
        if isinstance(job_id, str):
            pipeline.rename(RQJob.key_for(job_id), aside)
            pipeline.expire(aside, KEPT)
            pipeline.unlink(*companions(job_id))
        pipeline.execute(raise_on_error=False)  # what Redis refuses stays: the job has already left its queue


def companions(job_id: str) -> tuple[str, ...]:
    """Returns the keys that RQ keeps for a job, except its hash. RQ's own properties refuse some ids of corrupt jobs."""
    return (
        RQJob.dependents_key_for(job_id),
        f"{RQJob.redis_job_namespace_prefix}:{job_id}:dependencies",
        ExecutionRegistry.key_template.format(job_id),
        Result.get_key(job_id),  # type: ignore[no-untyped-call]
    )


def pass_over(
    connection: Redis, queues: Iterable[RQQueue], poison: Poison, because: BaseException | None = None
) -> None:
    """Logs and counts a job, and removes it from the lists of taken jobs. Its hash stays as it is."""
    log.warning(
        "%s job=%s: %s", poison.event, shown(poison.job_id), poison, exc_info=because, extra={"event": "poison"}
    )
    with connection.pipeline(transaction=False) as pipeline:
        for queue in queues:
            pipeline.lrem(queue.intermediate_queue_key, 1, cast(str, poison.job_id))
        pipeline.hincrby(COUNTERS, poison.event, 1)
        pipeline.execute(raise_on_error=False)


def shown(job_id: str | bytes) -> str:
    """Returns an id for a log line, quoted if it is unlike RQ's own."""
    plain = isinstance(job_id, str) and len(job_id) <= 100 and job_id.isascii() and job_id.isprintable()
    return str(job_id) if plain and " " not in str(job_id) else quoted(job_id)
