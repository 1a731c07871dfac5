"""The worker gives jobs to the process of a group. Here, both are in the test's own process."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis.exceptions import RedisError
from rq import Queue
from rq.suspension import resume, suspend
from rq.timeouts import HorseMonitorTimeoutException, UnixSignalDeathPenalty

from tests.worker.grouped import register
from tests.worker.horses import NEVER, in_fork, sleep
from ticker.engine.tick import tick
from ticker.settings import Settings
from wrappers.group.group import Group
from wrappers.group.refill import MORE, GivenJob, Pipe, Refill
from wrappers.pipeline import registry
from wrappers.pipeline.context import Call
from wrappers.pipeline.database import Database
from wrappers.pipeline.waiting_ends import WaitingEnds
from wrappers.rq.compatibility import execution_argument
from wrappers.rq.corrupt_jobs import SurvivingWorker
from wrappers.rq.open_jobs import OpenJobs
from wrappers.rq.prepared_start import PreparedStart, call_of
from wrappers.rq.stops import alarm_held
from wrappers.rq.worker import Worker
from wrappers.sandbox import limits, shared_state


class Giving(SurvivingWorker):
    _forget = None
    forget = Worker.forget
    leaves_nothing = Worker.leaves_nothing


@pytest.fixture
def open_jobs(
    environ: dict[str, str], db: Any, store: Any, queue: Any, redis: Any, monkeypatch: Any
) -> Iterator[OpenJobs]:
    """Three jobs of two tasks. The first is at work, and the others are in the queue."""
    monkeypatch.setattr(registry, "_functions", {})
    registry.task("pairs", batch=2, concurrency=2)(lambda run, deed: None)
    db.execute(
        "INSERT INTO ticker.functions (name, batch, concurrency, announced_at) VALUES ('pairs', 2, 2, clock_timestamp())"
    )
    register(db, "pairs", *["returns"] * 6)
    tick(store, queue)
    worker = Giving(["polling"], connection=redis)
    taken = worker.queue_class.dequeue_any(worker.queues, None, connection=redis)
    assert taken
    first = taken[0]
    call = call_of(first)
    assert call
    start = PreparedStart(first, call, Database.from_environment(), WaitingEnds())
    opened = OpenJobs(worker, first, worker.prepare_execution(first), lambda tasks: None, start.joins_group)
    worker.prepare_job_execution(first, True)
    opened.wants_more = True
    yield opened
    opened.pipe.close()


@pytest.fixture
def tick_of_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TICKER_TICK", "10m")


@pytest.mark.slow
def test_further_jobs_do_not_put_off_rqs_heartbeat():
    """A busy group gets several jobs per second, and each holds the alarm."""
    with pytest.raises(HorseMonitorTimeoutException), UnixSignalDeathPenalty(1, HorseMonitorTimeoutException):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with alarm_held():
                pass


def test_short_holds_do_not_put_off_an_alarm_that_is_served_late(monkeypatch):
    """A timer that is due may be served some microseconds late, as on a virtual machine: the next hold stops it again."""
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds: (1e-6, 0.0))
    with pytest.raises(HorseMonitorTimeoutException), UnixSignalDeathPenalty(60, HorseMonitorTimeoutException):
        for _ in range(1000):
            with alarm_held():
                time.sleep(1e-5)


@pytest.mark.slow
def test_an_alarm_that_came_due_in_a_held_block_comes_after_it():
    ends_at = time.monotonic() + 1.1
    reached = False
    with pytest.raises(HorseMonitorTimeoutException), UnixSignalDeathPenalty(1, HorseMonitorTimeoutException):
        with alarm_held():
            while time.monotonic() < ends_at:
                pass
            reached = True
        while True:
            signal.pause()
    assert reached


@pytest.mark.slow
def test_rqs_alarm_is_held_while_the_group_is_given_a_job(open_jobs):
    seconds = list[float]()
    open_jobs._write_ends = lambda tasks: seconds.append(signal.getitimer(signal.ITIMER_REAL)[0])
    signal.alarm(500)
    try:
        open_jobs.serve()
    finally:
        left = signal.alarm(0)
    assert seconds == [0.0] and left > 400


@pytest.mark.slow
def test_a_worker_kills_the_process_of_a_group_that_has_outlived_its_deadline(redis):
    """Its own timers or the supervisor do so earlier, if there are any. RQ kills no process of a job without a timeout."""
    worker = Worker(["polling"], connection=redis)
    worker.register_birth()
    job = Queue("polling", connection=redis).enqueue(print, job_timeout=-1)
    execution = worker.prepare_execution(job)
    shared_state.begin(limits.now() + NEVER)
    worker._horse_pid = in_fork(sleep)
    for deadline in (limits.now() + NEVER, limits.now() - 1):
        assert os.waitpid(worker._horse_pid, os.WNOHANG) == (0, 0)
        shared_state.write_deadline(deadline)
        worker.maintain_heartbeats(job, *[execution] * bool(execution_argument(worker)))
    assert os.waitpid(worker._horse_pid, 0)[1] == signal.SIGKILL


@pytest.mark.slow
def test_a_job_that_was_not_taken_goes_back_to_the_front_as_if_it_had_never_left(open_jobs, redis):
    waiting = Queue("polling", connection=redis).job_ids
    open_jobs.serve()
    assert redis.hget(f"rq:job:{waiting[0]}", "status") == b"started"
    open_jobs.close()
    assert Queue("polling", connection=redis).job_ids == waiting
    assert redis.hget(f"rq:job:{waiting[0]}", "status") == b"queued"
    assert redis.zcard("rq:wip:polling") == 1  # the first job's
    assert not redis.keys(f"rq:execution*:{waiting[0]}*")


@pytest.mark.slow
def test_a_job_whose_result_rq_keeps_waits_for_its_own_process(open_jobs, redis):
    first, *others = Queue("polling", connection=redis).job_ids
    redis.hset(f"rq:job:{first}", "result_ttl", 60)
    open_jobs.serve()
    assert Queue("polling", connection=redis).job_ids == [first, *others]
    assert [*open_jobs.pipe.unread()] == []


@pytest.mark.slow
@pytest.mark.usefixtures("environ", "tick_of_ten_minutes")
def test_a_job_whose_tasks_wait_for_a_long_tick_is_not_abandoned(request, redis):
    """A run of this job may begin ten minutes after the job was taken."""
    open_jobs = request.getfixturevalue("open_jobs")
    second = Queue("polling", connection=redis).jobs[0]
    open_jobs.serve()
    assert open_jobs.pipe.take().job_id == second.id
    [score] = [
        score
        for member, score in redis.zrange("rq:wip:polling", 0, -1, withscores=True)
        if second.id.encode() in member
    ]
    assert score > time.time() + 600


@pytest.mark.slow
def test_a_job_that_was_taken_runs_even_if_redis_does_not_learn_of_it(open_jobs, redis, monkeypatch):
    second = Queue("polling", connection=redis).job_ids[0]
    monkeypatch.setattr("wrappers.rq.open_jobs.new_execution", failing)
    open_jobs.serve()
    assert open_jobs.pipe.take().job_id == second


@pytest.mark.slow
def test_a_job_that_redis_did_not_forget_is_forgotten_after_the_process(open_jobs, redis, monkeypatch):
    second = Queue("polling", connection=redis).job_ids[0]
    open_jobs.serve()
    open_jobs.pipe.take()
    open_jobs.pipe.send(second)
    with monkeypatch.context() as patch:
        patch.setattr(Giving, "forget", failing)
        open_jobs.serve()
    assert redis.exists(f"rq:job:{second}")
    open_jobs.close()
    assert not redis.exists(f"rq:job:{second}")


@pytest.mark.slow
def test_a_first_job_that_another_job_waits_for_stays_open_until_rq_ends_it(open_jobs, redis):
    first = open_jobs._first
    Queue("other", connection=redis).enqueue(print, depends_on=first)
    open_jobs.pipe.send(first.id)
    open_jobs.serve()
    assert first in open_jobs and redis.exists(f"rq:job:{first.id}")


@pytest.mark.slow
def test_an_id_that_is_in_the_queue_twice_is_given_once(open_jobs, redis):
    polling = Queue("polling", connection=redis)
    second, third = polling.job_ids
    redis.lpush(polling.key, second)
    for _ in range(3):
        open_jobs.wants_more = True
        open_jobs.serve()
    assert [open_jobs.pipe.take().job_id for _ in range(2)] == [second, third]
    assert not [*open_jobs.pipe.unread()]
    assert not redis.exists("rq:queue:polling:intermediate")


@pytest.mark.slow
def test_a_suspended_worker_gives_no_further_jobs_until_it_is_resumed(open_jobs, redis):
    polling = Queue("polling", connection=redis)
    waiting = polling.job_ids
    suspend(redis)
    open_jobs.serve()
    assert polling.job_ids == waiting
    resume(redis)
    open_jobs.serve()
    assert open_jobs.pipe.take().job_id == waiting[0]


@pytest.mark.slow
def test_a_group_gets_no_further_jobs_after_one_of_another_function(open_jobs, redis):
    """This is so even if another worker takes that job."""
    polling = Queue("polling", connection=redis)
    waiting = polling.job_ids
    other = polling.enqueue(print, at_front=True)
    open_jobs.serve()
    assert polling.job_ids == [other.id, *waiting]
    polling.remove(other)
    open_jobs.serve()
    assert polling.job_ids == waiting


def test_a_process_requests_no_further_job_after_ten_minutes(monkeypatch):
    pipe, later = Pipe(), limits.now() + 601
    old = Refill(pipe, lambda job: None)
    monkeypatch.setattr(limits, "now", lambda: later)
    old.ask()
    assert not [*pipe.heard()]
    Refill(pipe, lambda job: None).ask()
    assert [*pipe.heard()] == [MORE]
    pipe.close()


def failing(*_: Any) -> None:
    raise RedisError("no answer")


def test_a_job_that_arrives_after_the_last_run_stays_unread_and_can_be_put_back():
    call = Call(task_id=1, occurrence=None, planned=None, job_id="first", worker="w", rq_timeout=None, settings=Settings(),
                database=Database("", "ticker"))  # fmt: skip
    group = Group([call], 1, pipe := Pipe())
    group._unstarted.clear()

    async def ends() -> None:
        await group._work()
        pipe.give(GivenJob("late", [1, 1]))
        for _ in range(3):  # turns of the loop, in which a reader would take the job
            await asyncio.sleep(0)

    asyncio.run(ends())
    assert [*pipe.unread()] == ["late"]
    group._slots.close()
