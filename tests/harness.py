"""Runs commands in the test's process, and steps a ticker and a worker by hand, each step at its own instant."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
from click.testing import CliRunner
from redis import Redis
from rq.job import Job

import ticker
from tests.doubles import NOW
from ticker import clock
from ticker.cli import main
from ticker.db import sql
from ticker.db.store import PostgresStore
from ticker.engine import jobs
from ticker.engine.tick import Report, tick
from ticker.queue.rq import RedisQueue
from ticker.read.tasks import RunRecord
from ticker.tasks.fields import Task

Db = psycopg.Connection[Any]
Row = dict[str, Any]
QUEUE = "rq:queue:polling"


def command(*words: str, code: int = 0) -> tuple[str, str]:
    """Runs `ticker` with these arguments in this process. Returns its standard output and error."""
    result = CliRunner().invoke(main, words)
    assert result.exit_code == code, (result.exit_code, result.output, result.exception)
    return result.stdout, result.stderr


WORKER: dict[str, Any] = {
    "functions": ["poll"], "worker": "w", "host": "h", "pid": 1, "job_id": "j", "boot": None, "uptime": None, "waits": False, "back": None,
}  # fmt: skip


PUSHED = """UPDATE ticker.tasks t SET waiting = waiting || %(occurrence)s::timestamptz
    WHERE id = %(id)s AND NOT %(occurrence)s = ANY (waiting) AND next_run IS DISTINCT FROM %(occurrence)s
    AND NOT EXISTS (SELECT FROM ticker.runs r WHERE r.task_id = t.id AND r.occurrence = %(occurrence)s)"""


def start(
    db: Db, task: Task | int, occurrence: datetime, now: datetime | None = NOW, pushed: bool = True, **given: Any
) -> Row:
    """Asks whether the job of an occurrence may start, as a worker does. With `pushed`, the row waits for it, as after a push."""
    if pushed:
        db.execute(PUSHED, {"id": id_of(task), "occurrence": occurrence})
    asked = {"task_id": id_of(task), "occurrence": occurrence, "token": str(uuid4()), "now": now, **WORKER, **given}
    while True:
        sets = of_one(asked, "task_id", "occurrence", "token", "job_id")
        [verdict] = sql.on(db, "ticker")("start", **sets)
        if verdict["refusal"] != "locked":
            return verdict


def start_planned(db: Db, task: Task | int, run_id: int, now: datetime | None = NOW, **given: Any) -> Row:
    """Asks whether a planned run may start: a retry, a piece, or a run by hand."""
    asked = {"task_id": id_of(task), "run_id": run_id, "token": str(uuid4()), "now": now, **WORKER, **given}
    [verdict] = sql.on(db, "ticker")("start_planned", **asked)
    return verdict


def finish(
    db: Db, task: Task | int, token: str, outcome: str = "succeeded", now: datetime | None = NOW, **given: Any
) -> list[Row]:
    """Records the end of a run, as a worker does. Returns no row if the run had lost its hold."""
    end = {"task_id": id_of(task), "token": token, "outcome": outcome, "reason": "", "result": None, "traceback": "",
           "output": "", "error_output": "", "age": 0, "pid": None, "suspect_count": 0,
           "now": now, **given}  # fmt: skip
    sets = of_one(end, *(name for name in end if name != "now"))
    rows = sql.on(db, "ticker")("finish", **sets)
    if rows[0]["is_left"]:
        rows = sql.on(db, "ticker")("finish_limited", **sets)
    return [row for row in rows if row["run_id"]]


def of_one(parameters: dict[str, Any], *names: str) -> dict[str, Any]:
    """Makes sets of one of these parameters, whose names get a plural."""
    return {
        f"{name}s" if name in names else name: [value] if name in names else value for name, value in parameters.items()
    }


def begun(db: Db, task: Task, occurrence: datetime, now: datetime, token: str) -> int:
    """Starts a run of an occurrence for which the task waits. Returns the run's id."""
    db.execute("UPDATE ticker.tasks SET waiting = %s WHERE id = %s", [[occurrence], task.id])
    verdict = start(db, task, occurrence, now, pushed=False, token=token)
    assert verdict["refusal"] is None
    return int(verdict["run_id"])


def handed_out(db: Db, task: Task, *items: str, occurrence: datetime = NOW, now: datetime = NOW) -> int:
    """Starts a run that makes these pieces. Returns the run's id."""
    token = str(uuid4())
    run_id = begun(db, task, occurrence, now, token)
    made = sql.on(db, "ticker")(
        "generated", task_id=task.id, token=token, items=f"[{','.join(items or ('1', '2', '3'))}]", made=0, output="",
        error_output="", pid=None, now=now,
    )  # fmt: skip
    assert [row["run_id"] for row in made] == [run_id]
    return run_id


def events(db: Db, columns: str) -> list[tuple[Any, ...]]:
    """Returns these columns of all events, in order."""
    return db.execute(f"SELECT {columns} FROM ticker.events ORDER BY id").fetchall()  # type: ignore[arg-type]


def id_of(task: Task | int) -> int:
    return task if isinstance(task, int) else task.id


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

    def __init__(self, db: Db, store: PostgresStore, queue: RedisQueue, redis: Redis) -> None:
        self.db, self.store, self.queue, self.redis = db, store, queue, redis
        self.begin = self.now = store.now()

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
        given: dict[str, Any] = {"token": str(uuid4()), "job_id": job.id}
        if planned:
            row = start_planned(self.db, task_id, planned[0], self.now, **given)
        else:
            row = start(self.db, task_id, jobs.instant(occurrence), self.now, pushed=False, **given)
        box = timedelta(milliseconds=row["box_ms"] or 0)
        return Taken(
            task_id, row["run_id"], given["token"], row["refusal"], row["run_kind"], row["attempt"] or 0, self.now, box
        )

    def end(self, taken: Taken, outcome: str, reason: str = "") -> bool:
        """False where the run had lost its hold."""
        return bool(finish(self.db, taken.task_id, taken.token, outcome, self.now, reason=reason))

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
        """What happened to tasks beside their runs, in its order, except for enough_jobs occurrences."""
        return [what for (what,) in events(self.db, "what") if what != "enough_jobs"]
