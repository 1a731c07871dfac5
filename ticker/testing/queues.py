"""Takes jobs from RQ's queues and runs them in this process. The only module of the kit that knows RQ and Redis."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from uuid import uuid4

from redis import Redis
from rq.exceptions import NoSuchJobError
from rq.job import Job

from ticker.errors import ConfigurationError
from ticker.queue import rq
from ticker.read.explain import counted

CLAIM = "ticker:testing"  # a key that keeps other test sessions out of the database
_claims = set[str]()  # the URLs of the databases that this process has claimed


class Queues:
    """The queues of a Redis database that belongs to the kit."""

    def __init__(self, url: str) -> None:
        self._redis = rq.connect(url)

    def empty(self) -> None:
        """Deletes all keys except the claim."""
        if keys := [key for key in self._redis.scan_iter(count=1000) if key != CLAIM.encode()]:
            self._redis.unlink(*keys)

    def take(self) -> Job | None:
        """Returns the next job, from the first queue by name that has one, or None. Skips the ids of deleted jobs, as
        RQ does.
        """
        for queue in sorted(rq.queues(self._redis), key=lambda queue: queue.name):
            while job_id := self._redis.lpop(queue.key):
                with suppress(NoSuchJobError):
                    return Job.fetch(job_id.decode(), connection=self._redis)  # type: ignore[union-attr]
        return None

    def close(self) -> None:
        self._redis.close()


def perform(job: Job) -> Exception | None:
    """Runs a job without a fork, a signal or a timer. Returns its error, and deletes the job, whatever became of it."""
    try:
        job.perform()
    except Exception as error:
        return error
    finally:
        job.delete()
    return None


@contextmanager
def claimed(url: str) -> Iterator[None]:
    """Claims an empty Redis database for the block, and leaves it empty. Raises ConfigurationError if it is not empty."""
    own = uuid4().hex
    with closing(rq.connect(url)) as redis, closing(Queues(url)) as queues:
        with rq.translated():
            count = redis.dbsize()
            if count or not redis.set(CLAIM, own, nx=True):
                raise ConfigurationError(_not_empty(redis, count))
        _claims.add(url)
        try:
            yield
        finally:
            _claims.remove(url)
            queues.empty()
            redis.delete(CLAIM)


def claimed_once(url: str) -> AbstractContextManager[None]:
    """Claims the database for the block, unless this process has claimed it already."""
    return nullcontext() if url in _claims else claimed(url)


def _not_empty(redis: Redis, count: int) -> str:
    server = redis.get_connection_kwargs()
    where = server.get("path") or f"{server.get('host', 'localhost')}:{server.get('port', 6379)}"
    what = (
        f"is used by another test session, or a killed one has left the key {CLAIM} there (then FLUSHDB empties the database)"
        if redis.exists(CLAIM)
        else f"has {counted(count, 'key')}"
    )
    return (
        f"REDIS_URL: the test kit needs an empty Redis database, and {where}/{server.get('db', 0)} {what}: name another one, such "
        "as redis://localhost:6379/15, or unset REDIS_URL to start an embedded server"
    )
