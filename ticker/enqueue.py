"""RQ and Redis, behind the ticker's port of a queue. Nowhere else does `ticker` know them."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from rq import Queue
from rq.job import Job, JobStatus

from ticker import rq_layout
from ticker.envelope import Envelope
from ticker.errors import ConfigurationError, QueueUnavailable
from ticker.ports import JobState, Receipt

SOCKET_TIMEOUT = 2  # seconds: row locks are held while Redis is asked
_ALIVE = {JobStatus.CREATED, JobStatus.QUEUED, JobStatus.STARTED, JobStatus.DEFERRED, JobStatus.SCHEDULED}


def connect(url: str) -> Redis:
    """A client whose every wait is bounded, and which tries once more by itself: a repeated push changes nothing."""
    try:
        client = Redis.from_url(
            url, socket_timeout=SOCKET_TIMEOUT, socket_connect_timeout=SOCKET_TIMEOUT, retry=Retry(NoBackoff(), 1)
        )
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # not connected; an unknown ?option shows here at the earliest
    except (ValueError, TypeError, RedisError):  # whose text quotes the URL, and with it the password
        raise ConfigurationError(
            "REDIS_URL cannot be read: look at its port and options; special characters in a password are written %XX"
        ) from None
    return client


@contextmanager
def translated() -> Iterator[None]:
    """Redis' errors as ours, each in one sentence."""
    try:
        yield
    except RedisError as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise QueueUnavailable(f"Redis (REDIS_URL) does not take jobs: {text}") from error


class RedisQueue:
    """RQ's queues. `result_ttl` and `failure_ttl` are seconds: how long Redis keeps a job that ended."""

    def __init__(self, connection: Redis, *, result_ttl: int = 0, failure_ttl: int = 3600) -> None:
        self._connection = connection
        self._result_ttl = result_ttl
        self._failure_ttl = failure_ttl
        self._push = connection.register_script(rq_layout.PUSH)

    @classmethod
    def from_url(cls, url: str, *, result_ttl: int = 0, failure_ttl: int = 3600) -> "RedisQueue":
        return cls(connect(url), result_ttl=result_ttl, failure_ttl=failure_ttl)

    def push(self, envelopes: Sequence[Envelope]) -> Sequence[Receipt]:
        """One call to Redis for all of them."""
        if not envelopes:
            return []
        with translated():
            shared = rq_layout.shared_fields(self._connection, self._result_ttl, self._failure_ttl)
            answers = self._push(args=rq_layout.arguments(envelopes, shared))
        return [_receipt(answer) for answer in answers]

    def states(self, job_ids: Sequence[str]) -> Sequence[JobState]:
        """One round trip for all of them."""
        with translated(), self._connection.pipeline(transaction=False) as pipeline:
            for job_id in job_ids:
                pipeline.hget(Job.key_for(job_id), "status")
            return [_state(status) for status in pipeline.execute()] if job_ids else []

    def forget(self, job_ids: Collection[str]) -> None:
        """Only the hashes go; a worker that meets such an id in the list passes over it."""
        if job_ids:
            with translated():
                self._connection.unlink(*(Job.key_for(job_id) for job_id in job_ids))

    def unattended(self) -> dict[str, int]:
        """Queues with waiting jobs that no worker listens to, and how many jobs wait."""
        with translated():
            queues = Queue.all(connection=self._connection)
            waiting = {queue.name: queue.count for queue in queues}
            attended = {q.name for q in queues if self._connection.scard(f"rq:workers:{q.name}")}
        return {name: count for name, count in waiting.items() if count and name not in attended}

    def ping(self) -> None:
        """QueueUnavailable unless Redis answers."""
        with translated():
            self._connection.ping()

    def close(self) -> None:
        self._connection.close()


def _receipt(answer: bytes) -> Receipt:
    text = answer.decode("utf-8", "replace")
    return Receipt(stored=text == "stored", held=text == "held", error="" if text in {"stored", "held"} else text)


def _state(status: bytes | None) -> JobState:
    if status is None:
        return JobState.MISSING
    return JobState.ALIVE if status.decode() in {s.value for s in _ALIVE} else JobState.DEAD
