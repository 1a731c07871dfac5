"""What limits by key cost, and whether they hold: `python -m tests.bench limits [--only NAME,...]`.

The parts are `tick` and `starts`, which run by default, and `polite` and `retry-after`, which take minutes:

    python -m tests.bench limits --only polite --minutes 10 [--group] [--rate 300/1m] [--concurrency 20] [--answer 2] [--spread 0]
    python -m tests.bench limits --only retry-after [--group]

A tick:

none        a tick over due tasks without limits
half        the same, and half of them carry one of 1,000 keys with room for all of them
half, full  the same, and each key has room for a third of them
idle        a tick that finds nothing due, next to tasks with limits that are due later
blocked     the step of a tick that finds nothing with room, next to 50,000 blocked tasks of as many, or of few, pairs of keys

Starts (`limited_starts.py`): tasks without limits, and with two. PostgreSQL's CPU for a start in a group, and the time of a
single one.

Polls of a local server (`limited_polls.py`) with real tickers and workers, as jobs with one task or with --group:

polite       the server refuses connections above the concurrency, and answers with 429 above the rate
retry-after  the server answers with 429 and Retry-After for a while, and the function raises SlowDown
"""

import argparse
import math
import os
from collections.abc import Callable
from statistics import median
from typing import Any

from tests.bench import limited_polls, limited_starts
from tests.bench.figures import Figure, Stage, middle, parser, show, stage, timed
from tests.bench.polls import QUIET
from ticker.daemon.tick_job import PushThreads
from ticker.db.store import PostgresStore
from ticker.engine.passes import Room
from ticker.engine.tick import Pass, TickOptions, push_keyed, tick
from ticker.queue.rq import RedisQueue
from ticker.settings import Settings

KEYS = 1000
BLOCKED = 50_000
UNLIMITED = "UPDATE ticker.tasks SET limits = NULL WHERE limits IS NOT NULL"
HALF = f"""UPDATE ticker.tasks SET limits = CASE WHEN id % 4 = 0 THEN ARRAY['key:' || id / 4 % {KEYS}] END"""
PAIRS = f"""UPDATE ticker.tasks SET limits = CASE WHEN id <= {BLOCKED} THEN ARRAY['account:' || id % {{keys}}, 'host'] END"""


class Limits:
    def __init__(self, on: Stage, due: int) -> None:
        self.on, self.due = on, due
        self.options = TickOptions(look_ahead=750, batch=Settings().batch, push_threads=PushThreads(), ahead=200)
        self.store, self.queue = PostgresStore(on.database_url), RedisQueue.from_url(on.redis_url)
        self.store.clamp(None, self.options.batch)

    def prepare(self, tasks: str, concurrency: int | None, due: int, **values: int) -> None:
        db = self.on.db
        db.execute("DELETE FROM ticker.limits; DELETE FROM ticker.slots; DELETE FROM ticker.limited_keys")
        db.execute(tasks.format(**values))
        if concurrency:
            key = "host" if concurrency == 1 else "key:*"
            db.execute("INSERT INTO ticker.limits (key, concurrency) VALUES (%s, %s)", [key, concurrency])
        self.on.make_due(due)
        db.execute("VACUUM ANALYZE ticker.tasks")
        db.execute("VACUUM ANALYZE ticker.slots")
        db.execute("VACUUM ANALYZE ticker.limited_keys")

    def tick(self, at_least: int) -> float:
        self.queue.push([])
        reports = []
        took = timed(lambda: reports.append(tick(self.store, self.queue, options=self.options)))
        assert reports[0].enqueued >= at_least, reports[0]
        return took

    def walk(self) -> float:
        now = self.store.now()
        return timed(lambda: push_keyed(Pass(self.store, Room(self.queue, {}), now, self.options), {}))

    def block(self, keys: int) -> None:
        self.prepare(PAIRS, 1, 0, keys=keys)
        self.on.db.execute("UPDATE ticker.slots SET until = clock_timestamp() + interval '1 hour'")
        self.on.db.execute(
            f"UPDATE ticker.tasks SET next_run = clock_timestamp() - interval '1 minute' WHERE id <= {BLOCKED}"
        )
        self.on.db.execute("VACUUM ANALYZE ticker.tasks")


