"""Plays a timing table, row by row, through the real tick, a real RQ queue and the real wrapper, on a frozen clock.

Nothing sleeps: the body of the running task plays the rows that follow, ticks included, until its own end.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from freezegun.api import FrozenDateTimeFactory
from rq import Queue, SimpleWorker

from tests.doubles import job_id
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.queue.rq import RedisQueue
from wrappers import Run

BASE = datetime(2000, 1, 1, 5, tzinfo=UTC)
TABLES = Path(__file__).parent / "scenarios" / "timing-tables.md"


@dataclass(frozen=True)
class Row:
    """One line of a table; times are instants, None for `-`."""

    at: datetime
    event: str
    next_run: datetime | None
    last_run: datetime | None
    checked: datetime | None


def tables(text: str = TABLES.read_text(encoding="utf-8")) -> dict[str, list[Row]]:
    """The tables by their headings, those with a column of times."""
    found: dict[str, list[Row]] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        lines = [
            [cell.strip() for cell in line.strip("|\n").split("|")] for line in section.splitlines() if line[:1] == "|"
        ]
        if lines and lines[0][0] == "at":
            rows = [Row(_time(at), event, *map(_time, times)) for at, event, *times in lines[2:]]
            found[section.splitlines()[0]] = rows
    return found


def _time(text: str) -> Any:
    if text == "-":
        return None
    minutes, seconds = text.split(":")
    return BASE + timedelta(minutes=int(minutes), seconds=int(seconds))


class Replay:
    """`play` plays all rows; an assertion names the row that differs."""

    def __init__(self, frozen: FrozenDateTimeFactory, store: PostgresStore, queue: RedisQueue,
                 db: psycopg.Connection[Any], redis: Any, task_id: int) -> None:  # fmt: skip
        self.frozen, self.store, self.queue, self.db, self.redis, self.task_id = (
            frozen,
            store,
            queue,
            db,
            redis,
            task_id,
        )
        self.rows: Iterator[Row] = iter(())
        self.current: Row | None = None
        self.jobs: list[str] = []

    def play(self, rows: list[Row]) -> None:
        self.rows = iter(rows)
        for row in self.rows:
            self.one(row)

    def one(self, row: Row) -> None:
        self.current = row
        self.frozen.move_to(row.at)
        subject, _, what = row.event.partition(" ")
        if subject == "tick":
            self.tick(what)
        elif what in ("begins", "is dropped"):
            self.take(subject)
        if what != "begins":  # then the body has played on
            self.compare(row)

    def tick(self, what: str) -> None:
        now = datetime.now(UTC)
        occurrence = self.task()["next_run"]
        report = tick(self.store, self.queue, now)
        assert report.enqueued == (0 if what == "enqueues nothing" else 1), self.current
        if report.enqueued:
            self.jobs.append(job_id(self.task_id, occurrence))
            assert what == f"enqueues A{len(self.jobs)}", self.current

    def take(self, subject: str) -> None:
        """A worker takes the next job: it must be the one that the table names."""
        expected = self.jobs[int(subject[1:]) - 1]
        assert Queue("polling", connection=self.redis).get_job_ids()[0] == expected, self.current
        before = self.runs()
        SimpleWorker(["polling"], connection=self.redis).work(burst=True, max_jobs=1, logging_level="ERROR")
        assert self.runs() > before, self.current

    def body(self, run: Run) -> None:
        """What the task's function does: see that it began as the table says, then play on until its own end."""
        assert self.current is not None
        self.compare(self.current)
        for row in self.rows:
            if row.event.endswith(" ends"):
                self.frozen.move_to(row.at)
                return
            if row.event.endswith("forced to end"):
                while not run.quota.exceeded:
                    self.frozen.tick(1)
                assert datetime.now(UTC) == row.at, row
                return
            self.one(row)

    def compare(self, row: Row) -> None:
        task = self.task()
        assert (task["next_run"], task["last_run"]) == (row.next_run, row.last_run), row
        if row.event.endswith((" begins", " is dropped")):
            checked = self.db.execute(
                "SELECT checked_last_run, outcome, reason FROM ticker.runs ORDER BY id DESC"
            ).fetchone()
            assert checked is not None and checked[0] == row.checked, row
            assert (checked[1:] == ("dropped", "too_early")) == row.event.endswith("dropped"), row

    def task(self) -> dict[str, Any]:
        found = self.db.execute("SELECT next_run, last_run FROM ticker.tasks WHERE id = %s", [self.task_id]).fetchone()
        assert found is not None
        return {"next_run": found[0], "last_run": found[1]}

    def runs(self) -> int:
        found = self.db.execute("SELECT count(*) FROM ticker.runs").fetchone()
        assert found is not None
        return int(found[0])
