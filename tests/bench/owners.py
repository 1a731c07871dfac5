"""How fast owners are listed, and what default tasks add to a new owner, and how fast owners go: `python -m tests.bench.owners [--tasks N]`.

A PostgreSQL of its own; two tasks per owner, of which some fail, are late, or are paused. (The list reads no records of
runs.) Prints a markdown table, and with --explain the plan of the first page.
"""

import argparse
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import psycopg

import ticker
from ticker import embedded, migrations, owners
from ticker.db.sql import statements

FILL = """
INSERT INTO ticker.tasks (owner_type, owner_id, name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue, next_run,
    failures, paused_by)
SELECT 'channels', n / 2, n %% 2, 'poll', 'interval', 60000, 5000, 30000, 1000, 'polling',
    clock_timestamp() + CASE WHEN n %% 400 = 7 THEN -600 ELSE 60 END * interval '1 s', (n %% 100 = 3)::int,
    CASE WHEN n %% 100 = 5 THEN 'ann' END
FROM generate_series(1, %(tasks)s) n"""


def milliseconds(rounds: int, call: Callable[[], object]) -> list[float]:
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        found.append(1000 * (time.perf_counter() - began))
    return found


def show(what: str, found: list[float]) -> None:
    print(f"| {what} | {median(found):.1f} ms | {max(found):.1f} ms |", flush=True)


def listed(db: psycopg.Connection[Any], rounds: int) -> None:
    for filters in ({}, {"failing": True}, {"late": True}, {"paused": True}):
        found = milliseconds(rounds, lambda filters=filters: ticker.list_owners(db, **filters))  # type: ignore[misc]
        show(f"100 owners {' '.join(filters) or '(trouble first)'}", found)
    last = ticker.list_owners(db, limit=5000)[-1]
    show("100 owners behind the 5,000th", milliseconds(rounds, lambda: ticker.list_owners(db, after=last)))
    db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp() - interval '1 h'")
    show("100 owners while all are late", milliseconds(max(rounds // 3, 3), lambda: ticker.list_owners(db)))


def added(db: psycopg.Connection[Any]) -> None:
    """Statements that insert 10,000 owners: without a trigger, with one, and with two default tasks each."""
    db.execute("CREATE TABLE phones (id bigint PRIMARY KEY)")
    insert = "INSERT INTO phones SELECT g FROM generate_series(%s::bigint, %s::bigint) g"
    firsts = iter(range(1, 10_000_000, 10_000))

    def ten_thousand() -> None:
        first = next(firsts)
        db.execute(insert, [first, first + 9999])

    show("10,000 new owners, no trigger", milliseconds(3, ten_thousand))
    db.execute("\n".join(owners.triggers("phones")))
    show("10,000 new owners, triggers", milliseconds(3, ten_thousand))
    wanted = [ticker.Wanted(function=name, every="1m") for name in ("fetch", "clean")]
    ticker.defaults(db, "phones", wanted)
    show("10,000 new owners, two default tasks each", milliseconds(3, ten_thousand))


def deleted(db: psycopg.Connection[Any]) -> None:
    """Statements that delete 10,000 owners with two tasks each, of which none waits, or all do."""
    db.execute("CREATE TABLE channels (id bigint PRIMARY KEY)")
    db.execute("\n".join(owners.triggers("channels")))

    def delete(waiting: str) -> float:
        db.execute("DELETE FROM ticker.tasks; INSERT INTO channels SELECT generate_series(1, 10000)")
        db.execute(FILL, {"tasks": 20_001})
        db.execute(f"DELETE FROM ticker.tasks WHERE owner_id NOT IN (SELECT id::text FROM channels); {waiting}")  # type: ignore[arg-type]
        db.execute("VACUUM ANALYZE ticker.tasks")
        return milliseconds(1, lambda: db.execute("DELETE FROM channels"))[0]

    show("10,000 owners deleted, two tasks each", [delete("") for _ in range(5)])
    waits = "UPDATE ticker.tasks SET waiting = ARRAY[clock_timestamp()]"
    show("10,000 owners deleted, two tasks each, all of which wait", [delete(waits) for _ in range(5)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--explain", action="store_true")
    options = parser.parse_args()
    with embedded.postgres(syncs=True) as server, psycopg.connect(server.url, autocommit=True) as db:
        os.environ["DATABASE_URL"] = server.url
        migrations.upgrade(server.url)
        db.execute(FILL, {"tasks": options.tasks})
        db.execute("VACUUM ANALYZE")
        if options.explain:
            values = {"now": None, "owner_type": None, "failing": False, "late": False, "paused": False, "late_ms": 60_000,
                      "after_rank": 0, "after_type": "", "after_id": "", "limit": 100}  # fmt: skip
            for (line,) in db.execute("EXPLAIN (ANALYZE, COSTS OFF) " + statements("ticker")["list_owners"], values):  # type: ignore[arg-type]
                print(line)
        print(f"| {options.tasks:,} tasks | median | slowest |\n|---|---|---|")
        listed(db, options.rounds)
        added(db)
        deleted(db)


if __name__ == "__main__":
    main()
