"""What it costs to register tasks: `python -m tests.bench register [--tasks N]`.

A PostgreSQL of its own that syncs, and a table of owners with triggers. `register_many` for N owners, twice: the second time
finds nothing to change. Beside it, `register` for a hundredth of them, and plain INSERTs. Prints microseconds a task: the median
and the span, and the median CPU time of Python and of PostgreSQL's backend, which other processes of the host hardly change.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

import ticker
from ticker import embedded, migrations, owners

OWNERS = "INSERT INTO mail_channels SELECT n, 'imap' || n %% 50 FROM generate_series(1, %s) n"
LAPS = 3


def items(first: int, count: int) -> list[dict[str, object]]:
    return [
        {"function": "mail.fetch", "every": "1m", "spread": True, "owner": ("mail_channels", str(n)), "subject": f"{n}@example.org",
         "kwargs": {"channel_id": n}} for n in range(first, first + count)
    ]  # fmt: skip


def spent(backend: int) -> list[float]:
    """Returns the seconds so far: of the clock, and of CPU time of this process and the backend."""
    of_backend = int(Path(f"/proc/{backend}/schedstat").read_text().split()[0]) / 1e9
    return [time.perf_counter(), time.process_time(), of_backend]


def timed(what: Callable[[], object], backend: int, count: int) -> list[float]:
    before = spent(backend)
    what()
    return [1e6 * (now - then) / count for now, then in zip(spent(backend), before, strict=True)]


def lap(db: psycopg.Connection[Any], count: int, rows: dict[str, list[list[float]]]) -> None:
    backend = db.info.backend_pid
    many, single = items(1, count), items(1, max(count // 100, 1))
    for name in ("register_many", "register_many again"):
        rows[name].append(timed(lambda: ticker.register_many(db, many), backend, len(many)))
    db.execute("TRUNCATE ticker.tasks CASCADE")
    insert = "INSERT INTO mail_channels VALUES (%s, '')"
    for name, one in {
        "register": lambda item: ticker.register(db, **item),
        "INSERT": lambda item: db.execute(insert, [-int(item["owner"][1])]),
    }.items():
        with db.transaction():
            rows[name].append(timed(lambda one=one: [one(item) for item in single], backend, len(single)))  # type: ignore[misc]
    db.execute("TRUNCATE ticker.tasks CASCADE")
    db.execute("DELETE FROM mail_channels WHERE id < 0")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench register")
    parser.add_argument("--tasks", type=int, default=100_000)
    chosen = parser.parse_args()
    rows: dict[str, list[list[float]]] = {"register_many": [], "register_many again": [], "register": [], "INSERT": []}
    with embedded.servers(syncs=True) as servers:
        migrations.upgrade(servers.database_url)
        with psycopg.connect(servers.database_url, autocommit=True) as db:
            db.execute("CREATE TABLE mail_channels (id bigint PRIMARY KEY, host text)")
            for statement in owners.triggers("mail_channels", key="id"):
                db.execute(statement)
            db.execute(OWNERS, (chosen.tasks,))
        for _ in range(LAPS):
            with psycopg.connect(
                servers.database_url, autocommit=True
            ) as db:  # a kept one keeps its plans for an empty table
                lap(db, chosen.tasks, rows)
    for name, laps in rows.items():
        wall, python, postgres = zip(*laps, strict=True)
        sys.stdout.write(
            f"{name:20} {median(wall):8.1f} us a task ({min(wall):.1f} to {max(wall):.1f}); CPU: {median(python):.1f} Python,"
            f" {median(postgres):.1f} PostgreSQL\n"
        )


if __name__ == "__main__":
    main()
