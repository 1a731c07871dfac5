"""What our push writes is what RQ itself would write: every key, type, field, byte and time to live."""

import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
import rq
from freezegun import freeze_time
from redis import Redis
from rq import Queue
from rq.job import Job, JobStatus
from rq.registry import FinishedJobRegistry

from tests.doubles import INSTALLATION
from tests.sentences import sentence
from ticker.engine import jobs
from ticker.engine.jobs import ENTRY, JobSpec
from ticker.engine.ports import JobState, Receipt
from ticker.model import DueTask, PlannedRun
from ticker.queue import bulk
from ticker.queue.rq import RedisQueue

NOW = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
STORED = Receipt(stored=True)


def due(task_id: int, *, queue: str = "polling", function: str = "mail.fetch", occurrence: datetime = NOW) -> JobSpec:
    return jobs.for_occurrence(
        INSTALLATION, DueTask(task_id, occurrence, queue, function, every_ms=60_000, box_ms=30_000, grace_ms=1000)
    )


BATCH = [
    due(1),
    due(2, queue="reports", function="Bericht für Zoë 📬"),
    due(3),
    jobs.for_planned(INSTALLATION, PlannedRun(7, 10**9, "polling", "mail.fetch", box_ms=100, grace_ms=1)),
    due(10**9, queue="with space: and colon", function="x" * 200),
    due(4, occurrence=datetime(1970, 1, 1, tzinfo=UTC)),
]


def by_rq(redis: Redis, specs: Sequence[JobSpec], result_ttl: int = 0, failure_ttl: int = 3600) -> None:
    for one in specs:
        Queue(one.queue, connection=redis).enqueue_call(
            func=ENTRY, args=one.args, timeout=one.timeout, ttl=one.ttl, result_ttl=result_ttl,
            failure_ttl=failure_ttl, description=one.description, job_id=one.job_id,
        )  # fmt: skip


def everything(redis: Redis) -> dict[bytes, tuple[bytes, bytes, Any]]:
    """The whole Redis database: each key's type, encoding and content; jobs' data unpacked, as it is RQ that unpacks it."""
    readers = {b"hash": unpacked(redis), b"list": lambda key: redis.lrange(key, 0, -1), b"set": redis.smembers}
    found = {}
    for key in redis.scan_iter():
        kind = redis.type(key)
        found[key] = kind, redis.object("encoding", key), readers.get(kind, redis.get)(key)
    return found


def unpacked(redis: Redis) -> Callable[[bytes], dict[bytes, bytes]]:
    def read(key: bytes) -> dict[bytes, bytes]:
        fields = redis.hgetall(key)
        return {**fields, b"data": zlib.decompress(fields[b"data"])}

    return read


def times_to_live(redis: Redis) -> dict[bytes, int]:
    return {key: redis.ttl(key) for key in redis.scan_iter()}


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize(("result_ttl", "failure_ttl"), [(0, 3600), (500, 0), (86_400, 31_622_400)])
@pytest.mark.smoke
def test_a_push_leaves_redis_as_enqueue_call_leaves_it(redis, result_ttl, failure_ttl, fits, monkeypatch):
    monkeypatch.setattr(bulk, "incompatibility", lambda _: "" if fits else "another RQ")
    with freeze_time(NOW):
        by_rq(redis, BATCH, result_ttl, failure_ttl)
        expected, lives = everything(redis), times_to_live(redis)
        redis.flushdb()
        assert RedisQueue(redis, result_ttl=result_ttl, failure_ttl=failure_ttl).push(BATCH) == [STORED] * len(BATCH)
    assert len(expected) == len(BATCH) + 3 + 1  # jobs, queues, the set of queues
    assert everything(redis) == expected
    found = times_to_live(redis)
    assert found.keys() == lives.keys()
    assert all(abs(found[key] - lives[key]) <= 1 for key in lives)


def test_a_layout_that_does_not_fit_is_named_once_and_jobs_go_by_rqs_own_interface(redis, monkeypatch, caplog):
    """They keep what the fast way promises: ids that are held are refused, and a spoilt queue costs only its own jobs."""
    monkeypatch.setattr(Job, "redis_job_namespace_prefix", "rq:work:")
    queue = RedisQueue(redis, signing_key="k" * 32)
    redis.set("rq:queue:broken", "no list")
    first, again, refused = queue.push([due(1), due(1), due(2, queue="broken")])
    assert (first, again) == (STORED, Receipt(held=True)) and "WRONGTYPE" in refused.error
    assert redis.keys("rq:work:*") == [b"rq:work:" + due(1).job_id.encode()]
    assert redis.hexists(f"rq:work:{due(1).job_id}", "signature")
    Job.fetch(due(1).job_id, connection=redis).set_status(JobStatus.FAILED)
    queue.push([due(3)])
    states = queue.states([due(number).job_id for number in (1, 2, 3)])
    assert states == [JobState.DEAD, JobState.MISSING, JobState.WAITING]
    assert [message for message in caplog.messages if "one by one" in message] == [
        sentence("logs.pushed_one_by_one", keys="rq:work:1, rq:queue:x, rq:queues")
    ]


