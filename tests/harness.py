"""A ticker and a worker that a test plays by hand, each step at an instant of its own; the servers are the real ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
from redis import Redis
from rq.job import Job

import ticker
from ticker import clock
from ticker.db import sql
from ticker.db.store import PostgresStore
from ticker.engine import jobs
from ticker.engine.tick import Report, tick
from ticker.queue.rq import RedisQueue
from ticker.read.tasks import RunRecord
from ticker.tasks.fields import Task

QUEUE = "rq:queue:polling"


@dataclass(frozen=True)
class Taken:
    """What the start statement said of a job that was taken from the queue."""

    task_id: int
    run_id: int
    token: str
    refusal: str | None
    kind: str
    attempt: int
    started_at: datetime
    box: timedelta


class Played:
    """`now` is where the play stands: seconds behind its beginning, which is the real time, as a trigger reads that."""

    def __init__(self, db: psycopg.Connection[Any], store: PostgresStore, queue: RedisQueue, redis: Redis) -> None:
        self.db, self.store, self.queue, self.redis = db, store, queue, redis
        self.begin = self.now = store.now()
        self._execute = sql.on(db, "ticker")

    @contextmanager
    def clock(self) -> Iterator[None]:
        """Whatever asks for the time inside is told `now`."""
        with clock.use(lambda: self.now):
            yield

    def at(self, seconds: float) -> datetime:
        """Goes there."""
        self.now = self.begin + timedelta(seconds=seconds)
        return self.now

    def since_begin(self, instant: datetime) -> float:
        return (instant - self.begin).total_seconds()

    def tick(self) -> Report:
        return tick(self.store, self.queue, self.now)

    def fail_behind_the_next_push(self) -> None:
        """Of a task every minute: a start that is 50 s late, whose end comes when the next occurrence waits; 45 s pass."""
        self.tick()
        self.at(50)
        [late] = self.take()
        self.at(60)
        self.tick()
        self.end(late, "failed")
        self.at(105)

    def take(self) -> list[Taken]:
        """Starts the jobs that wait, oldest first."""
        taken = []
        while id_ := self.redis.lpop(QUEUE):
            job = Job.fetch(id_.decode(), connection=self.redis)
            taken.append(self._start(job))
            job.delete()
        return taken

    def _start(self, job: Job) -> Taken:
        task_id, occurrence, *planned = job.args
        token = str(uuid4())
        common = {"task_id": task_id, "functions": ["poll"], "token": token, "now": self.now, "worker": "w", "host": "h",
                  "pid": 1, "job_id": job.id, "boot": None, "uptime": None}  # fmt: skip
        if planned:
            [row] = self._execute("start_planned", run_id=planned[0], **common)
        else:
            [row] = self._execute("start", occurrence=jobs.instant(occurrence), **common)
        box = timedelta(milliseconds=row["box_ms"] or 0)
        return Taken(task_id, row["run_id"], token, row["refusal"], row["run_kind"], row["attempt"] or 0, self.now, box)

    def end(self, taken: Taken, outcome: str, reason: str = "") -> bool:
        """False where the run had lost its hold."""
        return bool(self._execute(
            "finish", task_id=taken.task_id, token=taken.token, outcome=outcome, reason=reason, result=None, traceback="",
            output="", error_output="", age=0, pid=None, now=self.now,
        ))  # fmt: skip

    def run(self, seconds: float, outcome: str = "failed", reason: str = "", lasts: float = 1) -> Taken:
        """The tick there pushes one job, which starts at once and ends so; a tick sees to that."""
        self.at(seconds)
        self.tick()
        [taken] = self.take()
        assert taken.refusal is None, taken
        self.at(seconds + lasts)
        assert self.end(taken, outcome, reason)
        self.tick()
        return taken

    def task(self) -> Task:
        [task] = ticker.list_tasks(self.db)
        return task

    def runs(self) -> list[RunRecord]:
        """All of them, in their order."""
        return ticker.list_runs(self.db)[::-1]

    def column(self, name: str) -> Any:
        """Of the only task; what people are not shown."""
        return self.db.execute(f"SELECT {name} FROM ticker.tasks").fetchone()[0]  # type: ignore[index, call-overload]

    def put(self, **columns: Any) -> None:
        """Writes into the rows of all tasks by hand."""
        assignments = ", ".join(f"{name} = %({name})s" for name in columns)
        self.db.execute(f"UPDATE ticker.tasks SET {assignments}", columns)  # type: ignore[arg-type]

    def events(self) -> list[str]:
        """What happened to tasks beside their runs, in its order."""
        return [what for (what,) in self.db.execute("SELECT what FROM ticker.events ORDER BY id").fetchall()]
