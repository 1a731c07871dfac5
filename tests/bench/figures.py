"""What the benchmarks share: a table of tasks, medians, and figures as a markdown table or as JSON."""

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from statistics import median
from time import perf_counter
from typing import Any

import psycopg
from redis import Redis

from ticker import embedded, migrations
from ticker.settings import psycopg_url

MEMORY = ("--shared_buffers=2GB", "--max_wal_size=8GB")
LIBRARIES = ("rq", "redis", "psycopg", "sqlalchemy")

TASKS = """
INSERT INTO ticker.tasks (owner_type, owner_id, name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue, next_run)
SELECT 'mail_channels', n::text, 'poll', 'mail.fetch', 'interval', 300000, 15000, 150000, 1000, 'polling',
    clock_timestamp() + interval '1 day' FROM generate_series(1, %(tasks)s) n"""

DUE = """
UPDATE ticker.tasks SET waiting = '{}', next_run = CASE WHEN id %% (%(tasks)s / %(due)s) = 0
    THEN clock_timestamp() - interval '1 minute' + id * interval '1 microsecond' ELSE clock_timestamp() + interval '1 day' END
WHERE waiting <> '{}' OR id %% (%(tasks)s / %(due)s) = 0 OR next_run < clock_timestamp() + interval '12 hours'"""


@dataclass(frozen=True)
class Figure:
    """One line of a table: what was measured, how often, the median and the slowest, in a unit."""

    what: str
    value: float
    unit: str
    slowest: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Stage:
    """Real servers with so many tasks, none of which is due."""

    database_url: str
    redis_url: str
    db: psycopg.Connection[Any]
    redis: Redis
    tasks: int

    def make_due(self, due: int) -> None:
        """So many tasks, spread over the table, are due; Redis is empty, and what earlier rounds left is cleaned up."""
        self.db.execute(DUE, {"tasks": self.tasks, "due": max(due, 1)})
        if not due:
            self.db.execute(
                "UPDATE ticker.tasks SET next_run = clock_timestamp() + interval '1 day' WHERE next_run < clock_timestamp()"
            )
        self.db.execute("VACUUM ticker.tasks")
        self.db.execute("CHECKPOINT")
        self.redis.flushall()


@contextmanager
def stage(tasks: int, *options: str) -> Iterator[Stage]:
    """`options` are PostgreSQL's. The table fits into PostgreSQL's memory, as a server's in earnest does."""
    with embedded.postgres(None, *MEMORY, *options, syncs=True) as postgres, embedded.valkey(syncs=True) as valkey:
        url = psycopg_url(postgres.url)
        migrations.upgrade(url)
        with psycopg.connect(url, autocommit=True) as db, Redis.from_url(valkey.url) as redis:
            db.execute(TASKS, {"tasks": tasks})
            db.execute("VACUUM ANALYZE ticker.tasks")
            yield Stage(url, valkey.url, db, redis, tasks)


def timed(work: Callable[[], Any]) -> float:
    """Seconds."""
    began = perf_counter()
    work()
    return perf_counter() - began


def middle(what: str, values: Sequence[float], unit: str, note: str = "") -> Figure:
    return Figure(what, median(values), unit, max(values), note)


def show(
    figures: Sequence[Figure],
    as_json: bool,
    about: Mapping[str, Any],
    tables: Mapping[str, Sequence[Sequence[str]]] | None = None,
) -> None:
    """Prints the tables, each of which begins with its column heads, and then the figures."""
    facts = {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}, **about}
    if as_json:
        json.dump(
            {"about": facts, "figures": [asdict(figure) for figure in figures], **(tables or {})}, sys.stdout, indent=2
        )
        print()
        return
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    for name, (heads, *rows) in (tables or {}).items():
        print(f"\n{name}\n")
        for cells in (heads, ["---"] * len(heads), *rows):
            print(f"| {' | '.join(cells)} |")
    if figures:
        print("\n| what | median | slowest | |\n|---|---|---|---|")
    for figure in figures:
        slowest = "" if figure.slowest is None else f"{number(figure.slowest)} {figure.unit}"
        print(f"| {figure.what} | {number(figure.value)} {figure.unit} | {slowest} | {figure.note} |")


def number(value: float) -> str:
    """Returns all digits of a count, and four of a measured value."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def parser(about: str | None, **defaults: int) -> argparse.ArgumentParser:
    """With --json, and the numbers that the benchmark takes."""
    found = argparse.ArgumentParser(description=about)
    found.add_argument("--json", action="store_true")
    for name, value in defaults.items():
        found.add_argument(f"--{name}", type=int, default=value)
    return found
