"""What retention costs the ticks beside it: `python -m tests.bench.prune [--runs N] [--tasks N] [--due N]`.

A PostgreSQL and a Redis of its own, 1,000,000 records of runs, half of which are old. Ticks over due tasks are timed alone,
beside `ticker prune`, and beside the ticker's own pruner; then a lap that finds nothing to do.
Prints a markdown table.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import psycopg

from tests.running import ROOT
from ticker import embedded, migrations
from ticker.daemon import prune
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.queue.rq import RedisQueue
from ticker.settings import KEPT_AT_LEAST, Settings

TASKS = """
INSERT INTO ticker.tasks (owner_type, owner_id, name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue, next_run)
SELECT 'channels', n::text, 'poll', 'poll', 'interval', 86400000, 5000, 30000, 1000, 'polling',
    clock_timestamp() + interval '1 day' FROM generate_series(1, %(tasks)s) n"""
RUNS = """
INSERT INTO ticker.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome, started_at,
    ended_at, created_at, output, every_ms, tolerance_ms, worker, host, pid, job_id)
SELECT 1 + n %% %(tasks)s, 'poll', 'poll', 'channels', (1 + n %% %(tasks)s)::text, 'scheduled', i.at, 'ended',
    CASE WHEN n %% 50 = 0 THEN 'failed' ELSE 'succeeded' END, i.at, i.at + interval '2 s', i.at,
    repeat('a line of output' || chr(10), 20), 60000, 5000, 'worker', 'host', 1, 't1-1'
FROM generate_series(%(first)s::bigint, %(last)s::bigint) n, LATERAL (
    SELECT date_trunc('second', clock_timestamp()) - %(days)s * interval '1 day' + n * interval '1 s' AS at) i"""
DUE = """UPDATE ticker.tasks SET next_run = clock_timestamp() - interval '1 s', waiting = '{}', run_token = NULL
WHERE id <= %(due)s"""


def fill(db: psycopg.Connection[Any], tasks: int, runs: int) -> None:
    """Half of the runs ended over 90 days ago, the others within the last 30."""
    db.execute(TASKS, {"tasks": tasks})
    old = runs // 2
    for first, last, days in ((0, old - 1, 100), (old, runs - 1, 29 - runs // 172_800)):
        db.execute(RUNS, {"tasks": tasks, "first": first, "last": last, "days": days})
    db.execute("VACUUM ANALYZE")


class Ticks:
    """Milliseconds of ticks over the same number of due tasks."""

    def __init__(
        self, db: psycopg.Connection[Any], store: PostgresStore, queue: RedisQueue, redis: Any, due: int
    ) -> None:
        self._db, self._store, self._queue, self._redis, self._due = db, store, queue, redis, due

    def one(self) -> float:
        self._db.execute(DUE, {"due": self._due})
        self._redis.flushdb()
        began = time.perf_counter()
        report = tick(self._store, self._queue, None)
        took = time.perf_counter() - began
        assert report.due.enqueued == self._due, report
        return 1000 * took

    def some(self, rounds: int) -> list[float]:
        return [self.one() for _ in range(rounds)]

    def while_(self, busy: Callable[[], object]) -> list[float]:
        """As many as end while something goes on."""
        found = [self.one()]
        while busy():
            found.append(self.one())
        return found


def beside_the_command(ticks: Ticks) -> tuple[list[float], float]:
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "ticker", "prune"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        found = ticks.while_(lambda: process.poll() is None)
        print(process.stdout.read() if process.stdout else "", end="", file=sys.stderr)
    return found, time.perf_counter() - began


def beside_the_pruner(ticks: Ticks, url: str, rounds: int) -> list[float]:
    prune.BEFORE_THE_FIRST = 0.0
    stopping, store = threading.Event(), PostgresStore(url)
    pruner = prune.Pruner(store, Settings(keep_successes_ms=KEPT_AT_LEAST, keep_failures_ms=KEPT_AT_LEAST), stopping)
    pruner.start()
    try:
        return ticks.some(rounds)
    finally:
        stopping.set()
        pruner.join(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("--runs", 1_000_000), ("--tasks", 10_000), ("--due", 1000), ("--rounds", 60)):
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    with embedded.servers(syncs=True) as servers:
        migrations.upgrade(servers.database_url)
        os.environ |= servers.environ
        measure(servers.database_url, servers.redis_url, options)


def measure(database_url: str, redis_url: str, options: argparse.Namespace) -> None:
    from redis import Redis

    with psycopg.connect(database_url, autocommit=True) as db, Redis.from_url(redis_url) as redis:
        fill(db, options.tasks, options.runs)
        store = PostgresStore(database_url)
        ticks = Ticks(db, store, RedisQueue(redis), redis, options.due)
        ticks.some(10)
        alone = ticks.some(options.rounds)
        beside, took = beside_the_command(ticks)
        after = ticks.some(options.rounds)
        [(rows,)] = db.execute("SELECT count(*) FROM ticker.runs").fetchall()
        gentle = beside_the_pruner(ticks, database_url, options.rounds)
        began = time.perf_counter()
        idle = sum(prune.lap(store, Settings()), prune.Pruned())
        idle_took = time.perf_counter() - began
        store.close()
    print(f"| ticks over {options.due} due tasks | ticks | median | slowest | ratio |\n|---|---|---|---|---|")
    base = median(alone + after)
    for name, found in (("alone, before", alone), ("beside ticker prune", beside), ("alone, after", after),
                        ("beside the ticker's own pruner", gentle)):  # fmt: skip
        print(f"| {name} | {len(found)} | {median(found):.0f} ms | {max(found):.0f} ms | {median(found) / base:.2f} |")
    print(f"\n`ticker prune` left {rows:,} of {options.runs:,} records in {took:.0f} s; "
          f"a lap with nothing to do takes {idle_took:.1f} s ({idle}).")  # fmt: skip


if __name__ == "__main__":
    main()