def test_the_jobs_of_a_queue_are_counted_where_this_rq_keeps_them(redis, monkeypatch):
    monkeypatch.setattr(Queue, "redis_queue_namespace_prefix", "rq:list:")
    queue = RedisQueue(redis)
    queue.push([due(1), due(2)])
    assert redis.llen("rq:list:polling") == 2
    assert queue.lengths(["polling", "reports"]) == {"polling": 2, "reports": 0}


def test_an_rq_that_reads_other_jobs_than_were_written_does_not_fit(redis, monkeypatch):
    assert bulk.incompatibility(redis) == ""

    def restore(_job: Job, raw: dict[bytes, bytes]) -> None:
        raise KeyError("data")

    monkeypatch.setattr(Job, "restore", restore)
    assert bulk.incompatibility(redis) == sentence("errors.job_not_read", error="KeyError: 'data'")


def test_jobs_stand_in_the_list_in_the_order_of_the_push(queue, redis):
    specs = [due(number) for number in (5, 3, 9, 1)]
    queue.push(specs[:2])
    queue.push(specs[2:])
    assert Queue("polling", connection=redis).get_job_ids() == [one.job_id for one in specs]


def test_a_push_of_nothing_writes_nothing(queue, redis):
    assert queue.push([]) == []
    assert everything(redis) == {}


def test_an_id_that_is_held_is_refused_and_nothing_of_it_changes(queue, redis):
    queue.push([due(1)])
    before = everything(redis)
    again = due(1, queue="elsewhere", function="another")
    assert queue.push([again, due(1)]) == [Receipt(held=True)] * 2
    assert everything(redis) == before


def test_an_id_is_refused_to_its_copy_in_the_same_call(queue, redis):
    assert queue.push([due(1), due(1), due(2)]) == [STORED, Receipt(held=True), STORED]
    assert Queue("polling", connection=redis).count == 2


def test_jobs_that_are_pushed_together_are_signed_as_those_pushed_alone(redis):
    queue, specs = RedisQueue(redis, signing_key="k" * 32), [due(1), due(2), due(3)]

    def signatures() -> set[bytes]:
        return {redis.hget(Job.key_for(spec.job_id), "signature") for spec in specs}

    queue.push(specs)
    together = signatures()
    redis.flushdb()
    for spec in specs:
        queue.push([spec])
    assert together == signatures() and len(together) == 3


@pytest.mark.parametrize("status", ["started", "finished", "failed"])
def test_a_job_that_redis_still_keeps_holds_its_id_whatever_became_of_it(status, queue, redis):
    queue.push([due(1)])
    redis.lpop("rq:queue:polling")
    Job.fetch(due(1).job_id, connection=redis).set_status(JobStatus(status))
    assert queue.push([due(1)]) == [Receipt(held=True)]
    assert Queue("polling", connection=redis).count == 0


def test_a_queue_key_of_another_type_costs_only_itself_and_leaves_no_hash_behind(queue, redis):
    redis.set("rq:queue:broken", "no list")
    first, refused, last = queue.push([due(1), due(2, queue="broken"), due(3)])
    assert (first, last) == (STORED, STORED)
    assert not refused.stored and not refused.held and refused.error.startswith("WRONGTYPE")
    assert redis.get("rq:queue:broken") == b"no list"
    assert redis.smembers("rq:queues") == {b"rq:queue:polling"}
    assert not redis.exists(Job.key_for(due(2).job_id))


@pytest.mark.parametrize(
    "args",
    [due(1).args, due(10**9).args, due(10**9, occurrence=datetime(9999, 12, 31, tzinfo=UTC)).args, (10**9, 0, 10**9)],
    ids=str,
)
def test_a_job_of_realistic_ids_fits_the_64_bytes_that_redis_stores_compactly(args, queue, redis):
    queue.push([JobSpec("t1-1", "polling", args, 61, 4800, "mail.fetch")])
    assert len(redis.hget("rq:job:t1-1", "data")) <= 64
    assert redis.object("encoding", "rq:job:t1-1") == b"listpack"


