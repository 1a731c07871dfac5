"""A worker that runs nothing but what a ticker signed: `ticker worker --hardened`.

Whoever can write to Redis can otherwise run code in every RQ worker: a job's `data`, `meta` and `result` are pickles,
and its callbacks are functions named in the hash. This worker reads of a hash the few fields that it needs. It checks
the signature over the call, unpacked to at most 4 kB, and only then takes integers out of it: it unpickles nothing, imports nothing
that a job names, and calls `wrappers.run` alone. Whatever else it meets is logged as `forged`, counted and put aside.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from redis import Redis
from rq import Queue as RQQueue
from rq.job import Job as RQJob
from rq.serializers import DefaultSerializer

from ticker import settings
from ticker.errors import ConfigurationError
from ticker.queue import signing
from wrappers.pipeline import foreign_jobs, payload
from wrappers.rq import corrupt_jobs, poison
from wrappers.rq.compatibility import misfits_of_newer
from wrappers.rq.worker import Worker

READ = (
    b"data", b"origin", b"timeout", b"created_at", b"enqueued_at", b"started_at", b"ended_at", b"last_heartbeat",
    b"status", b"description", b"worker_name", b"ttl", b"result_ttl", b"failure_ttl",
)  # fmt: skip
"""The fields that are read. Left out: meta, result (pickles), callbacks (names of functions), webhooks, retries, groups."""

DESCRIPTION_AT_MOST = 200  # characters

Payload = Mapping[bytes, bytes]


class Forged(poison.Poison):
    """A job that no ticker signed, or that was changed after it was."""

    event = "forged"


class NeverUnpickles:
    """RQ's serializer, one way: results are written as stock tools read them, and nothing is read."""

    dumps = DefaultSerializer.dumps

    @staticmethod
    def loads(_data: bytes) -> Any:
        raise Forged("something asked for unpickling")


class Job(corrupt_jobs.Job):
    """A job whose signature fits, with the integers that it carries. Everything else is Forged."""

    hash_at_most = 64 * 1024
    data_at_most = payload.AT_MOST

    def read(self, raw_data: Payload) -> None:
        if foreign_jobs.is_foreign(self.id):
            return  # not read: another key may have signed it, and it is put back
        entry, args = signed_call(self.id, raw_data, signing_keys())
        super().read({field: raw_data[field] for field in READ if field in raw_data})
        self._func_name, self._instance, self._args, self._kwargs = entry, None, args, {}
        self.description = "".join(c if c.isprintable() else "?" for c in self.description or "")[:DESCRIPTION_AT_MOST]


class Queue(corrupt_jobs.Queue):
    """A queue whose jobs were signed for it; none of them has dependents."""

    @classmethod
    def dequeue_any(  # type: ignore[override]
        cls, queues: Iterable[RQQueue], timeout: int | None, connection: Redis, **options: Any
    ) -> tuple[RQJob, RQQueue] | None:
        while taken := super().dequeue_any(queues, timeout, connection, **options):
            job, queue = taken
            if job.origin == queue.name:
                break
            poison.pass_over(connection, [queue], Forged(f"it was signed for the queue {job.origin}", job.id))
        return taken

    def move_dependents_to_ready(self, *_args: Any, **_options: Any) -> dict[str, list[str]]:
        """Their names stand in Redis, unsigned. RQ 3 asks for them here, and older RQ in `enqueue_dependents`."""
        return {}

    enqueue_dependents = move_dependents_to_ready


class HardenedWorker(Worker):
    """Our Worker, for signed jobs only. ConfigurationError without TICKER_SIGNING_KEY."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        signing_keys()
        if misfits := misfits_of_newer():
            raise ConfigurationError(f"--hardened: it is not safe with this RQ, install an older one: {misfits[0]}")
        super().__init__(*args, **kwargs)
        self.read_with(Job, Queue, NeverUnpickles)

    def _start_scheduler(self, *_args: Any, **_options: Any) -> None:
        raise ConfigurationError(
            "--hardened: RQ's scheduler takes unsigned jobs; run it elsewhere, not --with-scheduler"
        )


@cache
def signing_keys() -> tuple[str, ...]:
    """The keys that signatures are checked with, read once."""
    keys = settings.from_environment().signing_keys
    if not keys:
        raise ConfigurationError("--hardened needs TICKER_SIGNING_KEY, the key that the tickers sign with")
    return keys


def signed_call(job_id: str, raw: Payload, keys: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """The function of ours and the integers in a job whose signature fits."""
    data, signature = raw.get(b"data", b""), raw.get(signing.FIELD.encode(), b"")
    if not signature:
        raise Forged("it has no signature")
    if len(data) > payload.AT_MOST:
        raise Forged(f"its data has {len(data)} bytes, over the limit of {payload.AT_MOST}")
    origin, timeout = raw.get(b"origin", b""), raw.get(b"timeout", b"")
    try:
        call = payload.unpacked(data, payload.AT_MOST)
        if not signing.fits(keys, signature, job_id.encode(), origin, timeout, call):
            raise Forged("its signature does not fit: another key, or something of it was changed")
        return payload.call(job_id, call)
    except ValueError as error:
        raise Forged(str(error)) from None
