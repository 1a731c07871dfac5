"""The whole, in real time: `ticker run`, real workers, real kills. Long; run with: pytest -m long tests/test_whole.py"""

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise

import pytest

import ticker
from tests.running import ROOT, is_alive, until
from wrappers.sandbox.subreaper import children

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]


@contextmanager
def process(*arguments):
    started = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield started
    finally:
        started.terminate()
        started.wait(timeout=30)


def ticking(period="1s"):
    return process("-m", "ticker", "run", "--tick", period)


def working():
    return process("-m", "wrappers", "--tasks", "tests.sample_tasks", "polling")


def test_a_function_that_swallows_every_exception_is_dead_in_time_and_runs_again_in_time(traced, db):
    ticker.register(db, "swallows", every="10s")
    with ticking(), working():
        until(lambda: len(started(db)) >= 2, "two starts")
        first, second = started(db)[:2]
    [pids, *_] = traced("swallows")
    [run] = [run for run in ticker.list_runs(db) if run.started_at == first]
    assert run.outcome in ("timed_out", "killed")
    assert run.ended_at - first < timedelta(seconds=6.5)
    assert timedelta(seconds=8.5) < second - first < timedelta(seconds=11.5)
    assert not any(is_alive(pid) for pid in pids)
    print(f"ended {run.outcome} after {run.ended_at - first}, next start after {second - first}")


def test_after_a_flushall_a_daily_task_that_was_pushed_starts_without_a_hand(traced, db, redis):
    ticker.register(db, "plain", every="1d")
    with ticking():
        until(lambda: redis.llen("rq:queue:polling"), "the push")
        redis.flushall()
        [(flushed,)] = db.execute("SELECT clock_timestamp()").fetchall()
        with working():
            until(lambda: started(db), "the start")
    [begun] = started(db)
    print(f"started {begun - flushed} after the flush; tick 1 s")
    assert begun - flushed < timedelta(seconds=10)  # two ticks, and the time a worker needs to come up


def test_a_worker_killed_in_mid_run_and_a_ticker_killed_at_random_lose_at_most_the_killed_run(traced, db):
    names = [f"task {number}" for number in range(20)]
    for name in names:
        ticker.register(db, "exhausts" if name == "task 0" else "plain", name=name, every="4s", box="1s")
    for _ in range(3):
        with ticking() as beat, working() as keeper:
            until(lambda: running(db, keeper.pid), "a run in progress")
            [worker] = children(keeper.pid)
            for pid in (keeper.pid, worker, *children(worker), beat.pid):
                os.kill(pid, signal.SIGKILL)
    with ticking(), working():
        calm = db.execute("SELECT clock_timestamp()").fetchone()[0]
        until(lambda: all(len(started(db, name, calm)) >= 3 for name in names), "three more starts of each")
    doubles = db.execute(
        "SELECT task_id, occurrence FROM ticker.runs WHERE started_at IS NOT NULL GROUP BY 1, 2 HAVING count(*) > 1"
    ).fetchall()
    assert doubles == []
    for name in names:
        times = started(db, name)
        assert all(b - a >= timedelta(seconds=3) for a, b in pairwise(times)), name
    counts = Counter(run.outcome for run in ticker.list_runs(db, limit=10_000) if run.state == "ended")
    print(dict(counts))
    assert counts["lost"] + counts["killed"] == 3


def started(db, name=None, after=None):
    rows = db.execute(
        "SELECT started_at FROM ticker.runs WHERE started_at IS NOT NULL AND (%(name)s::text IS NULL OR task_name = %(name)s)"
        " AND (%(after)s::timestamptz IS NULL OR started_at > %(after)s) ORDER BY started_at",
        {"name": name, "after": after},
    )
    return [instant for (instant,) in rows]


def running(db, keeper):
    """Whether a horse of this keeper's worker is in the middle of the function that lasts."""
    horses = [horse for worker in children(keeper) for horse in children(worker)]
    query = "SELECT FROM ticker.runs WHERE state = 'running' AND function = 'exhausts' AND pid = ANY (%s)"
    return db.execute(query, [horses]).fetchone() is not None
