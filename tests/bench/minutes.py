"""What the count of minutes costs: `python -m tests.bench minutes [--ended N] [--rounds N]`.

First a minute in which so many runs have ended, two percent of them dropped, is closed several times. Its cost is PostgreSQL's
CPU, as is that of the two ticks that push so many tasks in a minute. Then so many runs start and end, one after another, in
rounds: with the triggers that note late ends, and without them.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from statistics import median
from typing import Any
from uuid import uuid4

from tests.bench.figures import Figure, Stage, middle, parser, show, stage
from tests.bench.usage import KEEPS_LOG, Meter
from ticker.daemon.minutes import close_minute
from ticker.db import sql
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.engine.tick import TickOptions, tick
from ticker.queue.rq import RedisQueue
from ticker.settings import Settings

FUNCTIONS, TYPES = 10, 5
ENDED = """
INSERT INTO ticker.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome, reason, started_at,
    until, ended_at, created_at, queue, every_ms, tolerance_ms, worker, host, pid, job_id)
SELECT n, 'poll', 'mail.fetch ' || n %% %(functions)s, 'channels ' || n %% %(types)s, n::text, 'scheduled', i.at - interval '10 s',
    'ended', o.outcome, CASE o.outcome WHEN 'dropped' THEN 'too_early' ELSE '' END,
    CASE WHEN o.outcome <> 'dropped' THEN i.at - interval '1 s' END, i.at, i.at, i.at, 'polling', 60000, 5000,
    '0123456789abcdef0123456789abcdef', 'host', 1, 'abcdefgh-t1-1234567890123456'
FROM generate_series(1, %(ended)s) n, LATERAL (SELECT %(at)s::timestamptz + n * interval '1 minute' / (%(ended)s + 1) AS at) i,
    LATERAL (SELECT CASE WHEN n %% 50 = 0 THEN 'dropped' WHEN n %% 50 = 1 THEN 'failed' WHEN n %% 3 = 0 THEN 'nothing_to_do'
        ELSE 'succeeded' END AS outcome) o"""
FRESH = """
UPDATE ticker.tasks SET waiting = ARRAY[next_run], batch_jobs = NULL, last_run = NULL, last_occurrence = NULL, running_until = NULL,
    run_token = NULL"""


class Bench:
    """The servers, and so many ended runs."""

    def __init__(self, on: Stage, ended: int) -> None:
        self._on, self._ended = on, ended

    def fill(self) -> None:
        db = self._on.db
        [(self._at,)] = db.execute("SELECT date_trunc('minute', clock_timestamp()) - interval '10 minutes'").fetchall()
        db.execute("SET session_replication_role TO replica")
        db.execute(ENDED, {"ended": self._ended, "at": self._at, "functions": FUNCTIONS, "types": TYPES})
        db.execute("SET session_replication_role TO origin")
        db.execute("VACUUM ANALYZE ticker.runs")
        db.execute("CHECKPOINT")

    def close(self) -> tuple[float, float]:
        """Closes the minute. Returns the seconds, and PostgreSQL's seconds of CPU."""
        self._on.db.execute("TRUNCATE ticker.minutes, ticker.closed_minutes")
        self._on.db.execute(
            "INSERT INTO ticker.closed_minutes (at) SELECT %s::timestamptz - interval '1 minute'", [self._at]
        )
        with closing(PostgresStore(self._on.database_url)) as store:
            store.now()
            took, cpu = self._measured(lambda: close_minute(store, Settings()))
        [(count,)] = self._on.db.execute("SELECT sum(count) FROM ticker.minutes").fetchall()
        assert count == self._ended, count
        return took, cpu

    def tick(self, due: int) -> tuple[float, float]:
        """Pushes so many due tasks, after a first tick that has looked at all rows. Returns the same."""
        self._on.make_due(0)
        with (
            closing(PostgresStore(self._on.database_url)) as store,
            closing(RedisQueue.from_url(self._on.redis_url)) as queue,
        ):
            tick(store, queue, options=TickOptions())
            self._on.make_due(due)
            return self._measured(lambda: tick(store, queue, options=TickOptions()))

    def _measured(self, work: Callable[[], Any]) -> tuple[float, float]:
        with closing(Meter(self._on)) as meter, meter.measured() as used:
            began = time.perf_counter()
            work()
            took = time.perf_counter() - began
        return took, used.cpu["PostgreSQL"]


