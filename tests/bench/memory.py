"""How much memory each process takes: `python -m tests.bench memory [--tasks N]`.

The largest resident set of `ticker run` after ticks over the same number of due tasks, with few and with many tasks in the
table; of a supervisor and a worker; what a waiting job takes in Redis; and what a task and a record take in PostgreSQL.
Linux (/proc).
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench import worker as bench_worker
from tests.bench.figures import Figure, Stage, parser, show, stage
from tests.running import ROOT, until
from ticker.engine.tick import tick

DUE = 10_000
RUNNING, ROUNDS = 3_000, 10  # tasks, and runs of each
AGAIN = "UPDATE ticker.tasks SET batch_jobs = NULL, last_run = NULL, last_occurrence = NULL"
SIZES = """
SELECT pg_table_size(oid) / n, pg_indexes_size(oid) / n FROM pg_class, (SELECT count(*) AS n FROM ticker.{table}) rows
WHERE oid = 'ticker.{table}'::regclass"""


def peak(pid: int) -> float:
    """MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [kilobytes] = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(kilobytes) / 1024


@contextmanager
def running(on: Stage, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    environ = os.environ | {"DATABASE_URL": on.database_url, "REDIS_URL": on.redis_url, "TICKER_TICK": "1s"}
    with subprocess.Popen(
        [sys.executable, "-m", *command], cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def ticker(tasks: int) -> list[Figure]:
    with stage(tasks) as on, running(on, "ticker", "run") as process:
        for _ in range(3):
            on.make_due(min(DUE, tasks))
            until(lambda: on.redis.llen("rq:queue:polling") >= min(DUE, tasks), "all are pushed")
        return [Figure(f"ticker run, {tasks:,} tasks, three ticks over {DUE:,} due", peak(process.pid), "MB")]


def stored() -> Iterator[Figure]:
    """The jobs wait one by one; the records are those of real runs, in jobs of fifty."""
    with stage(DUE) as on:
        yield from sizes(on, "tasks")
    with stage(RUNNING) as on:
        jobs = bench_worker.Jobs(on, RUNNING)
        for _ in range(2):  # the first tick loads the script
            on.redis.flushall()
            on.db.execute(bench_worker.DUE, {"function": "noop", "due": RUNNING})
            empty = on.redis.info("memory")["used_memory"]
            tick(jobs.store, jobs.queue)
        yield Figure("a waiting job in Redis", (on.redis.info("memory")["used_memory"] - empty) / RUNNING, "bytes")
        for number in range(ROUNDS):
            on.db.execute(AGAIN)
            jobs.ours("noop.batched", RUNNING * (number + 1), "succeeded")
        on.db.execute("VACUUM")
        yield from sizes(on, "runs")


def sizes(on: Stage, table: str) -> Iterator[Figure]:
    [(row, indexes)] = on.db.execute(SIZES.format(table=table)).fetchall()
    yield Figure(f"a row in {table}", row, "bytes")
    yield Figure(f"a row in the indexes of {table}", indexes, "bytes")


def worker() -> list[Figure]:
    with stage(10) as on, running(on, "wrappers", "--tasks", "tests.bench.noop", "polling") as supervisor:
        on.db.execute("UPDATE ticker.tasks SET function = 'noop'")
        until(lambda: on.redis.smembers("rq:workers"), "a worker")
        [pid] = (
            int(child) for child in Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split()
        )
        return [Figure("supervisor", peak(supervisor.pid), "MB"), Figure("worker, preloaded", peak(pid), "MB")]


def main() -> None:
    options = parser(__doc__, tasks=1_000_000).parse_args()
    show([*ticker(10_000), *ticker(options.tasks), *worker(), *stored()], options.json, {})


if __name__ == "__main__":
    main()