def test_the_largest_ids_and_a_long_name_arrive_whole(queue, redis):
    largest = JobSpec("t1-1", "polling", (2**63 - 1, -(2**63), 2**63 - 1), 2**31, 2**31, "ä" * 200)
    queue.push([largest])
    job = Job.fetch("t1-1", connection=redis)
    assert (job.args, job.timeout, job.ttl, job.description) == (largest.args, 2**31, 2**31, "ä" * 200)


def test_what_people_look_at_with_rq_reads_our_jobs(queue, redis):
    with freeze_time(NOW):
        queue.push([due(1), due(2)])
    [polling] = Queue.all(connection=redis)
    first, second = polling.get_jobs()
    assert (polling.name, polling.count, second.id) == ("polling", 2, due(2).job_id)
    assert (first.func_name, first.args, first.kwargs, first.origin) == (ENTRY, due(1).args, {}, "polling")
    assert (first.get_status(), first.is_queued, first.get_position()) == (JobStatus.QUEUED, True, 0)
    assert (first.created_at, first.enqueued_at, first.started_at) == (NOW, NOW, None)
    assert (first.timeout, first.ttl, first.result_ttl, first.failure_ttl) == (61, 4800, 0, 3600)
    assert (first.description, first.meta, first.dependency) == ("mail.fetch", {}, None)
    assert first.get_call_string() == f"wrappers.run(1, {jobs.micros(NOW)})"


def test_a_job_is_alive_then_dead_then_missing(queue, redis):
    queue.push([due(1), due(2)])
    Job.fetch(due(2).job_id, connection=redis).set_status(JobStatus.FAILED)
    ids = [due(number).job_id for number in (1, 2, 3)]
    assert queue.states(ids) == [JobState.WAITING, JobState.DEAD, JobState.MISSING]
    queue.forget(ids)
    assert queue.states(ids) == [JobState.MISSING] * 3
    assert queue.states([]) == []


WITH_ANOTHER_PREFIX = """
import os, subprocess, sys
from rq.job import Job
from tests.queue.test_bulk import due
from ticker.queue import rq
redis = rq.connect(os.environ["REDIS_URL"])
queue, specs = rq.RedisQueue(redis), [due(41), due(42)]
assert not queue._incompatibility
queue.push(specs)
ids = [spec.job_id for spec in specs]
print(sorted(key.decode() for key in redis.keys()), *queue.states(ids), *queue.lengths(["polling"]).values())
print(queue.staff().unattended, *queue.ages(["polling"]), queue.refused(["polling"]))
subprocess.run([sys.executable, "-m", "rq.cli", "worker", "--burst", "--url", os.environ["REDIS_URL"], "polling"],
    check=True, capture_output=True)
print(redis.keys("rq:*"), *queue.states(ids), *queue.lengths(["polling"]).values())
"""


@pytest.mark.slow
@pytest.mark.skipif(rq.__version__ < "3", reason="RQ 2 has one prefix")
def test_pushes_and_readings_use_the_prefix_of_rqs_keys(environ, db):
    command = [sys.executable, "-c", WITH_ANOTHER_PREFIX]
    played = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=os.environ | {"RQ_KEY_PREFIX": "acme.eu"}
    )
    assert played.returncode == 0, played.stderr
    keys = [*(f"acme.eu:job:{due(number).job_id}" for number in (41, 42)), "acme.eu:queue:polling", "acme.eu:queues"]
    assert played.stdout.splitlines() == [
        f"{keys} waiting waiting 2", "{'polling': 2} polling []", "[] missing missing 0",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_stock_worker_takes_and_runs_such_a_job(environ, redis, db):
    """The task of this job is gone, which only the wrapper can find out: so it was called, with these arguments."""
    job_id = due(41).job_id
    assert RedisQueue(redis, result_ttl=60).push([due(41), due(42)]) == [STORED, STORED]
    command = [sys.executable, "-m", "rq.cli", "worker", "--burst", "--url", environ["REDIS_URL"], "polling"]
    worker = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert worker.returncode == 0, worker.stderr
    job = Job.fetch(job_id, connection=redis)
    assert (job.get_status(), job.return_value()) == (JobStatus.FINISHED, sentence("why.result_gone", reason="gone"))
    assert FinishedJobRegistry("polling", connection=redis).get_job_ids() == [job_id, due(42).job_id]
    assert Queue("polling", connection=redis).count == 0
    words = [words for (words,) in db.execute("SELECT words FROM ticker.events ORDER BY id")]
    assert words[0].startswith(f"job {job_id} reached worker ") and sentence("why.does_not_wait_for_it", task=41).ends(
        words[0]
    )
    assert len(words) == 2
