"""Protects RQ's job, queue and worker from corrupt jobs.

A stock worker reads a job's hash without checks. An invalid date, a status that is not UTF-8 or a key of another type
ends the worker. The job's id stays in a list that the next worker reads at its start, so that worker ends, too.

Here, such a job is a `Poison`: it is logged, counted and put aside for an hour, and the next job runs. If it was one of
ours, the next tick finds that it is missing and pushes it again.
"""

import logging
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

from redis import Redis
from redis.exceptions import RedisError
from rq import Queue as RQQueue
from rq import Worker as RQWorker
from rq import registry
from rq.exceptions import NoSuchJobError, StopRequested
from rq.executions import ExecutionRegistry
from rq.intermediate_queue import IntermediateQueue
from rq.job import Job as RQJob
from rq.results import Result
from rq.utils import now

from ticker.errors import quoted
from ticker.queue.bulk import script
from wrappers.pipeline import foreign_jobs, serialize
from wrappers.rq.compatibility import current, execution_argument

log = logging.getLogger("ticker.run")

COUNTERS = "ticker:refused"
"""The key of a hash in Redis with the number of jobs put aside, by event (`poison`, `forged`)."""

KEPT = 3600  # seconds for which the hash of such a job is kept for inspection, under ticker:EVENT:ID
FIELDS_AT_MOST = 128  # of a job's hash; RQ's own have about 35
LONGEST = 2**40  # seconds: Redis refuses a time to live over about 2^53
CHUNK = 2**23  # bytes of inflated data
NO_JOBS_FAULT = (OSError, MemoryError)  # this host cannot fork now, so the next job would fail, too
TRIES = 100  # poisoned jobs in RQ's registries that one maintenance pass puts aside

REGISTRIES = (
    registry.CanceledJobRegistry, registry.DeferredJobRegistry, registry.FailedJobRegistry,
    registry.FinishedJobRegistry, registry.ScheduledJobRegistry,
    *(vars(registry)[name] for name in ("ReadyJobRegistry",) if hasattr(registry, name)),  # since RQ 3
)  # fmt: skip
"""The registries of a queue with the ids of jobs that no worker has."""

READ_HASH = script("read_hash", "wrappers.rq")

T = TypeVar("T")


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
    connection: Redis, queues: Iterable[RQQueue], poison: Poison, because: BaseException | None = None, *,
    with_hash: bool = True,
) -> None:  # fmt: skip
    """Logs and counts a job, and removes it from the lists of taken jobs.

    With its hash, also removes it from RQ's registries, and keeps the hash under another key.
    """
    job_id = poison.job_id
    is_plain = isinstance(job_id, str) and re.fullmatch("[!-~]{,100}", job_id)
    shown = job_id if is_plain else quoted(job_id)
    log.warning("%s job=%s: %s", poison.event, shown, poison, exc_info=because, extra={"event": "poison"})
    with connection.pipeline(transaction=False) as calls:
        for queue in queues:
            calls.lrem(queue.intermediate_queue_key, 1, cast(str, job_id))
            for kind in REGISTRIES if with_hash else ():
                calls.zrem(kind.key_template.format(queue.name), job_id)
        calls.hincrby(COUNTERS, poison.event, 1)
        if with_hash and isinstance(job_id, str):
            aside = f"ticker:{poison.event}:{job_id}"
            calls.rename(RQJob.key_for(job_id), aside)
            calls.expire(aside, KEPT)
            calls.unlink(*companions(job_id))
        calls.execute(raise_on_error=False)  # what Redis refuses stays: the job has already left its queue


def companions(job_id: str) -> tuple[str, ...]:
    """Returns the keys that RQ keeps for a job, except its hash. RQ's own properties refuse some ids of corrupt jobs."""
    return (
        RQJob.dependents_key_for(job_id),
        f"{RQJob.redis_job_namespace_prefix}:{job_id}:dependencies",
        ExecutionRegistry.key_template.format(job_id),
        Result.get_key(job_id),  # type: ignore[no-untyped-call]
    )


