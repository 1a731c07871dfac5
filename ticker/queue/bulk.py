"""The keys and fields that RQ writes when it enqueues a job, written for a whole batch in one call; and when it forgets one.

This file alone knows them. The fields come from RQ's own `Job.to_dict()`; `tests/queue/test_bulk.py` compares every
key, field and byte with `Queue.enqueue_call`, and lets a stock worker run the job.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence

from redis import Redis
from rq import Queue
from rq.executions import Execution
from rq.job import Job, JobStatus
from rq.serializers import DefaultSerializer

from ticker.engine.jobs import ENTRY, Envelope
from ticker.queue import signing

Argument = str | bytes | int
Label = tuple[str, str, int, int]
"""What the jobs of many tasks have in common: queue, description, time-out, time to live."""

_STORED = struct.Struct("<3s2H")  # RFC 1950 and 1951: no preset, the only block, stored; its length, and that inverted
_HEAD = b"\x78\x01\x01"
_CHECKSUM = struct.Struct(">I")

# ARGV: RQ's set of queues, the prefix of its jobs' keys; how many fields and values all jobs share, and these; how many
# labels, and five of each: the queue's key and name, the description, the time-out, the time to live; then of each job the
# number of its label, its id, its data, its signature or ''.
# A queue whose key is of another type refuses the id, before anything is written: that is this job's answer alone. Any
# other error (OOM, READONLY, ...) is the server's: it answers the call, so that no row has to back off on its account.
PUSH = """
local queues, prefix, shared = ARGV[1], ARGV[2], tonumber(ARGV[3])
local at = 4 + shared
local labels, fields, stored = tonumber(ARGV[at]), {}, {}
local function label(i) return at + 1 + 5 * (i - 1) end
for i = 1, labels do
    local first = label(i)
    fields[i] = {'origin', ARGV[first + 1], 'description', ARGV[first + 2], 'timeout', ARGV[first + 3], 'ttl', ARGV[first + 4],
        unpack(ARGV, 4, 3 + shared)}
