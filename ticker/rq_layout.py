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

from ticker.envelope import ENTRY, Envelope

Argument = str | bytes | int

# ARGV: the name of the set of queues, the number of shared fields and values, these, then seven per job.
# A queue whose key is of another type refuses the id, before anything is written: that is this job's answer alone.
PUSH = """
local queues, shared = ARGV[1], tonumber(ARGV[2])
local fields = {}
for i = 1, shared do fields[i] = ARGV[2 + i] end
local answers = {}
for i = 3 + shared, #ARGV, 7 do
    local job, queue_name, queue, id = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    if redis.call('EXISTS', job) == 1 then
        answers[#answers + 1] = 'held'
    else
        local pushed = redis.pcall('RPUSH', queue, id)
        if type(pushed) == 'table' and pushed.err then
            answers[#answers + 1] = pushed.err
        else
            redis.call('HSET', job, 'origin', queue_name, 'data', ARGV[i + 4], 'description', ARGV[i + 5],
                unpack(fields))
            local timeout, ttl = string.match(ARGV[i + 6], '(%d+) (%d+)')
            redis.call('HSET', job, 'timeout', timeout, 'ttl', ttl)
            redis.call('EXPIRE', job, ttl)
            redis.call('SADD', queues, queue)
            answers[#answers + 1] = 'stored'
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


def arguments(envelopes: Sequence[Envelope], shared: Mapping[str, Argument]) -> list[Argument]:
    """What `PUSH` is called with."""
    pairs = [part for field, value in shared.items() for part in (field, value)]
    result: list[Argument] = [Queue.redis_queues_keys, len(pairs), *pairs]
    for envelope in envelopes:
        result += one_job(envelope)
    return result


def one_job(envelope: Envelope) -> list[Argument]:
    return [
        Job.key_for(envelope.job_id),
        envelope.queue,
        f"{Queue.redis_queue_namespace_prefix}{envelope.queue}",
        envelope.job_id,
        zlib.compress(DefaultSerializer.dumps((ENTRY, None, envelope.args, {}))),
        envelope.description,
        f"{envelope.timeout} {envelope.ttl}",
    ]
