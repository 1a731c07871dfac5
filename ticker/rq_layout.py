"""The keys and fields that RQ writes when it enqueues a job, written for a whole batch in one call.

This file alone knows them. The fields come from RQ's own `Job.to_dict()`; `tests/test_rq_layout.py` compares every
key, field and byte with `Queue.enqueue_call`, and lets a stock worker run the job.
"""

import zlib
from collections.abc import Mapping, Sequence

from redis import Redis
from rq import Queue
from rq.job import Job, JobStatus
from rq.serializers import DefaultSerializer

from ticker import signing
from ticker.envelope import ENTRY, Envelope

Argument = str | bytes | int

# ARGV: the name of the set of queues, the number of shared fields and values, these, then eight per job.
# A queue whose key is of another type refuses the id, before anything is written: that is this job's answer alone. Any
# other error (OOM, READONLY, ...) is the server's: it answers the call, so that no row has to back off on its account.
PUSH = """
local queues, shared = ARGV[1], tonumber(ARGV[2])
local fields = {}
for i = 1, shared do fields[i] = ARGV[2 + i] end
local answers = {}
for i = 3 + shared, #ARGV, 8 do
    local job, queue_name, queue, id = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    if redis.call('EXISTS', job) == 1 then
        answers[#answers + 1] = 'held'
    else
        local pushed = redis.pcall('RPUSH', queue, id)
        if type(pushed) == 'table' and pushed.err then
            if not string.find(pushed.err, 'WRONGTYPE') then return pushed end
            answers[#answers + 1] = pushed.err
        else
            redis.call('HSET', job, 'origin', queue_name, 'data', ARGV[i + 4], 'description', ARGV[i + 5],
                unpack(fields))
            local timeout, ttl = string.match(ARGV[i + 6], '(%d+) (%d+)')
            redis.call('HSET', job, 'timeout', timeout, 'ttl', ttl)
            if ARGV[i + 7] ~= '' then redis.call('HSET', job, 'signature', ARGV[i + 7]) end
            redis.call('EXPIRE', job, ttl)
            redis.call('SADD', queues, queue)
            answers[#answers + 1] = 'stored'
        end
    end
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


def arguments(envelopes: Sequence[Envelope], shared: Mapping[str, Argument], key: str = "") -> list[Argument]:
    """What `PUSH` is called with; signed with `key`, if there is one."""
    pairs = [part for field, value in shared.items() for part in (field, value)]
    result: list[Argument] = [Queue.redis_queues_keys, len(pairs), *pairs]
    for envelope in envelopes:
        result += one_job(envelope, key)
    return result


def one_job(envelope: Envelope, key: str = "") -> list[Argument]:
    data = zlib.compress(DefaultSerializer.dumps((ENTRY, None, envelope.args, {})))
    return [
        Job.key_for(envelope.job_id),
        envelope.queue,
        f"{Queue.redis_queue_namespace_prefix}{envelope.queue}",
        envelope.job_id,
        data,
        envelope.description,
        f"{envelope.timeout} {envelope.ttl}",
        signing.sign(key, envelope.job_id, envelope.queue, envelope.timeout, data) if key else "",
    ]
