"""Whether retention keeps up with 12 million records an hour: `python -m tests.bench history [--rate N] [--minutes N]`.

Each second, so many records of runs are inserted by SQL, 2% of them failures. They ended over two hours ago, so that the
others are to be deleted at once: their tasks keep problems. Next to that, laps of pruning run one after another, as by
`ticker prune` from a timer, or with the rests of `ticker run` (`--rests`). Each lap also reads the failures of earlier hours,
which are kept (`--kept`). The servers sync, and autovacuum is on.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.bench.figures import Figure, Stage, middle, parser, show, stage, timed
from tests.faults.play import Spare
from ticker.daemon import prune
from ticker.db.store import PostgresStore
from ticker.settings import Settings

AGO = "2 hours 10 minutes"
INSERT = f"""
INSERT INTO ticker.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome, started_at, until,
    ended_at, created_at, queue, every_ms, tolerance_ms, worker, host, pid, job_id)
SELECT 1 + n %% %(tasks)s, 'poll', 'mail.fetch', 'mail_channels', (1 + n %% %(tasks)s)::text, 'scheduled', i.at - interval '10 s', 'ended',
    CASE WHEN n %% %(failed)s = 0 THEN 'failed' ELSE 'nothing_to_do' END, i.at - interval '1 s', i.at, i.at, i.at - interval '1 s', 'polling',
    300000, 15000, '0123456789abcdef0123456789abcdef', 'host', 1, 'abcdefgh-t1-1234567890123456'
FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(rate)s - 1) n,
    LATERAL (SELECT clock_timestamp() - interval '{AGO}' + n * interval '1 us' AS at) i"""
STATE = """
SELECT pg_table_size('ticker.runs') / 1e6, pg_indexes_size('ticker.runs') / 1e6, n_live_tup::float8, n_dead_tup::float8,
    pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') / 1e6 FROM pg_stat_user_tables WHERE relid = 'ticker.runs'::regclass"""
FAILED = 50  # of so many records, one
EVERY = 15.0  # seconds between two lines of the table


@dataclass
class Seen:
    """What the writer and the laps of pruning did."""

    over: threading.Event = field(default_factory=threading.Event)
    inserted: int = 0
    late: float = 0.0
    """How many seconds the writer lags behind its schedule."""
    deleted: int = 0
    batches: list[float] = field(default_factory=list)
    laps: int = 0


def write(url: str, seen: Seen, tasks: int, rate: int) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        began, second = time.monotonic(), 0
        while not seen.over.wait(max(0.0, began + second - time.monotonic())):
            db.execute(INSERT, {"tasks": tasks, "first": seen.inserted, "rate": rate, "failed": FAILED})
            seen.inserted, second = seen.inserted + rate, second + 1
            seen.late = time.monotonic() - began - second


def delete(url: str, seen: Seen, rests: bool) -> None:
    with closing(PostgresStore(url)) as store:
        while not seen.over.is_set():
            total = prune.Pruned()
            for pruned in prune.lap(store, Settings()):
                total += pruned
                seen.deleted += pruned.successes + pruned.failures + pruned.drops
                if pruned.successes:
                    seen.batches.append(1000 * pruned.seconds)
                if seen.over.wait(prune.rest(total.overdue_ms) * pruned.seconds if rests else 0):
                    return
            seen.laps += 1


def rows(db: psycopg.Connection[Any], seen: Seen, seconds: float) -> Iterator[tuple[float, ...]]:
    """Yields seconds, inserted, deleted and open records, MB of the table and its indexes, dead rows, MB of log per second."""
    began, [(*_, before)] = time.monotonic(), db.execute(STATE).fetchall()
    while (passed := time.monotonic() - began) < seconds:
        time.sleep(min(EVERY, seconds - passed))
        passed, [(table, indexes, _, dead, log)] = time.monotonic() - began, db.execute(STATE).fetchall()
        due = round(seen.inserted * (1 - 1 / FAILED)) - seen.deleted
        line = (passed, seen.inserted, seen.deleted, due, float(table), float(indexes), dead, float(log - before) / passed)  # fmt: skip
        print(f"# {', '.join(f'{value:,.1f}' for value in line)}", file=sys.stderr, flush=True)
        yield line


def fill(db: psycopg.Connection[Any], tasks: int, kept: int) -> None:
    db.execute("UPDATE ticker.tasks SET keep = 'problems'")
    db.execute(INSERT, {"tasks": tasks, "first": 0, "rate": kept, "failed": 1})
    db.execute("VACUUM FULL ANALYZE ticker.tasks")
    db.execute("VACUUM ANALYZE ticker.runs")
    db.execute("CHECKPOINT")


def play(on: Stage, rate: int, seconds: float, pruners: int, rests: bool) -> tuple[Seen, list[tuple[float, ...]]]:
    seen = Seen()
    work: list[tuple[Callable[..., None], tuple[Any, ...]]] = [(write, (on.database_url, seen, on.tasks, rate))]
    work += [(delete, (on.database_url, seen, rests))] * pruners
    with ExitStack() as started:
        for target, arguments in work:
            thread = threading.Thread(target=target, args=arguments)
            thread.start()
            started.callback(thread.join)
        started.callback(seen.over.set)
        return seen, [*rows(on.db, seen, seconds)]


def main() -> None:
    reader = parser(__doc__, tasks=100_000, rate=3333, pruners=1, kept=0)
    reader.add_argument("--minutes", type=float, default=5.0)
    reader.add_argument("--rests", action="store_true", help="rest between batches, as ticker run does")
    options = reader.parse_args()
    spare = Spare()
    with stage(options.tasks, "--shared_buffers=512MB") as on:
        filled = timed(lambda: fill(on.db, options.tasks, options.kept))
        seen, samples = play(on, options.rate, 60 * options.minutes, options.pruners, options.rests)
    seconds = samples[-1][0]
    heads = ("s", "inserted", "deleted", "still to delete", "table, MB", "indexes, MB", "dead rows", "log, MB/s")
    figures = [
        Figure(f"filling with {options.kept:,} records that are kept", filled, "s"),
        Figure("inserted", seen.inserted / seconds, "/s", None, f"the writer was {seen.late:.1f} s late at the end"),
        Figure("deleted", seen.deleted / seconds, "/s", None, f"{seen.laps} laps, {options.pruners} at once"),
        middle("a batch", seen.batches or [0.0], "ms"),
        Figure("write-ahead log", samples[-1][-1], "MB/s"),
        Figure("processors left", 100 * spare(), "%", None, "by all that runs on this machine"),
    ]
    lines = [[*(f"{value:,.0f}" for value in one[:-1]), f"{one[-1]:.1f}"] for one in samples]
    show(figures, options.json, vars(options), {"history": [heads, *lines]})


if __name__ == "__main__":
    main()