end
local answers = {}
for i = label(labels + 1), #ARGV, 4 do
    local number, id = tonumber(ARGV[i]), ARGV[i + 1]
    local first, job = label(number), prefix .. id
    local answer = 'stored'
    if redis.call('EXISTS', job) == 1 then
        answer = 'held'
    else
        local pushed = redis.pcall('RPUSH', ARGV[first], id)
        if type(pushed) == 'table' and pushed.err then
            if not string.find(pushed.err, 'WRONGTYPE') then return pushed end
            answer = pushed.err
        else
            redis.call('HSET', job, 'data', ARGV[i + 2], unpack(fields[number]))
            if ARGV[i + 3] ~= '' then redis.call('HSET', job, 'signature', ARGV[i + 3]) end
            redis.call('EXPIRE', job, ARGV[first + 4])
            if not stored[number] then redis.call('SADD', queues, ARGV[first]) end
            stored[number] = true
        end
    end
    answers[#answers + 1] = answer
end
return answers
"""

# ARGV: job ids. Of each, its status; '' when it is not there, or when it is queued by its own account, and in no queue
# for ten seconds: a worker took it, and died before it could say so. A worker that lives says so within moments. As a
# queue is taken from its front, only a job whose queue begins with a later one can be astray, and only 20 of those are
# looked for in a call: each costs a pass over the list, 1 ms for 100,000 jobs.
STATES = """
local heads, looks, now = {}, 20, tonumber(redis.call('TIME')[1])
local function head_of(queue)
    if not heads[queue] then
        local id = redis.pcall('LINDEX', queue, 0)
        local at = type(id) == 'string' and redis.pcall('HGET', 'rq:job:' .. id, 'enqueued_at')
        heads[queue] = not id and 'empty' or type(at) == 'string' and at or ''
    end
    return heads[queue]
end
local function is_astray(id, queue, enqueued_at)
    local head = head_of(queue)
    if head == 'empty' then return true end
    if head <= enqueued_at or looks == 0 then return false end
    looks = looks - 1
    return not redis.call('LPOS', queue, id)
end
local answers = {}
for i, id in ipairs(ARGV) do
    local key = 'rq:job:' .. id
    local job = redis.pcall('HMGET', key, 'status', 'origin', 'enqueued_at', 'astray_since')
    if job.err and not string.find(job.err, 'WRONGTYPE') then
        return job
    elseif job.err then
        answers[i] = 'no job'
    else
        answers[i] = job[1] or ''
        if job[1] == 'queued' and job[2] and job[3] and is_astray(id, 'rq:queue:' .. job[2], job[3]) then
            if not job[4] then
                redis.pcall('HSET', key, 'astray_since', now)
            elseif now - (tonumber(job[4]) or 0) >= 10 then
                answers[i] = ''
            end
        end
    end
end
return answers
"""

# ARGV: a job's id, and for how many seconds it was executed; the keys of its worker's hash, of its dependents, of its
# queue's list of what workers have just taken, and of its queue's registry of what they execute; the job's member in that;
# then all keys that vanish with the job. 0, and nothing is done: other jobs wait for this one.
FORGET = """
local id, seconds, worker, dependents, taken, registry, member = unpack(ARGV, 1, 7)
if redis.call('EXISTS', dependents) == 1 then return 0 end
redis.call('DEL', unpack(ARGV, 8))
redis.pcall('LREM', taken, 1, id)
redis.pcall('ZREM', registry, member)
redis.call('HINCRBY', worker, 'successful_job_count', 1)
redis.call('HINCRBYFLOAT', worker, 'total_working_time', seconds)
redis.call('HDEL', worker, 'current_job')
return 1
"""

PER_JOB = ("origin", "data", "description", "timeout", "ttl")


def shared_fields(connection: Redis, result_ttl: int, failure_ttl: int) -> Mapping[str, Argument]:
    """The fields of RQ's hash that are the same for every job of a batch, as RQ itself would write them now."""
    queue = Queue("template", connection=connection)
    job = Job.create(
        ENTRY, connection=connection, timeout=1, ttl=1, result_ttl=result_ttl, failure_ttl=failure_ttl,
        status=JobStatus.QUEUED, origin=queue.name,
    )  # fmt: skip
    job.enqueued_at = job.created_at
    return {field: value for field, value in job.to_dict().items() if field not in PER_JOB}


def misfit(connection: Redis) -> str:
    """In what this RQ differs from what is written here; nothing, where it does not. `connection` is not used."""
    keys = Job.key_for("1"), Queue("x", connection=connection).key, Queue.redis_queues_keys
    if keys != ("rq:job:1", "rq:queue:x", "rq:queues"):
        return f"its keys are {', '.join(keys)}"
    one = Envelope("t1-1", "x", (1, 1), 61, 3660, "poll")
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
        return f"it does not read such a job: {type(error).__name__}: {error}"
    if read != (ENTRY, one.args, {}, one.queue, one.description, one.timeout, one.ttl, JobStatus.QUEUED):
        return f"it reads another job: {read}"
    return ""


def as_stored(value: Argument) -> bytes:
    return value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else str(value).encode()


def arguments(envelopes: Sequence[Envelope], shared: Mapping[str, Argument], key: str = "") -> list[Argument]:
    """What `PUSH` is called with; signed with `key`, if there is one. What many jobs have in common is said once."""
    numbers: dict[Label, int] = {}
    jobs: list[Argument] = []
    for envelope in envelopes:
        number = numbers.setdefault(label(envelope), len(numbers) + 1)
        call = payload(envelope)
        jobs += number, envelope.job_id, packed(call), signature(envelope, call, key)
    pairs = [part for field, value in shared.items() for part in (field, value)]
    labels = [part for found in numbers for part in (f"{Queue.redis_queue_namespace_prefix}{found[0]}", *found)]
    return [Queue.redis_queues_keys, Job.redis_job_namespace_prefix, len(pairs), *pairs, len(numbers), *labels, *jobs]


def to_forget(worker_key: str, job: Job, execution: Execution | None, executed: float) -> list[Argument]:
    """What `FORGET` is called with; `executed` is in seconds, `execution` None where RQ has not begun any."""
    queue = Queue(job.origin, connection=job.connection)
    return [
        job.id, str(executed), worker_key, job.dependents_key, queue.intermediate_queue_key, job.started_job_registry.key,
        execution.composite_key if execution else "", job.key, job.dependencies_key, job.execution_registry.key,
        *([execution.key] if execution else []),
    ]  # fmt: skip


def label(envelope: Envelope) -> Label:
    return envelope.queue, envelope.description, envelope.timeout, envelope.ttl


def payload(envelope: Envelope) -> bytes:
    """RQ's pickle of the call."""
    call: bytes = DefaultSerializer.dumps((envelope.entry, None, envelope.args, {}))
    return call


def packed(payload: bytes) -> bytes:
    """A zlib stream, as RQ reads it, of one stored block: to deflate it takes 20 to 200 times as long, and saves 7 bytes.

    Up to 64 bytes, Redis keeps such a job in less than half of the memory.
    """
    size = len(payload)
    return b"".join((_STORED.pack(_HEAD, size, size ^ 0xFFFF), payload, _CHECKSUM.pack(zlib.adler32(payload))))


def signature(envelope: Envelope, payload: bytes, key: str) -> bytes | str:
    return signing.sign(key, envelope.job_id, envelope.queue, envelope.timeout, payload) if key else ""
