"""How much memory each process takes: `python -m tests.bench memory [--tasks N]`.

The largest resident set of `ticker run` behind ticks over the same number of due tasks, with few and with many tasks in
the table; of a keeper, a worker and a horse; and what 100,000 jobs take in Redis. Linux (/proc).
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.figures import Figure, Stage, parser, show, stage
from tests.running import ROOT, until

DUE = 10_000


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
    with stage(tasks) as on:
        with running(on, "ticker", "run") as process:
            for _ in range(3):
                on.make_due(min(DUE, tasks))
                until(lambda: on.redis.llen("rq:queue:polling") >= min(DUE, tasks), "all are pushed")
            figures = [Figure(f"ticker run, {tasks:,} tasks, three ticks over {DUE:,} due", peak(process.pid), "MB")]
        ids = [job.decode() for job in on.redis.lrange("rq:queue:polling", 0, 99)]
        size = sum(on.redis.memory_usage(f"rq:job:{job}") for job in ids) / len(ids)
        return [*figures, Figure("a job's hash in Redis", size, "bytes")]


def worker() -> list[Figure]:
    with stage(10) as on, running(on, "wrappers", "--tasks", "tests.bench.noop", "polling") as keeper:
        on.db.execute("UPDATE ticker.tasks SET function = 'noop'")
        until(lambda: on.redis.smembers("rq:workers"), "a worker")
        [pid] = (int(child) for child in Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split())
        return [Figure("keeper", peak(keeper.pid), "MB"), Figure("worker, preloaded", peak(pid), "MB")]


def main() -> None:
    options = parser(__doc__, tasks=1_000_000).parse_args()
    show([*ticker(10_000), *ticker(options.tasks), *worker()], options.json, {})


if __name__ == "__main__":
    main()
