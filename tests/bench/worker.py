"""What a wrapped job costs a forking worker: `python -m tests.bench worker [--jobs N] [--rounds N]`.

In each round, one after the other, a worker that is already there is given the same number of jobs:

bare      RQ's own worker, and a function of the standard library that does nothing
wrapped   our worker, and a task's function that does nothing: asked for, recorded, limited, ended
dropped   our worker, and jobs that come too early

Jobs per second, from the push to the last job's end, counted by RQ. Ends are counted in `runs`.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

from rq import Queue

from tests.bench.figures import Figure, Stage, middle, parser, show, stage
from tests.running import ROOT, until
from ticker.enqueue import RedisQueue
from ticker.store import PostgresStore
from ticker.tick import tick

FRESH = """
TRUNCATE ticker.runs;
UPDATE ticker.tasks SET next_run = clock_timestamp() - interval '1 s', waiting = '{}', last_run = NULL, last_boot = NULL,
    last_uptime_us = NULL, last_occurrence = NULL"""
AGAIN = "UPDATE ticker.tasks SET next_run = clock_timestamp() - interval '1 s', waiting = '{}'"
BARE = [sys.executable, "-m", "rq.cli", "worker", "--logging_level", "WARNING"]
OURS = [sys.executable, "-m", "wrappers", "--tasks", "tests.bench.noop", "--logging_level", "WARNING"]


class Jobs:
    def __init__(self, on: Stage) -> None:
        self.on = on
        self.store, self.queue = PostgresStore(on.database_url), RedisQueue.from_url(on.redis_url)
        on.db.execute("UPDATE ticker.tasks SET function = 'noop', every_ms = 3600000")

    @contextmanager
    def worker(self, command: list[str]) -> Iterator[str]:
        """Listening; the key of its hash."""
        self.on.redis.flushall()
        environ = {
            "DATABASE_URL": self.on.database_url,
            "REDIS_URL": self.on.redis_url,
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
        }
        with subprocess.Popen(
            [*command, "--url", self.on.redis_url, "polling"],
            cwd=ROOT,
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                [key] = until(lambda: self.on.redis.smembers("rq:workers"), "a worker")
                yield key.decode()
            finally:
                process.terminate()

    def rate(self, command: list[str], push: Callable[[], None]) -> float:
        """Jobs per second."""
        with self.worker(command) as key:
            time.sleep(0.5)  # it says so just before it listens
            before = int(self.on.redis.hget(key, "successful_job_count") or 0)
            began = time.perf_counter()
            push()
            until(
                lambda: int(self.on.redis.hget(key, "successful_job_count") or 0) - before >= self.on.tasks,
                "all jobs done",
            )
            return self.on.tasks / (time.perf_counter() - began)

    def push_bare(self) -> None:
        queue = Queue("polling", connection=self.on.redis)
        queue.enqueue_many([Queue.prepare_data("time.time", timeout=60, result_ttl=0) for _ in range(self.on.tasks)])

    def push_ours(self) -> None:
        assert tick(self.store, self.queue).enqueued == self.on.tasks

    def bare(self) -> float:
        return self.rate(BARE, self.push_bare)

    def wrapped(self) -> float:
        self.on.db.execute(FRESH)
        rate = self.rate(OURS, self.push_ours)
        self.check("succeeded")
        return rate

    def dropped(self) -> float:
        """Behind `wrapped`."""
        self.on.db.execute("TRUNCATE ticker.runs")
        self.on.db.execute(AGAIN)
        rate = self.rate(OURS, self.push_ours)
        self.check("dropped")
        return rate

    def check(self, outcome: str) -> None:
        [(count,)] = self.on.db.execute("SELECT count(*) FROM ticker.runs WHERE outcome = %s", [outcome]).fetchall()
        assert count == self.on.tasks, f"{count} of {self.on.tasks} runs {outcome}"


def main() -> None:
    options = parser(__doc__, jobs=300, rounds=5).parse_args()
    found: dict[str, list[float]] = {"bare": [], "wrapped": [], "dropped": []}
    with stage(options.jobs) as on:
        jobs = Jobs(on)
        for _ in range(options.rounds):
            for name, rates in found.items():
                rates.append(getattr(jobs, name)())
    figures = [middle(name, rates, "jobs/s") for name, rates in found.items()]
    for name in ("wrapped", "dropped"):
        shares = [ours / bare for ours, bare in zip(found[name], found["bare"], strict=True)]
        figures.append(
            Figure(f"{name}, of the bare rate", median(shares), "x", None, f"{min(shares):.2f} to {max(shares):.2f}")
        )
    show(figures, options.json, {"jobs": options.jobs})


if __name__ == "__main__":
    main()