class Job(RQJob):
    """RQ's job, read within limits. An unreadable job raises Poison; a missing one raises RQ's NoSuchJobError."""

    hash_at_most = 64 * 2**20  # bytes in Redis: other applications' jobs may be large, but must not kill a worker
    data_at_most = 64 * 2**20  # bytes of inflated zlib data

    @classmethod
    def fetch(cls, id: str, connection: Redis | None = None, serializer: Any = None) -> RQJob:  # noqa: A002 RQ's name
        with unreadable_is_poison(id):
            return super().fetch(id, connection, serializer)

    def prepare_for_execution(self, worker_name: str, pipeline: Any) -> None:
        """Extends RQ's method: in the same call to Redis, makes the job outlive its time to live."""
        super().prepare_for_execution(worker_name, pipeline)
        pipeline.persist(self.key)

    def perform(self) -> Any:
        """Overrides RQ's method to skip its calls to Redis."""
        with current(self):
            self._result = self._execute()
        return self._result

    def refresh(self) -> None:
        """Overrides RQ's method to read no hash that is over the limits."""
        fields, size, *pairs = self.connection.eval(READ_HASH, 1, self.key, FIELDS_AT_MOST, self.hash_at_most)
        if fields > FIELDS_AT_MOST or size > self.hash_at_most:
            limit = f"over the limit of {FIELDS_AT_MOST} and {self.hash_at_most}"
            raise Poison(f"its hash has {fields} fields and {size} bytes, {limit}")
        if not fields:
            raise NoSuchJobError(f"No such job: {self.key}")
        self.restore(dict(zip(pairs[::2], pairs[1::2], strict=True)))

    def restore(self, raw_data: Mapping[bytes, bytes]) -> None:
        """Overrides RQ's method so that the Poison names the job, even if RQ reads many jobs at once."""
        with unreadable_is_poison(self.id):
            self.read(raw_data)

    def read(self, raw_data: Mapping[bytes, bytes]) -> None:
        if b"data" not in raw_data:
            raise Poison("its hash has no data")
        for field in (b"data", b"exc_info"):
            if not inflates_within(raw_data.get(field, b""), self.data_at_most):
                raise Poison(f"its {field.decode()} inflates to over {self.data_at_most} bytes")
        super().restore(raw_data)
        for name in ("timeout", "ttl", "result_ttl", "failure_ttl", "retries_left", "repeats_left"):
            if abs(getattr(self, name) or 0) > LONGEST:
                raise Poison(f"its {name} is out of range")
        if self.timeout is None:  # RQ's own monitor compares it with a number
            self.timeout = RQQueue.DEFAULT_TIMEOUT


class Queue(RQQueue):
    """RQ's queue. It puts aside jobs that cannot be read, and puts back jobs of other installations."""

    @classmethod
    def dequeue_any(  # type: ignore[override]
        cls, queues: Iterable[RQQueue], timeout: int | None, connection: Redis, **options: Any
    ) -> tuple[RQJob, RQQueue] | None:
        queues = list(queues)
        met: set[str] = set()  # ids of jobs of other installations
        while True:
            _taken.clear()
            try:
                if (taken := super().dequeue_any(queues, timeout, connection, **options)) is None:
                    return None
                job, queue = taken
                job.origin = job.origin or queue.name  # without it, RQ would look for the job in other lists
                if _taken and (_taken[0], queue.name) != (job.id.encode(), job.origin):
                    # RQ would remove the wrong id (it reads a:b as a), or look in another queue's list
                    connection.lrem(queue.intermediate_queue_key, 1, cast(str, _taken[0]))
                if foreign_jobs.is_foreign(job.id):
                    if not foreign_jobs.put_back(connection, queue, job, met, timeout):
                        return None
                elif refused := cls.refusal(job, queue):
                    put_aside(connection, [queue], refused, with_hash=False)
                else:
                    return taken
            except Poison as poison:
                put_aside(connection, queues, poison)
            except UnicodeDecodeError as error:
                put_aside(connection, queues, Poison("its id is not UTF-8", error.object))

    @classmethod
    def refusal(cls, _job: RQJob, _queue: RQQueue) -> Poison | None:
        """Returns why a job that can be read may not run from this queue."""
        return None

    @classmethod
    def lmove(cls, connection: Redis, queue_key: str, timeout: int | None) -> Any:
        """Overrides RQ's method to remove an id without a job from RQ's intermediate list, when RQ takes the next id.

        RQ leaves it there until its next maintenance, up to ten minutes later or when another worker starts.
        """
        while _taken:
            connection.lrem(IntermediateQueue.get_intermediate_queue_key(queue_key), 1, cast(str, _taken.pop()))
        if taken := super().lmove(connection, queue_key, timeout):
            _taken.append(taken[1])
        return taken


