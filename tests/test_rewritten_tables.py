"""An administrator rewrites our tables and indexes again and again, while a ticker and a worker use them."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import ticker
from tests.running import Ticking, until, working
from ticker.db.connections import connect

ROUNDS, RUNS = 50, 60
REWRITES = [
    f"{what} ticker.{table}"
    for what in ("VACUUM FULL", "REINDEX TABLE")
    for table in ("tasks", "runs", "events", "tickers")
]
OPEN = """
SELECT (SELECT count(*) FROM ticker.runs WHERE state <> 'ended') + (SELECT count(*) FROM ticker.tasks WHERE waiting <> '{}')"""


class Rewriter(threading.Thread):
    """`rounds`: how often all tables were rewritten. A statement that PostgreSQL ends in a deadlock counts as well."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.rounds, self.over = url, 0, threading.Event()

    def run(self) -> None:
        with connect(self.url) as db:
            while not self.over.is_set():
                for statement in REWRITES:
                    try:
                        db.execute(statement)  # type: ignore[call-overload]
                    except psycopg.errors.DeadlockDetected:
                        continue
                self.rounds += 1


@contextmanager
def rewriting(url: str) -> Iterator[Rewriter]:
    thread = Rewriter(url)
    thread.start()
    try:
        yield thread
    finally:
        thread.over.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_tables_that_are_rewritten_all_the_time_cost_no_occurrence_its_record(
    environ: dict[str, str], db: psycopg.Connection[Any], database_url: str
) -> None:
    """In a deadlock with a rewrite, a tick is made again, and a start that takes too long is recorded as lost."""
    for number in range(40):
        ticker.register(db, "has.nothing", name=f"task {number}", every="1s")
    with Ticking() as ticking, working(), rewriting(database_url) as rewriter:
        until(lambda: rewriter.rounds >= ROUNDS and ended(db) >= RUNS, "so many rounds and runs", patience=150)
        db.execute("UPDATE ticker.tasks SET enabled = false")
        until(lambda: db.execute(OPEN).fetchone() == (0,), "an end for all that was pushed")
        assert ticking.stop() == 0
    outcomes = Counter(run.outcome for run in ticker.list_runs(db, limit=1000))
    assert set(outcomes) <= {"nothing_to_do", "dropped", "lost"}
    assert outcomes["nothing_to_do"] > RUNS / 2 > outcomes["lost"]


def ended(db: psycopg.Connection[Any]) -> int:
    return int(db.execute("SELECT count(*) FROM ticker.runs WHERE state = 'ended'").fetchall()[0][0])
