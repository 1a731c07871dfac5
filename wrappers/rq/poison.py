"""Puts a job aside that breaks a worker: out of RQ's lists and registries, logged, counted, and kept for an hour to look at."""

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
"""A hash in Redis: how many jobs were put aside, by event (`poison`, `forged`)."""

KEPT = 3600  # seconds that the hash of such a job stays, under ticker:EVENT:ID, for people to look at

REGISTRIES = (
    registry.CanceledJobRegistry, registry.DeferredJobRegistry, registry.FailedJobRegistry,
    registry.FinishedJobRegistry, registry.ScheduledJobRegistry,
    *(vars(registry)[name] for name in ("ReadyJobRegistry",) if hasattr(registry, name)),  # since RQ 3
)  # fmt: skip
"""Those of a queue that keep the ids of jobs which no worker has."""


class Poison(Exception):
    """A job that cannot be read, or that broke its worker. `event` names it in the log and in the counter."""

    event = "poison"

    def __init__(self, reason: str, job_id: str | bytes = "") -> None:
        super().__init__(reason)
        self.job_id = job_id


@contextmanager
def unreadable_is_poison(job_id: str, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Every error in the block that a job's hash can cause becomes a Poison of that job; a server's error stays one."""
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
    """Whether Redis itself cannot serve: that is no job's fault. A key of another type is."""
    return isinstance(error, RedisError) and "WRONGTYPE" not in str(error)


def put_aside(
    connection: Redis, queues: Iterable[RQQueue], poison: Poison, because: BaseException | None = None
) -> None:
    """Passes over it, takes it out of RQ's registries, and keeps its hash for an hour under another key."""
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
        pipeline.execute(raise_on_error=False)  # what Redis refuses stays: the job is out of its queue already


def companions(job_id: str) -> tuple[str, ...]:
    """Returns RQ's keys of a job, without its hash. RQ's own properties refuse some of the ids that a corrupt job has."""
    return (
        RQJob.dependents_key_for(job_id),
        f"{RQJob.redis_job_namespace_prefix}:{job_id}:dependencies",
        ExecutionRegistry.key_template.format(job_id),
        Result.get_key(job_id),  # type: ignore[no-untyped-call]
    )


def pass_over(
    connection: Redis, queues: Iterable[RQQueue], poison: Poison, because: BaseException | None = None
) -> None:
    """Logs and counts a job, and takes it out of the lists of what workers have; its hash stays as it is."""
    log.warning("%s job=%s: %s", poison.event, shown(poison.job_id), poison, exc_info=because)
    with connection.pipeline(transaction=False) as pipeline:
        for queue in queues:
            pipeline.lrem(queue.intermediate_queue_key, 1, cast(str, poison.job_id))
        pipeline.hincrby(COUNTERS, poison.event, 1)
        pipeline.execute(raise_on_error=False)


def shown(job_id: str | bytes) -> str:
    """An id as it may stand in a log line: quoted if it is none of RQ's."""
    plain = isinstance(job_id, str) and len(job_id) <= 100 and job_id.isascii() and job_id.isprintable()
    return str(job_id) if plain and " " not in str(job_id) else quoted(job_id)