_taken: list[bytes] = []
"""The last id that `Queue.lmove` took, within one call of `Queue.dequeue_any`."""


class SurvivingWorker(RQWorker):
    """RQ's forking worker. It puts aside any job that breaks RQ's own code, in the worker or in its maintenance."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.read_with(mixed(Job, self.job_class), mixed(Queue, self.queue_class), self.serializer)

    def read_with(self, job_class: type[RQJob], queue_class: type[RQQueue], serializer: Any) -> None:
        """Replaces the classes that RQ's command line gave the worker and its queues."""
        self.job_class, self.queue_class, self.serializer = job_class, queue_class, serializer
        self.queues = [
            queue_class(
                queue.name, connection=self.connection, job_class=job_class, serializer=serializer,
                death_penalty_class=self.death_penalty_class,
            )
            for queue in self.queues
        ]  # fmt: skip
        self._ordered_queues = self.queues[:]

    def execute_job(self, job: RQJob, queue: RQQueue) -> None:
        try:
            with unreadable_is_poison(job.id, but=NO_JOBS_FAULT):
                super().execute_job(job, queue)
        except Poison as poison:
            poison.job_id = job.id  # even if RQ found it in a dependent of this job
            self._leave(job)
            put_aside(self.connection, [queue], poison, because=poison.__cause__)

    def run_maintenance_tasks(self) -> None:
        """Overrides RQ's method to repeat it after each poisoned job. Other errors end this pass, not the worker."""
        for _ in range(TRIES):
            try:
                with unreadable_is_poison(""):
                    super().run_maintenance_tasks()  # type: ignore[no-untyped-call]
                return
            except Poison as poison:
                for queue in self.queues:  # held by the interrupted pass
                    queue.release_maintenance_lock()  # type: ignore[no-untyped-call]
                self.last_cleaned_at = now()  # type: ignore[assignment]
                if not poison.job_id:
                    log.warning(
                        "RQ's maintenance of its registries was interrupted: %s",
                        poison,
                        extra={"event": "maintenance_interrupted"},
                    )
                    return
                put_aside(self.connection, self.queues, poison)

    def _leave(self, job: RQJob) -> None:
        """Ends what RQ has begun for this job: kills its horse, removes its execution, and makes this worker idle."""
        if self._horse_pid:
            self.kill_horse()
            self.wait_for_horse()
            self._horse_pid = 0
        with self.connection.pipeline(transaction=False) as pipeline:
            self.cleanup_execution(job, pipeline=pipeline, **execution_argument(self))
            pipeline.execute(raise_on_error=False)
        self.set_state("idle")


def mixed(careful: type[T], given: type[T]) -> type[T]:
    """Returns `careful` as a subclass of the class that was given by --job-class or --queue-class."""
    return careful if issubclass(careful, given) else type(given.__name__, (careful, given), {})


def inflates_within(data: bytes, at_most: int) -> bool:
    """Returns whether `data` inflates to at most that many bytes. Discards the result. Only zlib data can inflate."""
    inflater, size = zlib.decompressobj(), 0
    with suppress(zlib.error):
        while data and not inflater.eof and size <= at_most:
            size += len(inflater.decompress(data, CHUNK))
            data = inflater.unconsumed_tail
    return size <= at_most
