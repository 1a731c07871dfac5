"""One corrupt job in Redis costs only itself: the worker puts it aside, and the next job runs."""

import re
import signal
import subprocess
import sys
import zlib
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis
from rq import Queue
from rq.job import Job
from rq.version import VERSION

import ticker
from tests.running import ROOT, is_alive, until, work
from tests.sentences import Sentence, sentence
from ticker.engine import jobs
from ticker.engine.ports import JobState
from ticker.engine.tick import tick
from ticker.queue.rq import RedisQueue
from wrappers.rq.compatibility import version_of
from wrappers.rq.corrupt_jobs import inflates_within

ASLEEP = zlib.compress(b"\x80\x05N.")  # the pickle of None: no call
HASH = {
    "created_at": "2026-01-01T12:00:00.000000Z", "origin": "polling", "status": "queued", "timeout": "60",
    "result_ttl": "0", "failure_ttl": "3600", "description": "poll", "data": ASLEEP,
}  # fmt: skip
ENDLESS = "1" + "0" * 30
BOMB = zlib.compress(b"\0" * 300_000_000)  # 291 kB
PEAK = "import atexit; atexit.register(lambda: print(open('/proc/self/status').read(), flush=True))"

# The fields that make a job of each kind, and what the log says of it.
CORRUPT: dict[str, tuple[dict[Any, Any], str | Sentence]] = {
    "no-data": ({"data": None}, sentence("logs.no_data")),
    "no-date": ({"created_at": "yesterday"}, "ValueError: time data 'yesterday' does not match"),
    "no-timeout": ({"timeout": "abc"}, "AssertionError"),
    "endless-timeout": ({"timeout": ENDLESS}, sentence("logs.field_beyond_bounds", field="timeout")),
    "endless-failure-ttl": ({"failure_ttl": ENDLESS}, sentence("logs.field_beyond_bounds", field="failure_ttl")),
    "no-result-ttl": ({"result_ttl": "soon"}, "ValueError: invalid literal"),
    "status-no-utf8": ({"status": b"\xff\xfe"}, "UnicodeDecodeError"),
    "status-unknown": ({"status": "asleep"}, "ValueError: 'asleep' is not a valid JobStatus"),
    "description-no-utf8": ({"description": b"\xff"}, "UnicodeDecodeError"),
    "field-no-utf8": ({b"\xff": "x"}, "UnicodeDecodeError"),
    "retries-no-list": ({"retries_left": "3", "retry_intervals": "5"}, "TypeError"),
    "dependencies-no-json": ({"dependency_ids": "["}, "JSONDecodeError"),
    "deep-json": ({"dependency_ids": "[" * 100_000}, "RecursionError"),
    "huge": ({"data": b"\0" * 70_000_000}, sentence("logs.large_hash", fields=8, bytes=re.compile("7[0-9]{7}"))),
    "many-fields": ({str(number): "x" for number in range(200)}, sentence("logs.many_fields", fields=208)),
    "bomb": ({"data": BOMB}, sentence("logs.inflates", field="data", limit=67108864)),
    "bomb-in-traceback": ({"exc_info": BOMB}, sentence("logs.inflates", field="exc_info", limit=67108864)),
}
# What RQ takes, and what its horse then fails on.
ODD: dict[str, dict[str, Any]] = {
    "truncated": {"data": zlib.compress(b"x" * 100)[:-5]},
    "no-call": {},
    "only-data": dict.fromkeys(HASH, None) | {"data": ASLEEP},
    "no-queue": {"origin": None},
    "no-limit": {"timeout": None},
}


def put(redis: Redis, job_id: str, fields: dict[Any, Any] | None = None, **more: Any) -> None:
    """A job in the queue; None leaves a field out."""
    values = HASH | (fields or {}) | more
    redis.hset(f"rq:job:{job_id}", mapping={key: value for key, value in values.items() if value is not None})
    redis.rpush("rq:queue:polling", job_id)


def a_job_that_runs(db: Any, store: Any, queue: Any, **options: Any) -> Any:
    """One of ours, at the end of the queue."""
    db.execute("CREATE TABLE IF NOT EXISTS trace (what text, value jsonb, pid int)")
    task = ticker.register(db, "plain", every="1m", **options)
    tick(store, queue)
    return task


def outcomes(db: Any) -> list[str]:
    return [run.outcome for run in reversed(ticker.list_runs(db))]


@pytest.mark.promise("S11")
def test_no_corrupt_job_stops_the_worker(environ, db, store, queue, redis):
    for job_id, (fields, _) in CORRUPT.items():
        put(redis, job_id, fields)
    for job_id, fields in ODD.items():
        put(redis, job_id, fields)
    a_job_that_runs(db, store, queue)
    log = work().stdout
    for job_id, (_, reason) in CORRUPT.items():
        [said] = re.findall(rf"WARNING ticker.run poison job={job_id}: (.*)", log)
        assert reason.begins(said) if isinstance(reason, Sentence) else said.startswith(reason)
    assert outcomes(db) == ["succeeded"]
    assert redis.hgetall("ticker:refused") == {b"poison": str(len(CORRUPT)).encode()}
    assert Queue("polling", connection=redis).count == redis.llen("rq:queue:polling:intermediate") == 0
    assert not redis.exists(*(Job.key_for(job_id) for job_id in CORRUPT))


