"""How long after its commit a change takes effect: `python -m tests.bench.wake [--rounds N] [--tick SECONDS]`.

A real `ticker run` on embedded servers, with TICKER_WAKE on and off; a task is registered, and the time is taken until its
job is in Redis. Prints a markdown table.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from redis import Redis

import ticker
from tests.running import ROOT, until
from ticker import embedded, migrations
from ticker.db.connections import connect


@contextmanager
def running(environ: dict[str, str], tick: float) -> Iterator[None]:
    command = [sys.executable, "-m", "ticker", "run", "--tick", f"{tick}s"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def delays(environ: dict[str, str], tick: float, rounds: int) -> list[float]:
    """Seconds from the return of `register` in autocommit to the job."""
    found, dice = [], random.Random(1)
    with running(environ, tick), connect(environ["DATABASE_URL"]) as db, Redis.from_url(environ["REDIS_URL"]) as redis:
        until(
            lambda: db.execute("SELECT 1 FROM ticker.tickers WHERE last_tick_at > now() - interval '5 s'").fetchone(),
            "a tick",
        )
        for number in range(rounds):
            time.sleep(dice.uniform(0.3, 1.3))
            waiting = redis.llen("rq:queue:polling")
            ticker.register(db, "poll", name=f"{tick} {environ['TICKER_WAKE']} {number}", every="1h")
            began = time.monotonic()
            while redis.llen("rq:queue:polling") == waiting:
                time.sleep(0.002)
            found.append(time.monotonic() - began)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tick", type=float, default=5.0)
    options = parser.parse_args()
    print("| TICKER_WAKE | tick | changes | median | slowest |\n|---|---|---|---|---|")
    with embedded.servers(syncs=True) as servers:
        migrations.upgrade(servers.database_url)
        for wake in ("on", "off"):
            os.environ["TICKER_WAKE"] = wake
            environ = {"DATABASE_URL": servers.database_url, "REDIS_URL": servers.redis_url, "TICKER_WAKE": wake}
            found = delays(environ, options.tick, options.rounds)
            print(f"| {wake} | {options.tick:g} s | {len(found)} | {median(found):.3f} s | {max(found):.3f} s |")


if __name__ == "__main__":
    main()
