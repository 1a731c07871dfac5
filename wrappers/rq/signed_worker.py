"""Runs only jobs that a ticker signed: `ticker worker --hardened`.

Anyone who can write to Redis can run code in every other RQ worker. A job's `data`, `meta` and `result` are
pickles, and its callbacks are functions named in the hash.

This worker reads only the few fields that it needs. It checks the signature over the call, unpacked to at most 4 kB,
and only then reads integers from it. It unpickles nothing, imports nothing that a job names, and calls only
`wrappers.run`. Other jobs are logged as `forged`, counted and put aside, except jobs of other installations, which are
put back.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rq import Queue as RQQueue
from rq.job import Job as RQJob
from rq.serializers import DefaultSerializer

from ticker import settings
from ticker.errors import ConfigurationError
from ticker.queue import signing
from wrappers.pipeline import foreign_jobs, payload
from wrappers.rq import corrupt_jobs
from wrappers.rq.compatibility import incompatibilities_of_newer
from wrappers.rq.worker import Worker

READ = (
    b"data", b"origin", b"timeout", b"created_at", b"enqueued_at", b"started_at", b"ended_at", b"last_heartbeat",
    b"status", b"description", b"worker_name", b"ttl", b"result_ttl", b"failure_ttl",
)  # fmt: skip
"""The fields that are read. Ignored: meta and result (pickles), callbacks (function names), webhooks, retries, groups."""

DESCRIPTION_AT_MOST = 200  # characters

Payload = Mapping[bytes, bytes]


class Forged(corrupt_jobs.Poison):
    """A job that no ticker signed, or that was changed after signing."""

    event = "forged"


class NeverUnpickles:
    """RQ's serializer, for writing only. Results are written in the form that stock tools read. Nothing is read."""

    dumps = DefaultSerializer.dumps

    @staticmethod
    def loads(_data: bytes) -> Any:
        raise Forged("something requested unpickling")


class Job(corrupt_jobs.Job):
    """A job with a valid signature, and the integers that it carries.

    Any other job raises Forged, unless it belongs to another installation.
    """

    hash_at_most = 64 * 1024
    data_at_most = payload.AT_MOST

    def read(self, raw_data: Payload) -> None:
        if foreign_jobs.is_foreign(self.id):
            return  # not read, because another key may have signed it; it is put back
        entry, args = signed_call(self.id, raw_data, signing_keys())
        super().read({field: raw_data[field] for field in READ if field in raw_data})
        self._func_name, self._instance, self._args, self._kwargs = entry, None, args, {}
        self.description = "".join(c if c.isprintable() else "?" for c in self.description or "")[:DESCRIPTION_AT_MOST]


class Queue(corrupt_jobs.Queue):
    """A queue whose jobs were signed for it. They have no dependents."""

    @classmethod
    def refusal(cls, job: RQJob, queue: RQQueue) -> corrupt_jobs.Poison | None:
        return None if job.origin == queue.name else Forged(f"it was signed for the queue {job.origin}", job.id)

    def move_dependents_to_ready(self, *_args: Any, **_options: Any) -> dict[str, list[str]]:
        """Ignores dependents, whose names in Redis are unsigned. RQ 3 calls this method; older RQ calls
        `enqueue_dependents`.
        """
        return {}

    enqueue_dependents = move_dependents_to_ready


class HardenedWorker(Worker):
    """Our Worker, for signed jobs only. Raises ConfigurationError without TICKER_SIGNING_KEY."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        signing_keys()
        if problems := incompatibilities_of_newer():
            raise ConfigurationError(
                f"--hardened is not safe with this release of RQ: {problems[0]}; install an older one"
            )
        super().__init__(*args, **kwargs)
        self.read_with(Job, Queue, NeverUnpickles)

    def _start_scheduler(self, *_args: Any, **_options: Any) -> None:
        raise ConfigurationError(
            "--hardened: RQ's scheduler takes unsigned jobs; run it in another process, without --with-scheduler here"
        )


@cache
def signing_keys() -> tuple[str, ...]:
    """Returns the keys with which signatures are checked. Reads them once."""
    keys = settings.from_environment().signing_keys
    if not keys:
        raise ConfigurationError("--hardened needs TICKER_SIGNING_KEY, the key that the tickers sign with")
    return keys


def signed_call(job_id: str, raw: Payload, keys: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """Returns our function and the integers of a job with a valid signature."""
    data, signature = raw.get(b"data", b""), raw.get(signing.FIELD.encode(), b"")
    if not signature:
        raise Forged("it has no signature")
    if len(data) > payload.AT_MOST:
        raise Forged(f"its data has {len(data)} bytes, over the limit of {payload.AT_MOST}")
    origin, timeout = raw.get(b"origin", b""), raw.get(b"timeout", b"")
    try:
        call = payload.unpacked(data)
        if not signing.fits(keys, signature, job_id.encode(), origin, timeout, call):
            raise Forged("its signature does not match: it was made with another key, or the job was changed")
        return payload.call(job_id, call)
    except ValueError as error:
        raise Forged(str(error)) from None
