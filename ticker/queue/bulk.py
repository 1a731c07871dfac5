"""Writes the keys and fields that RQ writes when it enqueues a job, for a whole batch in one call. Also forgets jobs.

Only this module knows these keys and fields. The fields come from RQ's own `Job.to_dict()`. `tests/queue/test_bulk.py`
compares every key, field and byte with `Queue.enqueue_call`, and lets a stock worker run the job.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from importlib.resources import files

from redis import Redis
from rq import Queue
from rq.executions import Execution
from rq.job import Job, JobStatus
from rq.serializers import DefaultSerializer

from ticker.engine.jobs import ENTRY, JobSpec
from ticker.queue import signing

Argument = str | bytes | int
Label = tuple[str, str, int, int]
"""The values that the jobs of many tasks share: queue, description, timeout, time to live."""

_STORED = struct.Struct("<3s2H")  # RFC 1950 and 1951: no preset, one stored block; its length and the inverted length
_HEAD = b"\x78\x01\x01"
_CHECKSUM = struct.Struct(">I")
_LENGTHS, _LENGTH = struct.Struct("<2H"), struct.Struct("<H")

PREFIX = Queue.redis_queues_keys.removesuffix(":queues")
"""How the names of RQ's keys begin: `rq`, or what RQ_KEY_PREFIX says from RQ 3 on. In the scripts, it is `rq`."""


def script(name: str, package: str = "ticker.queue") -> str:
    """Returns the text of the Lua script `name`.lua in a package, with RQ's prefix.

    The first lines of each script describe its arguments and its answer.
    """
    return files(package).joinpath(f"{name}.lua").read_text(encoding="utf-8").replace("'rq:", f"'{PREFIX}:")


PUSH, STATES, FORGET = script("push"), script("states"), script("forget")

PER_JOB = ("origin", "data", "description", "timeout", "ttl")


def shared_fields(connection: Redis, result_ttl: int, failure_ttl: int) -> Mapping[str, Argument]:
    """Returns the fields of RQ's hash that all jobs of a batch share, as RQ itself would write them now."""
    queue = Queue("template", connection=connection)
    job = Job.create(
        ENTRY, connection=connection, timeout=1, ttl=1, result_ttl=result_ttl, failure_ttl=failure_ttl,
        status=JobStatus.QUEUED, origin=queue.name,
    )  # fmt: skip
    job.enqueued_at = job.created_at
    return {field: value for field, value in job.to_dict().items() if field not in PER_JOB}


def incompatibility(connection: Redis) -> str:
    """Returns how this RQ differs from what this module writes, or an empty text if it does not. Never uses
    `connection`.
    """
    keys = Job.key_for("1"), Queue("x", connection=connection).key, Queue.redis_queues_keys
    if keys != (f"{PREFIX}:job:1", f"{PREFIX}:queue:x", f"{PREFIX}:queues"):
        return f"its keys are {', '.join(keys)}"
    one = JobSpec("t1-1", "x", (1, 1), 61, 3660, "poll")
    own: dict[str, Argument] = {
        "origin": one.queue,
        "data": packed(payload(one)),
        "description": one.description,
        "timeout": one.timeout,
        "ttl": one.ttl,
    }
    job = Job(one.job_id, connection=connection)
    try:
        job.restore({k.encode(): as_stored(v) for k, v in {**shared_fields(connection, 0, 3600), **own}.items()})
        read = (
            job.func_name,
            job.args,
            job.kwargs,
            job.origin,
            job.description,
            job.timeout,
            job.ttl,
            job.get_status(refresh=False),
        )
    except Exception as error:
        return f"it does not read our job: {type(error).__name__}: {error}"
    if read != (ENTRY, one.args, {}, one.queue, one.description, one.timeout, one.ttl, JobStatus.QUEUED):
        return f"it reads our job differently: {read}"
    return ""


def as_stored(value: Argument) -> bytes:
    return value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else str(value).encode()


def arguments(specs: Sequence[JobSpec], shared: Mapping[str, Argument], key: str = "") -> list[Argument]:
    """Returns the arguments of `PUSH`, with each job signed if there is a `key`. Values that many jobs share are sent
    once.
    """
    numbers: dict[Label, int] = {}
    jobs: list[bytes] = []
    for spec in specs:
        label = spec.queue, spec.description, spec.timeout, spec.ttl
        number = numbers.setdefault(label, len(numbers) + 1)
        call, id_ = payload(spec), spec.job_id.encode()
        data, signed = packed(call), signature(spec, call, key)
        jobs += _LENGTHS.pack(number, len(id_)), id_, _LENGTH.pack(len(data)), data, _LENGTH.pack(len(signed)), signed
    pairs = [part for field, value in shared.items() for part in (field, value)]
    labels = [part for each in numbers for part in (f"{Queue.redis_queue_namespace_prefix}{each[0]}", *each)]
    return [
        Queue.redis_queues_keys,
        Job.redis_job_namespace_prefix,
        len(pairs),
        *pairs,
        len(numbers),
        *labels,
        b"".join(jobs),
    ]


def to_forget(worker_key: str, job: Job, execution: Execution | None, executed: float, state: str) -> list[Argument]:
    """Returns the arguments of `FORGET`. `executed` is in seconds. `execution` is None if RQ has not begun one. An empty
    `state` leaves the worker's.
    """
    queue = Queue(job.origin, connection=job.connection)
    return [
        job.id, str(executed), state, worker_key, job.dependents_key, queue.intermediate_queue_key, job.started_job_registry.key,
        execution.composite_key if execution else "", job.key, job.dependencies_key, job.execution_registry.key,
        *([execution.key] if execution else []),
    ]  # fmt: skip


def payload(spec: JobSpec) -> bytes:
    """Returns RQ's pickle of the call."""
    call: bytes = DefaultSerializer.dumps((spec.entry, None, spec.args, {}))
    return call


def packed(payload: bytes) -> bytes:
    """Returns a zlib stream of one stored block, which RQ can read.

    Deflating takes 20 to 200 times as long, and saves 7 bytes. A stream of up to 64 bytes takes less than half the
    memory of a longer one in Redis.
    """
    size = len(payload)
    return b"".join((_STORED.pack(_HEAD, size, size ^ 0xFFFF), payload, _CHECKSUM.pack(zlib.adler32(payload))))


def signature(spec: JobSpec, payload: bytes, key: str) -> bytes:
    return signing.sign(key, spec.job_id, spec.queue, spec.timeout, payload) if key else b""
