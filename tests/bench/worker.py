"""What a wrapped job costs a forking worker: `python -m tests.bench worker [--jobs N] [--rounds N]`.

In each round, one after the other, a worker that is already there is given the same number of jobs:

bare      RQ's own worker, and a function of the standard library that does nothing
wrapped   our worker, and a task's function that does nothing: asked for, recorded, limited, ended
dropped   our worker, and jobs that come too early
batched   our worker, and ten times as many tasks, of which one job carries fifty (`@task(..., batch=50)`)

Per second, from the push to the end of the last one: bare jobs as RQ counts them, the others by their ended rows in `runs`.
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
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.queue.rq import RedisQueue

FRESH = """
TRUNCATE ticker.runs;
UPDATE ticker.tasks SET waiting = '{}', batch_jobs = NULL, last_run = NULL,
    last_occurrence = NULL, running_until = NULL, run_token = NULL"""
DUE = """
UPDATE ticker.tasks SET function = %(function)s, waiting = '{}', next_run = CASE WHEN id <= %(due)s
    THEN clock_timestamp() - interval '1 s' ELSE clock_timestamp() + interval '1 day' END"""
ENDED = "SELECT count(*) FROM ticker.runs WHERE outcome = %s"
BARE = [sys.executable, "-m", "rq.cli", "worker", "--logging_level", "WARNING"]
OURS = [sys.executable, "-m", "wrappers", "--tasks", "tests.bench.noop", "--logging_level", "WARNING"]


class Jobs:
    """`count` jobs at a time; of the batched ones ten times as many tasks, which is how many there are."""

    def __init__(self, on: Stage, count: int) -> None:
        self.on, self.count = on, count
        self.store, self.queue = PostgresStore(on.database_url), RedisQueue.from_url(on.redis_url)
        on.db.execute("UPDATE ticker.tasks SET every_ms = 3600000")

    def bare(self) -> float:
        queue = Queue("polling", connection=self.on.redis)
        jobs = [Queue.prepare_data("time.time", timeout=60, result_ttl=0) for _ in range(self.count)]
        with worker(self.on, BARE) as key:
            return rate(
                self.count,
                lambda: queue.enqueue_many(jobs),
                lambda: int(self.on.redis.hget(key, "successful_job_count") or 0),
            )

    def wrapped(self) -> float:
        self.on.db.execute(FRESH)
        return self.ours("noop", self.count, "succeeded")

    def dropped(self) -> float:
        """Behind `wrapped`."""
        return self.ours("noop", self.count, "dropped")

    def batched(self) -> float:
        self.on.db.execute(FRESH)
        return self.ours("noop.batched", self.on.tasks, "succeeded")

    def ours(self, function: str, count: int, outcome: str) -> float:
        self.on.db.execute(DUE, {"function": function, "due": count})
        with worker(self.on, OURS):
            return rate(
                count,
                lambda: tick(self.store, self.queue),
                lambda: self.on.db.execute(ENDED, [outcome]).fetchall()[0][0],
            )


@contextmanager
def worker(on: Stage, command: list[str]) -> Iterator[str]:
    """Listening; the key of its hash."""
    on.redis.flushall()
    environ = {
        "DATABASE_URL": on.database_url,
        "REDIS_URL": on.redis_url,
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
    }
    command = [*command, "--url", on.redis_url, "polling"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            [key] = until(lambda: on.redis.smembers("rq:workers"), "a worker")
            time.sleep(0.5)  # it says so just before it listens
            yield key.decode()
        finally:
            process.terminate()


def rate(count: int, push: Callable[[], object], done: Callable[[], int]) -> float:
    """Per second."""
    began = time.perf_counter()
    push()
    until(lambda: done() >= count, f"{count} are done")
    return count / (time.perf_counter() - began)


def main() -> None:
    options = parser(__doc__, jobs=300, rounds=5).parse_args()
    found: dict[str, list[float]] = {"bare": [], "wrapped": [], "dropped": [], "batched": []}
    with stage(10 * options.jobs) as on:
        jobs = Jobs(on, options.jobs)
        for _ in range(options.rounds):
            for name, rates in found.items():
                rates.append(getattr(jobs, name)())
    figures = [middle(name, rates, "/s") for name, rates in found.items()]
    for name in ("wrapped", "dropped", "batched"):
        shares = [ours / bare for ours, bare in zip(found[name], found["bare"], strict=True)]
        figures.append(
            Figure(f"{name}, of the bare rate", median(shares), "x", None, f"{min(shares):.2f} to {max(shares):.2f}")
        )
    show(figures, options.json, {"jobs": options.jobs})


if __name__ == "__main__":
    main()
