"""How long `why`, `journal` and `drops` take with a million runs: `python -m tests.bench.ledger [--rows N] [--explain]`.

A real PostgreSQL with its default memory, with runs of 10,000 tasks of 5,000 owners over ten days: one in twenty was
dropped, one in fifty failed; one task has 43,200 runs, a month of minutes. Prints medians as a markdown table, and with
--explain the nodes of the plans, with the rows and the time of each.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from statistics import median
from time import perf_counter
from typing import Any

import psycopg

import ticker
from ticker import embedded, migrations
from ticker.db.connections import connect
from ticker.db.sql import statements
from ticker.read import journal as read_journal
from ticker.settings import psycopg_url
from ticker.tasks.queries import LISTS

TASKS, BUSY, BUSY_RUNS, RARE = 10_000, 7, 43_200, "sensors"

FILL_TASKS = f"""
INSERT INTO ticker.tasks (owner_type, owner_id, name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue,
    next_run, retries)
SELECT 'mail_channels', (n %% {TASKS // 2})::text, 'task ' || n, 'poll.' || n %% 20, 'interval', 60000, 5000, 30000,
    1000, 'polling', clock_timestamp(), 3
FROM generate_series(1, {TASKS}) n"""

FILL_RUNS = f"""
INSERT INTO ticker.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, attempt, state, outcome,
    reason, started_at, until, ended_at, created_at, checked_last_run, checked_at, every_ms, tolerance_ms, worker, host,
    pid, job_id, output)
SELECT task, 'task ' || task, 'poll.' || task %% 20,
    CASE WHEN n %% 100000 = 1 THEN '{RARE}' WHEN task %% 10 = 0 THEN 'feeds' ELSE 'mail_channels' END,
    (task %% {TASKS // 2})::text, 'scheduled', at, 1, 'ended',
    CASE WHEN n %% 20 = 1 THEN 'dropped' WHEN n %% 50 = 0 THEN 'failed' WHEN n %% 50000 = 3 THEN 'killed'
         WHEN n %% 3 = 0 THEN 'nothing_to_do' ELSE 'succeeded' END,
    CASE WHEN n %% 20 = 1 THEN (ARRAY['too_early', 'duplicate', 'expired', 'paused'])[1 + n / 20 %% 4]
         WHEN n %% 50 = 0 THEN 'OSError: no route to host' ELSE '' END,
    CASE WHEN n %% 20 <> 1 THEN at END, CASE WHEN n %% 20 <> 1 THEN at + interval '31 s' END, at + interval '1 s', at,
    at - interval '40 s', at, 60000, 5000, 'worker-1', 'host-1', 4711, 't' || task || '-' || n, repeat('fetched 3 mails ', 4)
FROM generate_series(1, %(rows)s::int) n, LATERAL (
    SELECT CASE WHEN n %% (%(rows)s::int / {BUSY_RUNS} + 1) = 0 THEN {BUSY} ELSE 1 + n * 7919::bigint %% {TASKS} END AS task,
        %(now)s::timestamptz - (%(rows)s::int - n) * (interval '10 days' / %(rows)s::int) AS at) x"""

FILL_EVENTS = f"""
INSERT INTO ticker.events (at, task_id, task_name, owner_type, owner_id, what, words)
SELECT %(now)s::timestamptz - (50000 - n) * interval '17 s', 1 + n %% {TASKS}, 'task ' || 1 + n %% {TASKS}, 'mail_channels',
    (n %% {TASKS // 2})::text, (ARRAY['failed', 'recovered'])[1 + n %% 2], 'OSError: no route to host'
FROM generate_series(1, 50000) n"""

INDEXES = """
SELECT indexrelname, pg_relation_size(indexrelid) / 1048576 FROM pg_stat_user_indexes
WHERE schemaname = 'ticker' AND relname IN ('runs', 'events') AND pg_relation_size(indexrelid) > 1048576 ORDER BY 1"""


def fill(db: psycopg.Connection[Any], rows: int, now: datetime) -> None:
    db.execute("SET work_mem = '64MB'")
    for statement in (FILL_TASKS, FILL_RUNS, FILL_EVENTS):
        db.execute(statement, {"rows": rows, "now": now})  # type: ignore[arg-type]
    db.execute("VACUUM ANALYZE ticker.tasks, ticker.runs, ticker.events")


def questions(db: psycopg.Connection[Any], now: datetime) -> Iterator[tuple[str, Callable[[int], Any]]]:
    """Each with a number, so that no two ask the same."""
    day, journal = timedelta(days=1), ticker.journal
    yield "why", lambda n: ticker.why(db, 1 + n * 97 % TASKS)
    yield "why --at", lambda n: ticker.why(db, 1 + n * 97 % TASKS, at=now - 5 * day)
    yield "why, of 43,200 runs", lambda n: ticker.why(db, BUSY)
    yield "why --at, of 43,200 runs", lambda n: ticker.why(db, BUSY, at=now - n % 10 * day)
    yield "journal", lambda n: journal(db)
    yield "journal --since", lambda n: journal(db, since=now - timedelta(minutes=n))
    yield "journal --task", lambda n: journal(db, task=1 + n * 97 % TASKS)
    yield "journal --task, of 43,200 runs", lambda n: journal(db, task=BUSY)
    yield "journal --task --outcome killed, of 43,200", lambda n: journal(db, task=BUSY, outcome="killed")
    yield "journal --owner", lambda n: journal(db, owner=f"mail_channels:{n * 97 % (TASKS // 2)}")
    yield "journal --owner-type", lambda n: journal(db, owner_type="mail_channels")
    yield "journal --owner-type, of 10 runs", lambda n: journal(db, owner_type=RARE)
    for outcome in ("succeeded", "failed", "killed", "dropped"):
        yield f"journal --outcome {outcome}", lambda n, outcome=outcome: journal(db, outcome=outcome)  # type: ignore[misc]
    yield "journal --reason expired", lambda n: journal(db, reason="expired")
    yield "journal --reason clock, of which there is none", lambda n: journal(db, reason="clock")
    for by in read_journal.GROUPS:
        yield f"drops --by {by} --since 1d", lambda n, by=by: ticker.drops(db, by=by, since=now - day)  # type: ignore[misc]
        yield f"drops --by {by}, of ten days", lambda n, by=by: ticker.drops(db, by=by)  # type: ignore[misc]


def timed(ask: Callable[[int], Any], rounds: int) -> list[float]:
    """Milliseconds of each answer, the first one, which warms the cache, left out."""
    found = []
    for n in range(rounds + 1):
        began = perf_counter()
        ask(n)
        found.append(1000 * (perf_counter() - began))
    return found[1:]


EXPLAINED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("last_occurrences", {"task_id": BUSY, "limit": 20}),
    ("occurrences_around", {"task_id": BUSY, "at": None, "late": 4_200_000, "limit": 20}),
    ("journal", {"outcomes": read_journal.ENDED, "reasons": read_journal.REASONS, "since": None, "limit": 100,
                 "owner_types": ["feeds", "mail_channels", RARE]}),
    ("journal", {"outcomes": read_journal.ENDED, "reasons": read_journal.REASONS, "since": None, "limit": 100,
                 "owner_types": [RARE]}),
    ("journal_of_task", {"task_id": BUSY, "outcomes": ["killed"], "reasons": [], "since": None, "limit": 100}),
    ("journal_of_owner", {"owner_type": "mail_channels", "owner_id": "97", "outcomes": read_journal.ENDED,
                          "reasons": read_journal.REASONS, "since": None, "limit": 100}),
    ("journal_of_events", {"task_id": None, "owner_type": None, "owner_id": None, "since": None, "limit": 100}),
    ("drops", {"by": "owner", "since": None, "limit": 20}),
)  # fmt: skip


def explain(db: psycopg.Connection[Any], now: datetime) -> None:
    with psycopg.ClientCursor(db) as cursor:
        for name, parameters in EXPLAINED:
            given = parameters | ({"at": now - timedelta(days=5)} if "at" in parameters else {})
            cursor.execute("EXPLAIN (ANALYZE, COSTS OFF) " + statements("ticker", LISTS)[name], given)
            print(f"\n{name} { ({k: v for k, v in given.items() if v and k not in ('outcomes', 'reasons')}) }")
            for [line] in cursor.fetchall():
                if re.search(r"Scan|Sort|Time|Aggregate", line) and "never executed" not in line:
                    print(f"    {line}")


def ask_all(url: str, now: datetime, rounds: int) -> Iterator[tuple[str, list[float]]]:
    """Each question on a connection of its own, as each command has one."""
    with connect(url) as db:
        count = len(list(questions(db, now)))
    for number in range(count):
        with connect(url) as db:
            name, ask = list(questions(db, now))[number]
            yield name, timed(ask, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--explain", action="store_true")
    options = parser.parse_args()
    with embedded.servers(syncs=True) as servers:
        migrations.upgrade(servers.database_url)
        url, now = psycopg_url(servers.database_url), datetime.now(UTC)
        with psycopg.connect(url, autocommit=True) as db:
            fill(db, options.rows, now)
            print(f"| asked of {options.rows:,} runs | median | slowest |\n|---|---|---|")
            for name, found in ask_all(url, now, options.rounds):
                print(f"| {name} | {median(found):.1f} ms | {max(found):.1f} ms |", flush=True)
            print("\nindexes in MB:", ", ".join(f"{name} {size}" for name, size in db.execute(INDEXES).fetchall()))
            if options.explain:
                explain(db, now)


if __name__ == "__main__":
    main()
