"""Minutes of many tasks, with real tickers and workers: `python -m tests.bench day [--tasks N] [--every 5m] [--minutes N] [--workers N]`.

`ticker run` and `python -m wrappers` run as in production, next to PostgreSQL, Valkey and the server that is polled, all on this
machine. Each task has its own phase in its interval, and each run waits for an answer. Every run is recorded. After the given
minutes, the tickers stop, and the workers get time for what still waits. Then the tables show whether each occurrence has its
record, and how late the runs began.

From the measured CPU follows what a million tasks of five minutes need, next to the same with a process for each run. The
defaults take two minutes; `--tasks 300000 --every 5m --minutes 10 --workers 4` is 1,000 polls per second.
"""

import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import ticker
from tests.bench import usage
from tests.bench.answers import Polled, polled
from tests.bench.figures import Figure, Stage, parser, show, stage, timed
from tests.bench.pollers import OURS
from tests.bench.polls import TASKS, Bench, Measured, worker
from tests.bench.usage import KEEPS_LOG, Meter, Used
from tests.running import is_alive, until
from ticker import owners
from ticker.schedules import duration

MILLION, FIVE_MINUTES = 1_000_000, 300
BUSY = 0.8  # of a core, or of the slots: a process that uses more counts as full
DRAIN = 120.0  # seconds that workers get for waiting jobs after the tickers have stopped

PHASES = """
UPDATE ticker.tasks SET box_ms = least(16000, every_ms / 2), next_run = timestamptz 'epoch' + interval '1 ms' * (
    ceil((extract(epoch FROM %(begin)s::timestamptz) * 1000 - phase_ms) / every_ms) * every_ms + phase_ms)"""
FIRST = "CREATE TABLE first AS SELECT id, next_run FROM ticker.tasks"
# A tick moves an occurrence by its own period at most. So the number of intervals that have passed is exact.
COUNTED = """
WITH due AS (
    SELECT f.id, CASE WHEN t.next_run > f.next_run
        THEN floor(extract(epoch FROM t.next_run - f.next_run) * 1000 / t.every_ms + 0.1)::int ELSE 0 END AS times
    FROM first f JOIN ticker.tasks t USING (id)
), found AS (SELECT task_id, count(*) AS times FROM ticker.runs WHERE kind = 'scheduled' GROUP BY task_id)
SELECT sum(due.times)::int, sum(coalesce(found.times, 0))::int, count(*) FILTER (WHERE due.times <> coalesce(found.times, 0))::int
FROM due LEFT JOIN found ON found.task_id = due.id"""
OUTCOMES = """
SELECT coalesce(outcome, state) || CASE WHEN outcome = 'dropped' THEN ': ' || reason ELSE '' END AS way, count(*)::int
FROM ticker.runs GROUP BY way ORDER BY 2 DESC"""
LATENESS = """
SELECT percentile_cont(ARRAY[0.5, 0.99, 1]) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - occurrence)) FROM ticker.runs
WHERE started_at IS NOT NULL AND occurrence >= %(since)s"""
UNPUSHED = "SELECT count(*)::int, coalesce(max(extract(epoch FROM clock_timestamp() - next_run)), 0)::float FROM ticker.tasks WHERE next_run <= clock_timestamp()"
OPEN = """
SELECT (SELECT count(*) FROM ticker.tasks WHERE waiting <> '{}')::int + (SELECT count(*) FROM ticker.runs WHERE state = 'running')::int"""
ENDED = "SELECT count(*)::int FROM ticker.runs WHERE state = 'ended'"
TICKING = "SELECT count(*)::int FROM ticker.tickers WHERE last_tick_at > clock_timestamp() - interval '1 minute'"


@dataclass(frozen=True)
class Load:
    """How many tasks run how often, and how many processes work on them. Times are in seconds."""

    tasks: int
    every: float
    minutes: float
    workers: int
    tickers: int
    tick: int