def measure(on: Stage, due: int, rounds: int) -> list[Figure]:
    here = Limits(on, due)
    figures, ticks = [], dict[str, list[float]]()
    room = due // 2 // KEYS
    ways = (
        ("none", UNLIMITED, None, due),
        ("half", HALF, 2 * room, due),
        ("half, full", HALF, max(room // 3, 2), due // 2),
    )
    for _ in range(rounds):
        for name, statement, concurrency, pushed in ways:
            here.prepare(statement, concurrency, due)
            ticks.setdefault(name, []).append(here.tick(pushed))
    figures += [
        middle(f"tick, {due:,} due: {name}", [1000 * one for one in took], "ms") for name, took in ticks.items()
    ]
    figures += [
        Figure(f"{name}, times none", median(b / a for a, b in zip(ticks["none"], ticks[name], strict=True)), "x")
        for name in ("half", "half, full")
    ]
    here.prepare(HALF, 20, 0)
    figures.append(middle("idle tick", [1000 * here.tick(0) for _ in range(20)], "ms"))
    for keys in (BLOCKED, KEYS, 10):
        here.block(keys)
        walk: Callable[[], float] = here.walk
        figures.append(middle(f"step, {BLOCKED:,} blocked, {keys:,} pairs", [1000 * walk() for _ in range(5)], "ms"))
    return figures


def load(options: Any, part: str) -> limited_polls.Load:
    """Returns the load of polls. The defaults leave CPU unused on two cores: each single run is a process of its own."""
    is_polite, group = part == "polite", options.group
    return limited_polls.Load(
        tasks=options.tasks or (2000 if is_polite else 500), minutes=options.minutes, warm=options.warm, group=group,
        answer=options.answer or ((0.2 if group else 2.0) if is_polite else 1.0), spread=options.spread, concurrency=options.concurrency,
        rate=("3000/1m" if group else "300/1m") if options.rate is None and is_polite else options.rate or "",
        burst=options.burst, workers=options.workers or (2 if group else math.ceil(1.25 * options.concurrency)),
        tickers=options.tickers, tick=options.tick, retry_after=options.retry_after,
    )  # fmt: skip


def play(options: Any, part: str) -> tuple[list[Figure], dict[str, list[list[str]]]]:
    """Returns the figures and tables of one part."""
    if part == "tick":
        with stage(options.tasks or 200_000) as on:
            return measure(on, options.due, options.rounds), {}
    if part == "starts":
        with stage(options.tasks or 5000, *QUIET) as on:
            return [*limited_starts.measure(on, options.rounds)], {}
    os.environ.update(POLLS_CONCURRENCY=str(options.concurrency), TICKER_WAKE=options.wake)
    if part == "polite":
        return limited_polls.polite(load(options, part)), {}
    figures, times = limited_polls.retry_after(load(options, part))
    return figures, {"slow start": times}


def options_of() -> Any:
    reader = parser(__doc__, tasks=0, due=100_000, rounds=3, concurrency=20, burst=0, workers=0, tickers=1, tick=30)
    reader.formatter_class = argparse.RawDescriptionHelpFormatter
    reader.add_argument("--only", default="tick,starts", help="tick, starts, polite, retry-after; separated by commas")
    reader.add_argument("--minutes", type=float, default=1.0, help="polite: measured; retry-after: after the hold")
    reader.add_argument("--warm", type=float, default=10.0, help="seconds of polls that are not measured")
    reader.add_argument("--group", action="store_true", help="many polls in one process")
    reader.add_argument("--answer", type=float, default=0.0, help="seconds until a poll is answered")
    reader.add_argument("--spread", type=float, default=0.5, help="share by which an answer may take less or more")
    reader.add_argument("--rate", help="such as 300/1m; an empty text means none")
    reader.add_argument("--retry-after", type=float, default=60.0, help="seconds")
    reader.add_argument("--wake", choices=("on", "off"), default="on", help="TICKER_WAKE of workers and tickers")
    return reader.parse_args()


def main() -> None:
    options = options_of()
    for part in options.only.split(","):
        figures, tables = play(options, part)
        show(figures, options.json, vars(options) | {"only": part}, tables)


if __name__ == "__main__":
    main()