def runs(on: Stage, count: int) -> tuple[float, float]:
    """Starts and ends so many runs, one at a time. Returns PostgreSQL's microseconds of CPU, and bytes of log, for each."""
    on.db.execute("TRUNCATE ticker.runs")
    on.db.execute(FRESH)
    on.db.execute("VACUUM ticker.tasks")
    on.db.execute("CHECKPOINT")
    tasks = on.db.execute("SELECT id, next_run FROM ticker.tasks ORDER BY id LIMIT %s", [count]).fetchall()
    common = {
        "functions": ["mail.fetch"],
        "worker": "w",
        "host": "h",
        "pid": 1,
        "boot": None,
        "uptime": None,
        "now": None,
    }
    with connect(on.database_url, planned_once=True) as db, closing(Meter(on)) as meter, meter.measured() as used:
        execute = sql.on(db, "ticker")
        for id_, due in tasks:
            token = str(uuid4())
            execute("start", task_ids=[id_], occurrences=[due], tokens=[token], job_ids=["j"], **common)
            execute(
                "finish", task_ids=[id_], tokens=[token], outcomes=["succeeded"], reasons=[""], results=[None], tracebacks=[""],
                outputs=[""], error_outputs=[""], ages=[0.0], pids=[1], suspect_counts=[0], now=None,
            )  # fmt: skip
    return 1e6 * used.cpu["PostgreSQL"] / count, used.log / count


def ends(on: Stage, count: int, rounds: int) -> Iterator[Figure]:
    """Yields the cost of starts and ends with the triggers and without them, in turns."""
    found: dict[str, list[tuple[float, float]]] = {"with": [], "without": []}
    for number in range(2 * rounds):
        way = "with" if number % 2 else "without"
        on.db.execute(f"ALTER TABLE ticker.runs {'ENABLE' if way == 'with' else 'DISABLE'} TRIGGER USER")
        found[way].append(runs(on, count))
    for way, values in found.items():
        yield middle(f"CPU of PostgreSQL for a start and its end, {way} the triggers", [cpu for cpu, _ in values], "us")
        yield middle(f"log of a run, {way} the triggers", [log for _, log in values], "B")
    ratios = [a[0] / b[0] for a, b in zip(found["with"], found["without"], strict=True)]
    yield Figure("CPU with the triggers", median(ratios), "x", None, f"{min(ratios):.3f} to {max(ratios):.3f}")


def main() -> None:
    options = parser(__doc__, ended=200_000, rounds=5, runs=2000).parse_args()
    with stage(options.ended, KEEPS_LOG, "--autovacuum=off", "--checkpoint_timeout=1h") as on:
        bench = Bench(on, options.ended)
        bench.fill()
        closings = [bench.close() for _ in range(options.rounds)]
        ticks = [bench.tick(options.ended // 2) for _ in range(max(options.rounds // 2, 1))]
        shares = 100 * median(cpu for _, cpu in closings) / (2 * median(cpu for _, cpu in ticks))
        figures = [
            middle(f"a minute of {options.ended:,} ends is closed", [1000 * took for took, _ in closings], "ms"),
            middle("CPU of PostgreSQL for it", [1000 * cpu for _, cpu in closings], "ms"),
            middle("CPU of PostgreSQL for the two ticks of that minute", [2000 * cpu for _, cpu in ticks], "ms"),
            Figure("share of it", shares, "%", None, "at most 5"),
            *ends(on, options.runs, options.rounds),
        ]
    show(figures, options.json, vars(options))


if __name__ == "__main__":
    main()