@pytest.mark.slow
def test_no_key_of_another_type_stops_the_worker(environ, db, store, queue, redis):
    redis.set("rq:job:text", "x")
    redis.rpush("rq:job:list", "x")
    put(redis, "executions")
    redis.set("rq:executions:executions", "x")
    put(redis, "dependents")
    redis.set("rq:job:dependents:dependents", "x")
    redis.rpush("rq:queue:polling", "text", "list", "gone", "a job", b"\xff\xfe", "x" * 5000, "")
    a_job_that_runs(db, store, queue)
    log = work().stdout
    odd = ["'a job'"] if version_of(VERSION) > (2, 6, 1) else []  # to RQ 2.6.1, that is an id, of which there is no job
    for job_id in ("text", "list", "executions", *odd, r"b'\\xff\\xfe'"):
        assert re.search(f"poison job={job_id}: ", log), job_id
    assert outcomes(db) == ["succeeded"]
    assert not redis.exists("rq:executions:executions", "rq:wip:polling", "rq:job:executions")
    assert not redis.exists("rq:queue:polling:intermediate")


@pytest.mark.slow
def test_no_id_stays_in_rqs_list_of_what_was_taken(environ, redis):
    """RQ leaves an id without a job to its maintenance; it removes others by the queue and the id that the job has."""
    put(redis, "elsewhere", origin="elsewhere")
    put(redis, "half")
    redis.rpush("rq:queue:polling", "gone", "half:1")  # RQ reads the id as far as the colon
    work()
    assert not redis.exists("rq:queue:polling", "rq:queue:polling:intermediate")


@pytest.mark.slow
def test_a_run_whose_dependents_are_no_set_ends_no_worker(environ, db, store, queue, redis):
    """What RQ does after a success fails, when the horse is dead already."""
    a_job_that_runs(db, store, queue)
    [key] = redis.keys("rq:job:*")
    redis.set(f"{key.decode()}:dependents", "x")
    ticker.register(db, "plain", name="the next", every="1m")
    tick(store, queue)
    log = work().stdout
    assert "poison job=" in log
    assert outcomes(db) == ["succeeded"] * 2


@pytest.mark.slow
def test_a_poisoned_job_is_kept_aside_for_an_hour(environ, redis):
    put(redis, "no-date", created_at="yesterday")
    work()
    assert redis.hget("ticker:poison:no-date", "created_at") == b"yesterday"
    assert 3500 < redis.ttl("ticker:poison:no-date") <= 3600


@pytest.mark.slow
@pytest.mark.parametrize("queues", [("polling",), ("polling", "reports")], ids=" ".join)
def test_a_worker_that_waits_takes_poison_and_goes_on(queues, environ, db, store, queue, redis):
    command = [sys.executable, "-m", "wrappers", "--tasks", "tests.sample_tasks", *queues]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as worker:
        until(lambda: redis.smembers("rq:workers:polling"), "the worker listens")
        put(redis, "no-date", created_at="yesterday")
        redis.rpush("rq:queue:polling", b"\xff")
        a_job_that_runs(db, store, queue)
        until(lambda: outcomes(db) == ["succeeded"], "the job behind the poison has run")
        assert is_alive(worker.pid)
        worker.send_signal(signal.SIGTERM)
        log = worker.communicate()[0]
    assert worker.returncode == 0
    assert "poison job=no-date" in log and "poison job=b'\\xff'" in log


@pytest.mark.slow
def test_poison_in_rqs_registries_does_not_stop_a_worker_at_its_start(environ, db, store, queue, redis):
    """A stock worker ends on poison, leaves it in these lists, and so ends every worker that starts after it."""
    put(redis, "taken", created_at="yesterday")
    put(redis, "begun", status=b"\xff")
    redis.delete("rq:queue:polling")
    redis.rpush("rq:queue:polling:intermediate", "taken")
    redis.zadd("rq:wip:polling", {"begun:1": 1})
    a_job_that_runs(db, store, queue)
    log = work().stdout
    assert "poison job=taken: " in log and "poison job=begun: " in log
    assert outcomes(db) == ["succeeded"]
    assert not redis.exists("rq:queue:polling:intermediate", "rq:wip:polling", "rq:clean_registries:polling")


