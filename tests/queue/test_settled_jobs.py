"""What RQ is left with when a job of ours has ended: the worker tells it, in one call, and a stock worker could have."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis import Redis
from rq import Queue
from rq.job import Job, JobStatus
from rq.registry import FailedJobRegistry, FinishedJobRegistry, StartedJobRegistry

import ticker
from tests.running import stock_worker, until, work
from ticker.db.connections import connect
from ticker.engine.tick import tick
from ticker.queue.rq import RedisQueue

pytestmark = pytest.mark.slow


def contents(redis: Redis) -> dict[bytes, Any]:
    """All of it but the workers' own hashes and RQ's locks: each key, and the members of registries and sets."""
    readers = {b"zset": lambda key: set(redis.zrange(key, 0, -1)), b"set": redis.smembers}
    keys = [key for key in redis.scan_iter() if not key.startswith((b"rq:worker", b"rq:clean", b"rq:maintenance"))]
    return {key: readers.get(redis.type(key), lambda _: None)(key) for key in keys}


def connections_made(redis: Redis) -> int:
    return int(redis.info("stats")["total_connections_received"])


@pytest.mark.parametrize("by", [work, stock_worker])
@pytest.mark.smoke
def test_of_a_run_and_of_a_drop_nothing_stays_but_the_set_of_queues(traced, db, store, queue, redis, by):
    ticker.register(db, "plain", every="1d")
    ticker.register(db, "plain", name="disabled", every="1d")
    tick(store, queue)
    ticker.edit(db, "disabled", enabled=False)
    by()
    assert {run.task_name: run.outcome for run in ticker.list_runs(db)} == {"plain": "succeeded", "disabled": "dropped"}
    assert contents(redis) == {b"rq:queues": {b"rq:queue:polling"}}


def test_the_worker_counts_a_run_and_a_drop_as_rq_counts_jobs(traced, db, store, queue, redis):
    ticker.register(db, "plain", every="1d")
    ticker.register(db, "plain", name="disabled", every="1d")
    tick(store, queue)
    ticker.edit(db, "disabled", enabled=False)
    shown = "from rq import Worker as W; d = W.register_death; W.register_death = lambda s: (print(s.connection.keys(s.key + ':*')), s.refresh(), print(s.successful_job_count, s.total_working_time > 0, s.get_current_job_id()), d(s))"
    assert "[]\n2 True None" in work(patch=shown).stdout


def test_runs_cost_no_connection_each_and_drops_no_process(traced, db, store, queue, redis):
    """Ten runs and ten drops, and RQ's own number of connections for one worker."""
    for number in range(10):
        ticker.register(db, "plain", name=f"runs {number}", every="1d")
        ticker.register(db, "plain", name=f"disabled {number}", every="1d")
    tick(store, queue)
    for number in range(10):
        ticker.edit(db, f"disabled {number}", enabled=False)
    counted = "import os; fork = os.fork; os.fork = lambda: (print('forked', flush=True), fork())[1]"
    before = connections_made(redis)
    done = work(patch=counted)
    assert Counter(run.outcome for run in ticker.list_runs(db)) == {"succeeded": 10, "dropped": 10}
    assert done.stdout.count("forked") == 10
    assert connections_made(redis) - before < 8


def test_a_job_that_others_wait_for_goes_rqs_own_way(traced, db, store, queue, redis):
    ticker.register(db, "plain", every="1d")
    tick(store, queue)
    [job_id] = Queue("polling", connection=redis).job_ids
    behind = Queue("polling", connection=redis).enqueue("time.time", depends_on=job_id)
    work()
    assert [run.outcome for run in ticker.list_runs(db)] == ["succeeded"]
    assert behind.get_status() == JobStatus.FINISHED


def test_a_dropped_job_that_others_wait_for_goes_rqs_own_way(traced, db, store, queue, redis):
    ticker.register(db, "plain", every="1d")
    tick(store, queue)
    [job_id] = Queue("polling", connection=redis).job_ids
    behind = Queue("polling", connection=redis).enqueue("time.time", depends_on=job_id)
    ticker.edit(db, "plain", enabled=False)
    work()
    assert [run.outcome for run in ticker.list_runs(db)] == ["dropped"]
    assert behind.get_status() == JobStatus.FINISHED


def test_a_result_that_is_to_be_kept_is_where_rq_keeps_results(traced, db, store, redis):
    ticker.register(db, "plain", every="1d")
    tick(store, RedisQueue(redis, result_ttl=500))
    [job_id] = Queue("polling", connection=redis).job_ids
    work()
    job = Job.fetch(job_id, connection=redis)
    assert job.get_status() == JobStatus.FINISHED and job.latest_result().return_value == "succeeded"
    assert FinishedJobRegistry("polling", connection=redis).get_job_ids() == [job_id]


def test_while_the_start_waits_the_job_has_started_to_rq(traced, db, store, queue, redis, database_url):
    """So that the ticker, and RQ's clean-up, leave it alone."""
    task = ticker.register(db, "plain", every="1d")
    tick(store, queue)
    [job_id] = Queue("polling", connection=redis).job_ids
    job = Job.fetch(job_id, connection=redis)
    with connect(database_url) as other, ThreadPoolExecutor(1) as pool:
        with other.transaction():
            other.execute("SELECT FROM ticker.tasks WHERE id = %s FOR UPDATE", [task.id])
            done = pool.submit(work)
            until(lambda: job.get_status() == JobStatus.STARTED, "to RQ it has started")
            assert StartedJobRegistry("polling", connection=redis).get_job_ids(cleanup=False) == [job_id]
        done.result()
    assert [run.outcome for run in ticker.list_runs(db)] == ["succeeded"]
    assert contents(redis) == {b"rq:queues": {b"rq:queue:polling"}}


def test_a_horse_that_is_killed_behind_its_last_word_has_succeeded_to_rq_too(traced, db, store, queue, redis):
    ticker.register(db, "plain", every="1d")
    tick(store, queue)
    killed = """
import os, signal
from wrappers.sandbox import handoff as ends
said = ends.leave_success
ends.leave_success = lambda: said() and os.kill(os.getpid(), signal.SIGKILL)
"""
    work(patch=killed)
    assert [run.outcome for run in ticker.list_runs(db)] == ["succeeded"]
    assert contents(redis) == {b"rq:queues": {b"rq:queue:polling"}}
    assert FailedJobRegistry("polling", connection=redis).get_job_ids() == []


def test_a_horse_imports_nothing(environ, db, store, queue):
    """All that a run needs was there before the fork, once for all runs."""
    ticker.register(db, "has.nothing", every="1d")
    tick(store, queue)
    told = """
import sys
from wrappers.sandbox import handoff as ends
from wrappers.rq.worker import Worker
work, said = Worker.main_work_horse, ends.leave_success
def main_work_horse(self, job, queue):
    before = set(sys.modules)
    def leave_success():
        print("imported:", sorted(set(sys.modules) - before), flush=True)
        return said()
    ends.leave_success = leave_success
    work(self, job, queue)
Worker.main_work_horse = main_work_horse
"""
    assert "imported: []" in work(patch=told).stdout