class Day:
    """Plays some minutes, and reads the results from the tables."""

    def __init__(self, on: Stage, server: Polled, load: Load, url: str) -> None:
        self.on, self._server, self._load, self._url = on, server, load, url

    def fill(self) -> None:
        """Gives each row of a table its default task, which is the way to register many tasks."""
        self.on.db.execute("CREATE TABLE channels (id bigint PRIMARY KEY)")
        for statement in owners.triggers("channels"):
            self.on.db.execute(statement)
        self.on.db.execute("INSERT INTO channels SELECT generate_series(1::bigint, %s)", [self._load.tasks])
        every = f"{self._load.every:g}s"
        wanted = ticker.Wanted(function="polls.day", every=every, spread=True)
        assert ticker.defaults(self.on.db, "channels", [wanted], existing=True) == self._load.tasks

    def play(self) -> tuple[Used, int]:
        """Returns what was used in the given minutes, and how many runs ended in that time."""
        begin = self._phases()
        ticking = [sys.executable, "-m", "ticker", "run", "--tick", f"{self._load.tick}s"]
        environ = {"DATABASE_URL": self.on.database_url, "REDIS_URL": self.on.redis_url}
        with closing(Meter(self.on)) as meter, worker(self.on, meter, self._url, self._load.workers):
            with usage.running(*[ticking] * self._load.tickers, **environ) as pids:
                meter.roots |= {"ticker": pids, "polled server": [self._server.pid]}
                until(lambda: self._one(TICKING) == self._load.tickers, "the tickers")
                self.on.db.execute("CHECKPOINT")
                self._wait_for(begin)
                with meter.measured() as used:
                    before = self._one(ENDED)
                    time.sleep(60 * self._load.minutes)
                    ended = self._one(ENDED) - before
                for pid in pids:
                    os.kill(pid, signal.SIGTERM)
                until(lambda: not any(map(is_alive, pids)), "the tickers' ends")
            self.enough_jobs = self.on.db.execute(UNPUSHED).fetchall()[0]
            self._drain()
        return used, ended

    def _phases(self) -> datetime:
        """Makes each task due at its phase, from an instant on at which everything is ready. Returns that instant."""
        sql = "SELECT clock_timestamp() + %s * interval '1 s'"
        [(begin,)] = self.on.db.execute(sql, [20 + self._load.tasks / 10_000]).fetchall()
        self.on.db.execute(PHASES, {"begin": begin})
        self.on.db.execute(FIRST)
        self.on.db.execute("VACUUM ANALYZE ticker.tasks")
        return begin  # type: ignore[no-any-return]

    def _wait_for(self, begin: datetime) -> None:
        left = begin.timestamp() - time.time()
        if left < 0:
            print(f"# the tasks were due {-left:.0f} s before all was ready: their lateness counts", flush=True)
        time.sleep(max(left, 0))

    def _drain(self) -> None:
        give_up_at = time.monotonic() + DRAIN
        while self._one(OPEN) and time.monotonic() < give_up_at:
            time.sleep(1)

    def _one(self, question: str) -> int:
        return int(self.on.db.execute(question).fetchall()[0][0])

    def recorded(self) -> Iterator[Figure]:
        """Yields the figures that the tables contain."""
        [(due, found, wrong)] = self.on.db.execute(COUNTED).fetchall()
        yield Figure("occurrences that were pushed", due, "", None, "by the tasks' next times")
        yield Figure(
            "occurrences that are recorded",
            found,
            "",
            None,
            f"{wrong} tasks have more or fewer records than occurrences",
        )
        for outcome, count in self.on.db.execute(OUTCOMES).fetchall():
            yield Figure(f"recorded as {outcome}", count, "")
        count, oldest = self.enough_jobs
        yield Figure(
            "due, but not pushed at the end",
            count,
            "",
            None,
            f"for up to {oldest:.1f} s; the tick is {self._load.tick} s",
        )
        yield Figure("open when the workers were stopped", self._one(OPEN), "")
        [(first, last)] = self.on.db.execute("SELECT min(occurrence), max(occurrence) FROM ticker.runs").fetchall()
        for name, since in (("lateness", first), ("lateness of the last fifth", first + 0.8 * (last - first))):
            [(late,)] = self.on.db.execute(LATENESS, {"since": since}).fetchall()
            for which, seconds in zip(("p50", "p99", "max"), late, strict=True):
                yield Figure(f"{name}, {which}", float(seconds), "s")


