"""How many polls one worker process makes per second: `python -m tests.bench polls [--polls N] [--rounds N]`.

Each poll asks a local server that answers after 200 ms. In each round, one after the other:

job each   a job and a process for each poll
batch      50 polls in one job, one after another
together   100 coroutines at the same time, 500 in one job
threads    20 threads at the same time, 200 in one job

PostgreSQL syncs its log to disk. `CPU of PostgreSQL` is that of all its processes together, per poll, with the tick.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tests.bench.figures import Figure, Stage, middle, parser, show, stage
from tests.running import ROOT, until
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.queue.rq import RedisQueue

SYNCING = ("--fsync=on", "--synchronous_commit=on", "--full_page_writes=on")
SHARES = {
    "job each": ("polls.one", 25),
    "batch": ("polls.batch", 25),
    "together": ("polls.together", 1),
    "threads": ("polls.threads", 4),
}
"""By kind: the function, and by how much fewer polls are made, since they take longer."""

FRESH = """
TRUNCATE ticker.runs;
UPDATE ticker.tasks SET waiting = '{}', batch_jobs = NULL, last_run = NULL, last_occurrence = NULL, running_until = NULL,
    run_token = NULL, function = %(function)s, every_ms = 3600000, next_run = CASE WHEN id <= %(due)s
    THEN clock_timestamp() - interval '1 s' ELSE clock_timestamp() + interval '1 day' END"""
ENDED = "SELECT count(*) FROM ticker.runs WHERE outcome = 'succeeded'"
SERVER = """
import asyncio

async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    await asyncio.sleep(0.2)
    writer.write(b"HTTP/1.0 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@contextmanager
def polled() -> Iterator[str]:
    """A server that answers after 200 ms; its port."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@contextmanager
def worker(on: Stage, port: str) -> Iterator[None]:
    on.redis.flushall()
    environ = {**os.environ, "DATABASE_URL": on.database_url, "REDIS_URL": on.redis_url, "POLLS_PORT": port}
    command = [
        sys.executable,
        "-m",
        "wrappers",
        "--tasks",
        "tests.bench.polled",
        "--logging_level",
        "WARNING",
        "polling",
    ]
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            until(lambda: on.redis.smembers("rq:workers"), "a worker")
            time.sleep(1)  # it says so just before it listens
            yield
        finally:
            process.terminate()


def polls(on: Stage, function: str, count: int, port: str) -> tuple[float, float]:
    """Returns the polls per second, and the CPU of PostgreSQL per poll in milliseconds."""
    store, queue = PostgresStore(on.database_url), RedisQueue.from_url(on.redis_url)
    with worker(on, port):
        on.db.execute(FRESH, {"function": function, "due": count})
        on.db.execute("CHECKPOINT")
        before, began = cpu_of_postgres(on), time.perf_counter()
        tick(store, queue)
        until(lambda: on.db.execute(ENDED).fetchall()[0][0] >= count, f"{count} polls")
        took = time.perf_counter() - began
        return count / took, 1000 * (cpu_of_postgres(on) - before) / count


def cpu_of_postgres(on: Stage) -> float:
    """Returns the seconds of CPU that the server's living processes, and its ended ones, have used."""
    [(postmaster,)] = on.db.execute("SELECT pg_read_file('postmaster.pid')").fetchall()
    server = int(postmaster.split()[0])
    seconds = 0.0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(entry.name) == server:
                seconds += sum(map(int, fields[11:15]))  # with the children that it has waited for
            elif int(fields[1]) == server:
                seconds += int(fields[11]) + int(fields[12])
    return seconds / os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = parser(__doc__, polls=1000, rounds=3).parse_args()
    rates: dict[str, list[float]] = {kind: [] for kind in SHARES}
    costs: dict[str, list[float]] = {kind: [] for kind in SHARES}
    with polled() as port, stage(options.polls, *SYNCING) as on:
        for _ in range(options.rounds):
            for kind, (function, fewer) in SHARES.items():
                rate, cost = polls(on, function, options.polls // fewer, port)
                rates[kind].append(rate)
                costs[kind].append(cost)
    figures = [middle(kind, found, "polls/s") for kind, found in rates.items()]
    figures += [middle(f"{kind}, CPU of PostgreSQL", found, "ms per poll") for kind, found in costs.items()]
    for kind in ("batch", "together", "threads"):
        factors = [more / one for more, one in zip(rates[kind], rates["job each"], strict=True)]
        figures.append(
            Figure(f"{kind}, times a job each", median(factors), "x", None, f"{min(factors):.1f} to {max(factors):.1f}")
        )
    show(figures, options.json, {"polls": options.polls})


if __name__ == "__main__":
    main()
