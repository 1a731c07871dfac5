"""A hardened worker runs what a ticker signed, and nothing else: forged jobs are counted, and harm nothing."""

import json
import os
import pickle
import re
import subprocess
import sys
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from rq import Queue
from rq.job import Job

import ticker
from tests.doubles import INSTALLATION, planned_id
from tests.factories import create_trace
from tests.running import ROOT, stock_worker, work
from tests.sentences import sentence
from ticker.engine import jobs
from ticker.engine.jobs import ENTRY, JobSpec
from ticker.engine.tick import tick
from ticker.errors import ConfigurationError
from ticker.queue import bulk, signing
from ticker.queue.rq import RedisQueue
from ticker.settings import from_environment
from wrappers.rq import signed_worker

KEY, OTHER_KEY = "a key of enough length", "another key as long"
PEAK = "import atexit; atexit.register(lambda: print(open('/proc/self/status').read(), flush=True))"
OCCURRENCE = jobs.micros(datetime(2026, 1, 1, tzinfo=UTC))


class Executes:
    """Unpickled, it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.fixture
def signed(environ, monkeypatch, redis):
    """A queue that signs, and the environment of a hardened worker."""
    monkeypatch.setenv("TICKER_SIGNING_KEY", KEY)
    return RedisQueue(redis, signing_key=KEY)


@pytest.fixture
def task(signed, db, store):
    """A task whose one job waits in the queue, signed."""
    create_trace(db)
    task = ticker.register(db, "plain", every="1m")
    tick(store, signed)
    return ticker.get(db, task.id)


def works(*options: str, patch: str = "") -> str:
    """The log of a hardened worker that emptied the queues."""
    return work("--hardened", *(options or ["polling"]), patch=patch).stdout


def outcomes(db: Any) -> list[tuple[str, str]]:
    return [(run.outcome, run.reason) for run in reversed(ticker.list_runs(db))]


def payload(function: str = ENTRY, args: Any = (1, OCCURRENCE), kwargs: Any = None, instance: Any = None) -> bytes:
    return zlib.compress(pickle.dumps((function, instance, args, kwargs or {}), protocol=pickle.HIGHEST_PROTOCOL))


def call_in(data: bytes) -> bytes:
    """What a signature is over: the call, however it was packed."""
    try:
        return zlib.decompress(data)
    except zlib.error:
        return data


def forge(redis: Redis, job_id: str, data: bytes, *, key: str = "", front: bool = True, **fields: Any) -> None:
    """A job as somebody writes it who has Redis, and, with `key`, the key."""
    values = {"created_at": "2026-01-01T12:00:00.000000Z", "origin": "polling", "status": "queued", "timeout": "60",
              "result_ttl": "0", "failure_ttl": "3600", "description": "poll", "data": data}  # fmt: skip
    if key:
        values["signature"] = signing.sign(key, job_id, "polling", 60, call_in(data))
    redis.hset(f"rq:job:{job_id}", mapping=values | fields)
    (redis.lpush if front else redis.rpush)("rq:queue:polling", job_id)


# -------------------------------------------------------------------------------------------------- what is ours runs


@pytest.mark.slow
@pytest.mark.smoke
def test_a_hardened_worker_runs_what_the_ticker_signed(task, db, store, signed, redis):
    works()
    assert outcomes(db) == [("succeeded", "")]
    ticker.run_now(db, task)
    tick(store, signed)
    works()
    assert outcomes(db) == [("succeeded", ""), ("succeeded", "")]
    assert not redis.exists("ticker:refused", "rq:queue:polling:intermediate")


@pytest.mark.slow
@pytest.mark.parametrize("worker", [work, stock_worker], ids=["ours", "stock"])
def test_other_workers_run_signed_jobs_as_ever(worker, task, db):
    worker()
    assert outcomes(db) == [("succeeded", "")]


@pytest.mark.slow
def test_people_see_a_signed_job_as_any_other(task, redis):
    [job] = Queue("polling", connection=redis).get_jobs()
    assert (job.func_name, job.args, job.kwargs) == (ENTRY, (task.id, jobs.micros(task.waiting[0])), {})
    assert (job.description, job.is_queued, job.origin) == ("plain", True, "polling")


@pytest.mark.slow
def test_a_signature_fits_the_64_bytes_that_redis_stores_compactly(signed, queue, redis):
    largest = (10**9, jobs.micros(datetime(9999, 12, 31, tzinfo=UTC)))
    for where, job_id in ((queue, "t1-1"), (signed, "t2-1")):
        where.push([JobSpec(job_id, "polling", largest, 61, 4800, "mail.fetch")])
    assert redis.object("encoding", "rq:job:t2-1") == b"listpack"
    assert redis.hexists("rq:job:t2-1", signing.FIELD) and not redis.hexists("rq:job:t1-1", signing.FIELD)
    unsigned, with_signature = (redis.memory_usage(f"rq:job:{job_id}") for job_id in ("t1-1", "t2-1"))
    assert unsigned <= with_signature <= unsigned + 64  # of the sizes in which memory is given out


def test_without_a_key_a_job_has_no_signature(queue, redis):
    queue.push([JobSpec("t1-1", "polling", (1, 1), 61, 4800, "mail.fetch")])
    assert not redis.hexists("rq:job:t1-1", signing.FIELD)


@pytest.mark.slow
def test_keys_are_rotated_without_losing_a_job(task, monkeypatch, db):
    monkeypatch.setenv("TICKER_SIGNING_KEY", f"{OTHER_KEY}, {KEY}")
    works()
    assert outcomes(db) == [("succeeded", "")]


@pytest.mark.slow
def test_a_failed_job_keeps_its_signature_and_runs_nothing_when_it_is_requeued(signed, db, store, redis):
    ticker.register(db, "fails", every="1m")
    tick(store, signed)
    works()
    registry = Queue("polling", connection=redis).failed_job_registry
    [failed] = registry.get_job_ids()
    registry.requeue(failed)
    works()
    assert [outcome for outcome, _ in outcomes(db)] == ["failed"]
    assert db.execute("SELECT count(*) FROM ticker.events WHERE what = 'redelivered'").fetchone() == (1,)


@pytest.mark.slow
def test_an_old_job_that_somebody_pushes_again_runs_nothing(task, db, redis):
    [key] = redis.keys("rq:job:*")
    copy = redis.hgetall(key)
    works()
    db.execute("UPDATE ticker.tasks SET last_run = last_run - interval '1 hour'")
    redis.hset(key, mapping=copy)
    redis.rpush("rq:queue:polling", key.decode().removeprefix("rq:job:"))
    works()
    assert outcomes(db) == [("succeeded", "")]
    assert db.execute("SELECT what FROM ticker.events").fetchall() == [("redelivered",)]


@pytest.mark.slow
def test_a_job_of_a_deleted_task_that_somebody_pushes_again_is_gone(task, db, redis):
    ticker.unregister(db, task)
    works()
    assert outcomes(db) == [("dropped", "gone")]


# ------------------------------------------------------------------------------------------- what is not ours does not


def forged_jobs(redis: Redis, touched: Path, victim: str) -> dict[str, str]:
    """Puts one job of each kind in front of the queue: what the log says of each."""
    trap = pickle.dumps(Executes(touched))
    call = payload("os.system", (f"touch {touched}",))
    original = redis.hgetall(f"rq:job:{victim}")
    forge(redis, "system", call)
    forge(redis, "system-json", zlib.compress(json.dumps(["os.system", None, [f"touch {touched}"], {}]).encode()))
    forge(redis, "builtin", payload("builtins.exec", (f"open({str(touched)!r}, 'w')",)))
    forge(redis, "pickle-bomb", zlib.compress(trap))
    forge(redis, "raw-pickle", trap)
    forge(redis, "meta", payload(), meta=trap, result=trap)
    forge(redis, "callbacks", payload(), success_callback_name="os.system", failure_callback_name="os.system")
    forge(redis, "unsigned", payload())
    forge(redis, "zeros", payload(), signature=b"\0" * signing.BYTES)
    forge(redis, "short", payload(), signature=b"\0")
    forge(redis, "no-utf8", payload(), signature=b"\xff" * signing.BYTES, description=b"\xff\xfe")
    forge(redis, "another-key", payload(), key=OTHER_KEY)
    forge(redis, "of-another-job", original[b"data"], signature=original[b"signature"])
    forge(redis, "bomb", zlib.compress(b"\0" * 300_000_000), signature=b"\0" * 16)
    forge(redis, "huge", b"\0" * 10_000_000)
    forge(redis, "long", b"\0" * 41_000, signature=b"\0" * 16)
    wrong = ("zeros", "short", "no-utf8", "another-key", "of-another-job")
    none = ("system", "system-json", "builtin", "pickle-bomb", "raw-pickle", "meta", "callbacks", "unsigned")
    fields, size = re.compile("[89]"), re.compile("[0-9]+")
    return {
        **{job: sentence("logs.forged_wrong_signature", job=job) for job in wrong},
        **{job: sentence("logs.forged_no_signature", job=job) for job in none},
        "long": sentence("logs.forged_long", job="long", bytes=41_000, limit=40_000),
        **{job: sentence("logs.poison_large", job=job, fields=fields, bytes=size, most_fields=128, most_bytes=65536)
           for job in ("bomb", "huge")},
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.smoke
def test_forged_jobs_are_counted_and_harm_nothing(task, db, redis, tmp_path):
    touched = tmp_path / "touched"
    [victim] = Queue("polling", connection=redis).get_job_ids()
    expected = forged_jobs(redis, touched, victim)
    log = works(patch=PEAK)
    for said in expected.values():
        assert said.within(log)
    assert not touched.exists()
    assert outcomes(db) == [("succeeded", "")]  # the one that stood behind them all; no other record of any task
    counted = {name.decode(): int(count) for name, count in redis.hgetall("ticker:refused").items()}
    assert counted == {"forged": len(expected) - 2, "poison": 2}
    assert not redis.exists("rq:queue:polling:intermediate", "rq:failed:polling", *map(Job.key_for, expected))
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", log)
    assert int(peak) < 150_000


@pytest.mark.slow
def test_a_changed_field_of_a_signed_job_makes_it_forged_and_the_ticker_pushes_it_again(task, db, store, signed, redis):
    [key] = redis.keys("rq:job:*")
    redis.hset(key, "timeout", "100000")
    assert "forged" in works()
    assert outcomes(db) == []
    tick(store, signed)
    works()
    assert outcomes(db) == [("succeeded", "")]


@pytest.mark.slow
def test_a_signed_job_in_another_queue_stays_where_it_was_signed_for(task, db, redis):
    [job_id] = Queue("polling", connection=redis).get_job_ids()
    redis.rpush("rq:queue:reports", job_id)
    assert sentence("logs.forged_other_queue", job=job_id, queue="polling").within(works("reports"))
    assert outcomes(db) == []
    works()
    assert outcomes(db) == [("succeeded", "")]


@pytest.mark.slow
def test_no_id_of_a_refused_job_stays_in_rqs_list_of_what_was_taken(task, db, redis):
    [job_id] = Queue("polling", connection=redis).get_job_ids()
    redis.rpush("rq:queue:reports", f"{job_id}:junk", "unsigned:junk")  # RQ reads an id as far as the colon
    forge(redis, "unsigned", payload())
    works("reports")
    assert outcomes(db) == []
    assert not redis.exists("rq:queue:reports", "rq:queue:reports:intermediate")


@pytest.mark.slow
def test_what_a_hash_holds_beside_a_signed_job_is_not_read(task, db, redis, tmp_path):
    touched = tmp_path / "touched"
    trap = pickle.dumps(Executes(touched))
    [key] = redis.keys("rq:job:*")
    redis.hset(key, mapping={
        "meta": trap, "result": trap, "success_callback_name": "tests.sample_tasks.crashes", "group_id": "x",
        "failure_callback_name": "tests.sample_tasks.crashes", "stopped_callback_name": "tests.sample_tasks.crashes",
        "retries_left": "9", "repeats_left": "9", "repeat_intervals": "[0]", "exc_info": zlib.compress(b"\0" * 10**7),
        "dependency_ids": '["x"]', "webhooks": '[{"url": "http://localhost:1", "job_status": "finished"}]',
        "description": "two\nlines \x1b[31m",
    })  # fmt: skip
    forge(redis, "dependent", payload("os.system", (f"touch {touched}",)), meta=trap, front=False)
    redis.sadd(f"{key.decode()}:dependents", "dependent")
    log = works()
    assert outcomes(db) == [("succeeded", "")]
    assert redis.hgetall("ticker:refused") == {b"forged": b"1"}  # the dependent, in the queue, where it was put
    assert not touched.exists()
    assert "two?lines ?[31m" in log and "\x1b[31m" not in log


@pytest.mark.slow
def test_a_job_that_a_dead_worker_left_is_not_unpickled_at_the_next_start(signed, redis, tmp_path):
    touched = tmp_path / "touched"
    for job_id in ("begun", "taken"):
        forge(redis, job_id, payload(), meta=pickle.dumps(Executes(touched)))
    redis.delete("rq:queue:polling")
    redis.zadd("rq:wip:polling", {"begun:1": 1})
    redis.rpush("rq:queue:polling:intermediate", "taken")
    log = works()
    assert "forged job=begun" in log and "forged job=taken" in log
    assert not touched.exists()


@pytest.mark.parametrize("args", [
    ("1", OCCURRENCE), (1, str(OCCURRENCE)), (1.0, OCCURRENCE), (True, OCCURRENCE), (None, None), (1,), (), (1, 2, 3, 4),
    (-1, OCCURRENCE), (0, OCCURRENCE), (1, -1), (2**70, OCCURRENCE), (2, OCCURRENCE), (1, OCCURRENCE, 1), (1, 0, -1),
    [1, OCCURRENCE], (1, [OCCURRENCE]), (b"1", OCCURRENCE),
], ids=repr)  # fmt: skip
def test_even_with_a_signature_arguments_are_those_of_the_id(args):
    with pytest.raises(signed_worker.Forged):
        signed_worker.signed_call(
            f"{INSTALLATION}-t1-{OCCURRENCE}", as_signed(f"{INSTALLATION}-t1-{OCCURRENCE}", payload(args=args)), [KEY]
        )


@pytest.mark.parametrize("data", [
    payload("os.system"), payload("wrappers.run2"), payload(kwargs={"planned": 1}), payload(instance=1), b"", b"x",
    payload()[:-5], payload()[:-1], zlib.compress(b""), zlib.compress(b"\x80\x05N."), zlib.compress(b"\xff" * 50),
    zlib.compress(pickle.dumps(Executes(Path("/nowhere")))), zlib.compress(b"\0" * 300_000), b"\0" * 2000,
    zlib.compress(json.dumps([ENTRY, None, [1, OCCURRENCE], {}]).encode()),
])  # fmt: skip
def test_even_with_a_signature_a_payload_is_a_call_of_the_wrapper(data):
    with pytest.raises(signed_worker.Forged):
        signed_worker.signed_call(
            f"{INSTALLATION}-t1-{OCCURRENCE}", as_signed(f"{INSTALLATION}-t1-{OCCURRENCE}", data), [KEY]
        )


@pytest.mark.parametrize("args", [(1, OCCURRENCE), (2**63 - 1, 253_402_214_400 * 10**6), (70_000, 0), (300, 1)])
def test_the_integers_of_a_scheduled_job_are_read(args):
    job_id = f"{INSTALLATION}-t{args[0]}-{args[1]}"
    data = bulk.packed(bulk.payload(JobSpec(job_id, "polling", args, 60, 60, "")))
    assert isinstance(data, bytes)
    assert signed_worker.signed_call(job_id, as_signed(job_id, data), [OTHER_KEY, KEY]) == (ENTRY, args)


def test_the_integers_of_a_planned_job_are_read():
    assert signed_worker.signed_call(planned_id(7), as_signed(planned_id(7), payload(args=(5, 0, 7))), [KEY]) == (
        ENTRY,
        (5, 0, 7),
    )


def as_signed(job_id: str, data: bytes) -> dict[bytes, bytes]:
    signature = signing.sign(KEY, job_id, "polling", 60, call_in(data))
    return {b"origin": b"polling", b"timeout": b"60", b"data": data, b"signature": signature}


def test_every_part_of_a_job_is_under_its_signature():
    parts = [b"t1-1", b"polling", b"60", b"data"]
    signature = signing.sign(KEY, "t1-1", "polling", 60, b"data")
    assert signing.fits([KEY], signature, *parts)
    assert not signing.fits([OTHER_KEY], signature, *parts) and not signing.fits([], signature, *parts)
    for position in range(len(parts)):
        changed = [part + b"x" if number == position else part for number, part in enumerate(parts)]
        assert not signing.fits([KEY], signature, *changed)
    assert not signing.fits([KEY], signature, b"t1-1p", b"olling", b"60", b"data")


# --------------------------------------------------------------------------------------------------------- the settings


def start(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "wrappers", "--tasks", "tests.sample_tasks", "--hardened", "--burst", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_a_hardened_worker_without_a_key_does_not_start(environ):
    done = start()
    assert (done.returncode, done.stderr) == (
        78, sentence("cli.error_hardened_needs_a_key", option="--hardened", setting="TICKER_SIGNING_KEY")
    )  # fmt: skip


def test_it_does_not_start_with_an_untried_rq_that_misses_what_it_relies_on(signed, redis, monkeypatch):
    monkeypatch.setattr(signed_worker, "incompatibilities_of_newer", lambda: ("it is gone",))
    with pytest.raises(ConfigurationError, check=sentence("errors.hardened_misfit", misfit="it is gone").within):
        signed_worker.HardenedWorker(["polling"], connection=redis)


@pytest.mark.slow
@pytest.mark.parametrize(
    "option", ["--worker-class=rq.Worker", "--with-scheduler",
               *(pytest.param(option, marks=pytest.mark.long) for option in
                 ("--job-class=rq.job.Job", "--queue-class=rq.Queue", "--serializer=json"))],
)  # fmt: skip
def test_what_would_soften_a_hardened_worker_is_refused(option, signed):
    done = start(option)
    name = option.partition("=")[0]
    assert (done.returncode, done.stderr) == (
        78,
        sentence("cli.error_hardened_does_not_go_with", option="--hardened", other=name),
    )


def test_a_worker_that_an_application_makes_itself_refuses_rqs_scheduler(signed, redis):
    worker = signed_worker.HardenedWorker(["polling"], connection=redis)
    with pytest.raises(ConfigurationError, check=sentence("errors.hardened_scheduler").within):
        worker.work(burst=True, with_scheduler=True)


@pytest.mark.slow
def test_rqs_own_variables_do_not_soften_it(task, db, redis, monkeypatch, tmp_path):
    monkeypatch.setenv("RQ_JOB_CLASS", "rq.job.Job")
    monkeypatch.setenv("RQ_WORKER_CLASS", "rq.Worker")
    monkeypatch.setenv("RQ_QUEUE_CLASS", "rq.Queue")
    forge(redis, "system", payload("os.system", (f"touch {tmp_path}/touched",)))
    assert "forged job=system" in works()
    assert not (tmp_path / "touched").exists()
    assert outcomes(db) == [("succeeded", "")]


@pytest.mark.parametrize("text", ["short", ",", "fifteen letters", f"{KEY},short"])
def test_a_key_that_could_be_guessed_is_refused_and_not_shown(text):
    with pytest.raises(ConfigurationError) as error:
        from_environment({"TICKER_SIGNING_KEY": text})
    assert sentence("errors.short_key", setting="TICKER_SIGNING_KEY", length=16, remedy="python").begins(
        str(error.value)
    )
    assert "short" not in str(error.value) and "fifteen" not in str(error.value)


def test_keys_are_read_in_their_order_and_never_shown():
    assert from_environment({}).signing_keys == from_environment({"TICKER_SIGNING_KEY": ""}).signing_keys == ()
    found = from_environment({"TICKER_SIGNING_KEY": f" {KEY} ,{OTHER_KEY}"})
    assert found.signing_keys == (KEY, OTHER_KEY)
    assert KEY not in repr(found)


@pytest.mark.slow
def test_the_ticker_signs_with_the_first_key(environ, monkeypatch, db, redis):
    monkeypatch.setenv("TICKER_SIGNING_KEY", f"{OTHER_KEY},{KEY}")
    task = ticker.register(db, "plain", every="1m")
    subprocess.run([sys.executable, "-m", "ticker", "tick"], check=True, capture_output=True, timeout=60)
    [key] = redis.keys("rq:job:*")
    found = redis.hgetall(key)
    job_id = key.removeprefix(b"rq:job:")
    assert signing.fits(
        [OTHER_KEY], found[b"signature"], job_id, b"polling", found[b"timeout"], call_in(found[b"data"])
    )
    assert OTHER_KEY.encode() not in b"".join(found.values())
    assert ticker.get(db, task.id).waiting