@pytest.mark.slow
@pytest.mark.skipif(version_of(VERSION) < (3,), reason="RQ 3 brought the registry of jobs that may be enqueued")
@pytest.mark.parametrize("option", ["--burst", "--hardened"])
def test_poison_that_may_be_enqueued_does_not_break_off_each_maintenance(option, environ, redis, monkeypatch):
    monkeypatch.setenv("TICKER_SIGNING_KEY", "a key of enough length")
    put(redis, "ready", created_at="yesterday", status="ready_to_enqueue")
    redis.delete("rq:queue:polling")
    redis.zadd("rq:ready:polling", {"ready": 1, "gone": 2})
    log = work(option, "polling").stdout
    assert re.search("(poison|forged) job=ready: ", log)
    assert not sentence("logs.maintenance_broke_off").within(log)
    assert not redis.exists("rq:ready:polling", "rq:clean_registries:polling")


@pytest.mark.slow
def test_a_broken_registry_ends_rqs_maintenance_and_no_worker(environ, db, store, queue, redis):
    redis.sadd("rq:groups", b"\xff")
    redis.set("rq:failed:polling", "x")
    a_job_that_runs(db, store, queue)
    assert sentence("logs.maintenance_broke_off").within(work().stdout)
    assert outcomes(db) == ["succeeded"]


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [
    lambda redis, key: redis.hset(key, "data", "garbage"),
    pytest.param(lambda redis, key: redis.hset(key, "created_at", "yesterday"), marks=pytest.mark.long),
    pytest.param(lambda redis, key: redis.hdel(key, "data"), marks=pytest.mark.long),
    lambda redis, key: redis.delete(key) and redis.set(key, "x"),
], ids=["garbage data", "a date of nobody's", "no data", "another type"])  # fmt: skip
@pytest.mark.parametrize("planned", [False, True], ids=["scheduled", "planned"])
def test_a_job_of_ours_that_was_corrupted_gets_its_end(planned, spoil, environ, db, store, queue, redis):
    task = a_job_that_runs(db, store, queue, first=store.now() + timedelta(hours=1) if planned else None)
    if planned:
        ticker.run_now(db, task)
        tick(store, queue)
    [key] = redis.keys("rq:job:*")
    spoil(redis, key)
    work()
    assert [outcome for outcome in outcomes(db) if outcome] == []
    tick(store, queue)
    work()
    tick(store, queue)
    assert outcomes(db) in (["succeeded"], ["lost"])
    assert not ticker.get(db, task.id).waiting


@pytest.mark.slow
def test_a_bomb_costs_the_worker_little_memory(environ, redis):
    put(redis, "bomb", data=BOMB)
    put(redis, "bomb-in-traceback", exc_info=BOMB)
    put(redis, "huge", data=b"\0" * 300_000_000)
    done = work(patch=PEAK)
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", done.stdout)
    assert redis.hget("ticker:refused", "poison") == b"3"
    assert int(peak) < 150_000, done.stdout


@pytest.mark.slow
def test_what_inflates_is_measured_in_any_number_of_pieces():
    assert inflates_within(zlib.compress(b"x" * 1000), 1000)
    assert not inflates_within(zlib.compress(b"x" * 1001), 1000)
    long = b"".join(number.to_bytes(4) for number in range(100_000))
    assert inflates_within(zlib.compress(long), len(long)) and not inflates_within(zlib.compress(long), len(long) - 1)
    assert inflates_within(b"no zlib", 1) and inflates_within(zlib.compress(b"x") + b"more" * 100_000, 10)


def test_a_key_of_another_type_costs_the_sweep_only_that_job(queue: RedisQueue, redis):
    queue.push([jobs.JobSpec("t1-1", "polling", (1, 1), 60, 600, "x")])
    redis.set("rq:job:t2-1", "x")
    assert queue.states(["t1-1", "t2-1", "t3-1"]) == [JobState.WAITING, JobState.DEAD, JobState.MISSING]


def test_what_is_no_queue_in_rqs_set_of_queues_is_passed_over(queue: RedisQueue, redis):
    redis.sadd("rq:queues", "rq:queue:polling", "elsewhere", b"\xff")
    redis.rpush("rq:queue:polling", "t1-1")
    assert queue.staff().unattended == {"polling": 1}


@pytest.mark.slow
def test_a_run_goes_on_when_the_key_of_its_job_becomes_another_type(environ, db, store, queue, redis):
    ticker.register(db, "exhausts", every="10s", box="2500ms", tolerance=0)
    tick(store, queue)
    [key] = redis.keys("rq:job:*")
    command = [sys.executable, "-m", "wrappers", "--tasks", "tests.sample_tasks", "--burst", "--job-monitoring-interval", "1",
               "polling"]  # fmt: skip
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as worker:
        until(lambda: redis.hget(key, "status") == b"started", "the run has begun")
        redis.delete(key)
        redis.set(key, "x")
        log = worker.communicate()[0]
    assert worker.returncode == 0, log
    assert outcomes(db) == ["partial"]
    assert (
        sentence("logs.poison_no_heartbeat", job=re.compile(r"t\S+"), error=re.compile(r".*WRONGTYPE")).within(log)
        and "done, quitting" in log
    )
