"""Corruptions of jobs in Redis, which a seed chooses. They change nothing but the keys of one job.

Pickles are changed at random, so that a worker that reads them meets garbage, and never a call of something harmful.
"""

import zlib
from collections.abc import Callable, Mapping
from random import Random

from redis import Redis
from rq import Queue
from rq.job import Job

BOMB = zlib.compress(b"\0" * 100_000_000)  # 97 kB
HUGE = [b"", b"\0", b"\xff", b"x" * 100_000, b"9" * 5_000, b"[" * 50_000, "\u202e\U0001f4ec".encode() * 500]
STATUSES = [
    "finished",
    "failed",
    "started",
    "deferred",
    "scheduled",
    "stopped",
    "canceled",
    "created",
    "QUEUED",
    "asleep",
    "",
]
DATES = [
    "yesterday",
    "",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "2026-02-30T00:00:00.000000Z",
    "1e9",
    "-1",
]
NUMBERS = ["0", "-1", "1", "1.5", "nan", "inf", "1" + "0" * 30, "-" + "9" * 30, "٦٠", "0x10", " 60 ", "1_0", ""]
TIMES = ["created_at", "enqueued_at", "started_at", "ended_at", "last_heartbeat"]
AMOUNTS = ["timeout", "ttl", "result_ttl", "failure_ttl", "retries_left", "repeats_left", "success_callback_timeout"]
ADDED: Mapping[str, list[bytes]] = {
    "dependency_ids": [b"[", b"[]", b'["x"]', b"{}", b"null", b'[1, {"a": []}]'],
    "retries_left": [b"3"], "retry_intervals": [b"5", b"[0]", b"x"], "repeat_intervals": [b"[]", b"x"],
    "meta": [b"", b"garbage", b"\x80\x05N."], "result": [b"garbage"], "exc_info": [BOMB, b"garbage"],
    "group_id": [b"x", b"\xff"], "worker_name": [b"\xff", b"x" * 10_000], "enqueue_at_front": [b"maybe"],
    "allow_dependency_failures": [b"maybe"], "success_callback_name": [b"no.such", b"\xff"],
    "failure_callback_name": [b"no.such"], "stopped_callback_name": [b"no.such"], "serializer": [b"x"],
    "webhooks": [b"[", b'[{"url": "x"}]'], "signature": [b"", b"0" * 64, b"\xff" * 32], "\udcff": [b"x"],
}  # fmt: skip
COMPANIONS = [
    "rq:executions:{}",
    "rq:results:{}",
    "rq:job:{}:dependents",
    "rq:job:{}:dependencies",
    "rq:job:{}:execution",
]


def mutated(value: bytes, random: Random) -> bytes:
    """Some bytes flipped, cut out, put in, or all of them replaced."""
    at = random.randrange(len(value) + 1)
    match random.choice(["flip", "cut", "insert", "replace", "end"]):
        case "flip" if at < len(value):
            return value[:at] + bytes([value[at] ^ 1 << random.randrange(8)]) + value[at + 1 :]
        case "cut":
            return value[:at] + value[at + random.randint(1, 8) :]
        case "insert":
            return value[:at] + random.randbytes(random.randint(1, 8)) + value[at:]
        case "replace":
            return random.choice([*HUGE, random.randbytes(random.randint(0, 200))])
    return value[:at]


def changed_field(redis: Redis, key: str, random: Random) -> str:
    fields = redis.hgetall(key)
    name = random.choice(sorted(fields))
    redis.hset(key, name, mutated(fields[name], random))
    return f"{name!r} is mutated"


def changed_pickle(redis: Redis, key: str, random: Random) -> str:
    """The packed form is whole again, so that the pickle in it is read."""
    payload = zlib.decompress(redis.hget(key, "data") or zlib.compress(b""))
    redis.hset(key, "data", zlib.compress(mutated(payload, random)))
    return "its pickle is mutated"


def missing_field(redis: Redis, key: str, random: Random) -> str:
    names = random.sample(sorted(redis.hkeys(key)), random.randint(1, 3))
    redis.hdel(key, *names)
    return f"{names} are missing"


def added_field(redis: Redis, key: str, random: Random) -> str:
    name, values = random.choice(list(ADDED.items()))
    redis.hset(key, name.encode(errors="surrogateescape"), random.choice(values))
    return f"{name!r} is added"


def many_fields(redis: Redis, key: str, random: Random) -> str:
    redis.hset(key, mapping={random.randbytes(8): "x" for _ in range(random.choice([50, 500]))})
    return "fields of nobody's are added"


def word(names: list[str], values: list[str]) -> Callable[[Redis, str, Random], str]:
    def change(redis: Redis, key: str, random: Random) -> str:
        name, value = random.choice(names), random.choice(values)
        redis.hset(key, name, value)
        return f"{name} is {value!r}"

    return change


def bomb(redis: Redis, key: str, random: Random) -> str:
    name = random.choice(["data", "exc_info"])
    redis.hset(key, name, BOMB)
    return f"{name} is a bomb"


def no_job(redis: Redis, key: str, _: Random) -> str:
    redis.delete(key)
    return "it is not there"


def another_type(redis: Redis, key: str, random: Random) -> str:
    redis.delete(key)
    of_type(redis, key, random)
    return "its key is of another type"


def companion(redis: Redis, key: str, random: Random) -> str:
    """A key that RQ keeps beside the job's own."""
    name = random.choice(COMPANIONS).format(key.removeprefix(Job.redis_job_namespace_prefix))
    of_type(redis, name, random)
    return f"{name} is of another type"


def of_type(redis: Redis, key: str, random: Random) -> None:
    random.choice([
        lambda: redis.set(key, "x"), lambda: redis.rpush(key, "x"), lambda: redis.sadd(key, b"\xff"),
        lambda: redis.zadd(key, {"x": 1}), lambda: redis.xadd(key, {"x": "y"}),
    ])()  # fmt: skip


KINDS: list[Callable[[Redis, str, Random], str]] = [
    changed_field, changed_field, changed_pickle, missing_field, added_field, added_field, many_fields, bomb, no_job,
    another_type, companion, word(["status"], STATUSES), word(TIMES, DATES), word(AMOUNTS, NUMBERS),
    word(["origin"], ["", "elsewhere", "x" * 300]),
]  # fmt: skip


def corrupt(redis: Redis, job_id: str, random: Random) -> str:
    """Does one thing to a job; returns what."""
    return random.choice(KINDS)(redis, Job.key_for(job_id), random)


def put_strange_id(redis: Redis, queue: Queue, random: Random) -> None:
    """Puts an id into the queue that no ticker gives; every second one has a job."""
    job_id = mutated(random.choice([b"t1-1795374643196452", b"r1", b"", b"a job"]), random)
    if random.random() < 0.5:
        redis.hset(b"rq:job:" + job_id, "data", random.randbytes(20))
    redis.rpush(queue.key, job_id)
