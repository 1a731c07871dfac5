"""Redis loses everything while jobs wait and run: every task starts again in time, without a hand.

Judged by `runs.started_at`, so by the database's clock. The load stays below what two workers do on two cores (some
40 runs/s when nothing else computes there): a queue that only grows would be late without any flush.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import Connection
from redis import Redis
from rq import Worker as RQWorker

import ticker
from tests.bench.overshoot import launched
from tests.running import ROOT, until

TICK = timedelta(seconds=1)
SLACK = timedelta(seconds=1)
"""Past interval and tick, on a machine that does nothing else."""
BUSY = timedelta(seconds=20)
"""The same in the default suite, whose other tests take the cores for seconds."""
QUEUE = "rq:queue:polling"


@contextmanager
def ticking() -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-m", "ticker", "run", "--tick", "1s"], cwd=ROOT, stdout=subprocess.DEVNULL
    ) as process:
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def everything_runs(redis: Redis) -> Iterator[None]:
    """A ticker and two workers, which listen."""
    with ExitStack() as running:
        running.enter_context(ticking())
        for _ in range(2):
            running.enter_context(launched("tests.sleepers"))
        until(lambda: RQWorker.count(redis) == 2, "two workers")
        yield


def register(db: Connection[Any], tasks: int, slowest: float, naps: int) -> dict[int, timedelta]:
    """So many tasks of 2 s to `slowest`, spread over their intervals; one in `naps` takes a while. Intervals by id."""
    draw = random.Random(tasks)
    [(now,)] = db.execute("SELECT clock_timestamp()")
    intervals = {}
    for number in range(tasks):
        every = round(draw.uniform(2, slowest), 3)
        first = now + timedelta(seconds=draw.uniform(0, every))
        nap = {"seconds": 0.0 if number % naps else 0.3}
        task = ticker.register(db, "nap", name=f"nap {number}", every=every, first=first, kwargs=nap)
        intervals[task.id] = timedelta(seconds=every)
    return intervals


def flush(db: Connection[Any], redis: Redis) -> datetime:
    """At a moment when jobs wait and a run goes on; the instant after it."""
    running = "SELECT id FROM ticker.runs WHERE state = 'running'"
    until(lambda: redis.llen(QUEUE) and db.execute(running).fetchone(), "jobs that wait, and a run")
    redis.flushdb()  # this test's own database: all that Redis has
    [(now,)] = db.execute("SELECT clock_timestamp()")
    assert isinstance(now, datetime)
    return now


def until_all_started_since(db: Connection[Any], instant: datetime, tasks: int) -> None:
    starts = "SELECT count(DISTINCT task_id) FROM ticker.runs WHERE started_at > %s"
    until(lambda: db.execute(starts, [instant]).fetchone() == (tasks,), "a start of each task")


def lateness(db: Connection[Any], intervals: dict[int, timedelta], flushed: datetime) -> dict[int, timedelta]:
    """By task: from the flush to its next start, less what is promised but for the slack."""
    first = db.execute("SELECT task_id, min(started_at) FROM ticker.runs WHERE started_at > %s GROUP BY 1", [flushed])
    return {task: started - flushed - intervals[task] - TICK for task, started in first}


@pytest.mark.slow
@pytest.mark.smoke
def test_after_a_flushall_every_task_starts_again_in_time_and_the_workers_are_known_again(
    environ: object, db: Connection[Any], redis: Redis
) -> None:
    intervals = register(db, tasks=12, slowest=3, naps=3)
    with everything_runs(redis):
        flushed = flush(db, redis)
        until_all_started_since(db, flushed, len(intervals))
        until(lambda: RQWorker.count(redis) == 2, "both workers in RQ's list")
    assert max(lateness(db, intervals, flushed).values()) < BUSY


@pytest.mark.long
@pytest.mark.timeout(600)
def test_three_hundred_tasks_start_again_in_time_after_each_of_many_flushes(
    environ: object, db: Connection[Any], redis: Redis
) -> None:
    """Some 40 runs/s: set FLUSHED_SLOWEST (seconds, 18 by default) higher on a machine that does less."""
    intervals = register(db, tasks=300, slowest=float(os.environ.get("FLUSHED_SLOWEST", "18")), naps=60)
    with everything_runs(redis):
        until_all_started_since(db, datetime.min.replace(tzinfo=UTC), len(intervals))
        flushes = []
        for _ in range(8):
            flushes.append(flush(db, redis))
            until_all_started_since(db, flushes[-1], len(intervals))
    worst = [max(lateness(db, intervals, flushed).values()).total_seconds() for flushed in flushes]
    [(runs, seconds)] = db.execute(
        "SELECT count(started_at), extract(epoch FROM max(started_at) - min(started_at)) FROM ticker.runs"
    )
    print(f"{runs} runs, {runs / float(seconds):.0f}/s; worst past interval + tick, by flush: {worst} s")
    assert max(worst) < SLACK.total_seconds()
    assert outcomes(db).keys() <= {"succeeded", "dropped", "lost", "killed"}


def outcomes(db: Connection[Any]) -> dict[str, int]:
    return dict(db.execute("SELECT outcome, count(*) FROM ticker.runs WHERE state = 'ended' GROUP BY 1").fetchall())