def used_by(used: Used, runs: int) -> Iterator[Figure]:
    yield Figure("runs per second", runs / used.seconds, "/s")
    for role, seconds in used.cpu.items():
        yield Figure(
            f"CPU of {role}, per run", 1000 * seconds / runs, "ms", None, f"{seconds / used.seconds:.2f} cores"
        )
    yield Figure(
        "log per run, with its tick, without images",
        used.log / runs / 1000,
        "kB",
        None,
        f"images {used.images / runs / 1000:.2f} kB more",
    )
    for name, count in sorted(used.by_name.items()):
        yield Figure(f"sessions of {name}", count, "")
    yield Figure("connections to Redis", used.connections, "")
    for role, megabytes in used.memory.items():
        yield Figure(f"memory of {role}, all its processes", megabytes, "MB")
    yield Figure("Redis at its largest", used.redis, "MB")


def million(used: Used, runs: int, load: Load, concurrency: int, seconds: float) -> Iterator[Figure]:
    """Yields what a million tasks of five minutes need, computed from the CPU of a run."""
    rate = MILLION / FIVE_MINUTES
    cores = {role: rate * spent / runs for role, spent in used.cpu.items()}
    processes = math.ceil(max(cores["worker"] / BUSY, rate * seconds / concurrency / BUSY))
    sessions = used.by_name.get("ticker-run", 0) / load.workers
    yield from (
        Figure(f"a million: {role}", cores[role], "cores") for role in ("worker", "ticker", "PostgreSQL", "Redis")
    )
    yield Figure(
        "a million: worker processes", processes, "", None, f"{concurrency} at the same time, each busy for {BUSY:.0%}"
    )
    yield Figure("a million: sessions of PostgreSQL", processes * sessions, "", None, f"{sessions:.1f} for each worker")
    yield Figure("a million: memory of workers", processes * used.memory["worker"] / load.workers / 1000, "GB")
    yield Figure(
        "a million: log",
        rate * used.log / runs / 1e6,
        "MB/s",
        None,
        f"images {rate * used.images / runs / 1e6:.1f} MB/s more",
    )


def forks(each: Measured) -> Iterator[Figure]:
    """Yields the same for a process per run, without the CPU of the tickers."""
    rate, ticked = MILLION / FIVE_MINUTES, each.ticked
    assert ticked
    processes = math.ceil(rate / each.rate)
    for role in ("worker", "PostgreSQL", "Redis"):
        seconds = each.cpu(role) / 1000 + ticked.cpu.get(role, 0.0) / each.due * (role != "worker")
        yield Figure(f"a million, a process each: {role}", rate * seconds, "cores")
    yield Figure("a million, a process each: worker processes", processes, "", None, f"{each.rate:.1f} polls/s each")
    yield Figure("a million, a process each: sessions of PostgreSQL", processes * each.used.sessions, "")
    yield Figure("a million, a process each: memory of workers", processes * each.used.memory["worker"] / 1000, "GB")
    log = each.used.log / each.runs + ticked.log / each.due
    yield Figure("a million, a process each: log", rate * log / 1e6, "MB/s", None, "without images")


def options_of() -> Any:
    reader = parser(__doc__, tasks=6000, workers=1, tickers=1, concurrency=100, batch=500, tick=30)
    reader.add_argument("--every", default="1m")
    reader.add_argument("--minutes", type=float, default=1.0)
    reader.add_argument("--answer", type=float, default=0.2, help="seconds until a poll is answered")
    reader.add_argument(
        "--forks", type=int, default=15, help="seconds for which a process per run is measured; 0: not at all"
    )
    return reader.parse_args()


def main() -> None:
    options = options_of()
    every = duration.milliseconds("every", options.every) / 1000
    load = Load(options.tasks, every, options.minutes, options.workers, options.tickers, options.tick)
    path = f"{1000 * options.answer:.0f}"
    os.environ.update(POLLS_CONCURRENCY=str(options.concurrency), POLLS_BATCH=str(options.batch))
    with polled() as server:
        with stage(0, KEEPS_LOG) as on:
            day = Day(on, server, load, f"{server.url}/{path}")
            figures = [Figure(f"registering {options.tasks:,} tasks", timed(day.fill), "s")]
            used, runs = day.play()
            figures += [
                *day.recorded(),
                *used_by(used, runs),
                *million(used, runs, load, options.concurrency, options.answer),
            ]
        if options.forks:
            with stage(TASKS, KEEPS_LOG) as on:
                figures += forks(Bench(on, server, path, options.forks).measure(OURS["job each"]))
    show(figures, options.json, vars(options))


if __name__ == "__main__":
    main()
