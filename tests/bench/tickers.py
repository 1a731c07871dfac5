"""Several tickers at once on the same due tasks: `python -m tests.bench tickers [--tasks N] [--due N] [--rounds N]`.

Each is a process of its own with the production tick and its push threads; they begin together. Counted are the jobs in Redis and
the occurrences that wait in the table: none is there twice, none is missing.
"""

import multiprocessing
import time
from contextlib import closing
from multiprocessing.synchronize import Barrier

from tests.bench.figures import Figure, Stage, middle, parser, show, stage
from ticker.daemon.tick_job import PushThreads
from ticker.db.store import PostgresStore
from ticker.engine.tick import TickOptions, tick
from ticker.queue.rq import RedisQueue


def one(database_url: str, redis_url: str, together: Barrier) -> None:
    with closing(PostgresStore(database_url)) as store, closing(RedisQueue.from_url(redis_url)) as queue:
        store.look(None, 0)
        together.wait()
        tick(store, queue, options=TickOptions(push_threads=PushThreads()))


def race(on: Stage, due: int, tickers: int) -> tuple[float, int]:
    """Seconds, and how many jobs were one too many."""
    on.make_due(due)
    together = multiprocessing.Barrier(tickers + 1)
    processes = [
        multiprocessing.Process(target=one, args=(on.database_url, on.redis_url, together)) for _ in range(tickers)
    ]
    for process in processes:
        process.start()
    together.wait()
    began = time.perf_counter()
    for process in processes:
        process.join()
    took = time.perf_counter() - began
    assert all(process.exitcode == 0 for process in processes)
    [(waiting,)] = on.db.execute("SELECT coalesce(sum(cardinality(waiting)), 0) FROM ticker.tasks").fetchall()
    jobs = on.redis.llen("rq:queue:polling")
    assert min(jobs, waiting) >= due, f"{jobs} jobs and {waiting} waiting of {due} due"
    return took, max(jobs, waiting) - due


def main() -> None:
    options = parser(__doc__, tasks=200_000, due=20_000, rounds=5).parse_args()
    figures: list[Figure] = []
    with stage(options.tasks) as on:
        for tickers in (1, 2, 4):
            found = [race(on, options.due, tickers) for _ in range(options.rounds)]
            doubles = sum(double for _, double in found)
            figures.append(
                middle(
                    f"{tickers} tickers, {options.due:,} due",
                    [1000 * took for took, _ in found],
                    "ms",
                    f"{doubles} doubles in {options.rounds} rounds",
                )
            )
    show(figures, options.json, {"tasks": options.tasks})


if __name__ == "__main__":
    main()
