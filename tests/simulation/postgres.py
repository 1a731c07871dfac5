"""The same over real servers: the public door, the statements that a worker sends, RQ's own keys. No worker runs."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, TypeVar

from psycopg.rows import dict_row
from redis import Redis
from rq.exceptions import NoSuchJobError
from rq.job import Job as RQJob

import ticker
from tests.doubles import GROUPED, NOWHERE, RunRow, TaskRow, Uptime
from tests.simulation.pauses import FUNCTIONS, LEAST_BUDGET
from tests.simulation.verdict import Job, Verdict
from tests.slots import Limit
from ticker import clock
from ticker.db import sql
from ticker.db.connections import connect, translated
from ticker.db.store import PostgresStore
from ticker.engine import jobs
from ticker.errors import RowLocked
from ticker.model import Kind, Outcome, RunKind
from ticker.queue.rq import RedisQueue

R = TypeVar("R", TaskRow, RunRow)

QUEUE = "polling"
VERDICT = ("refusal", "run_id", "function", "every_ms", "tolerance_ms", "box_ms", "grace_ms")


class PostgresTables:
    """The rows of a database, which is emptied first, and the jobs of a Redis database, which is emptied, too.

    Nobody waits long for a lock here: nobody could let go of it meanwhile.
    """

    retries = 2

    def __init__(self, url: str, redis: Redis) -> None:
        self._url, self._redis = url, redis
        self._opened = ExitStack()
        self._opened.enter_context(small_budgets())
        self._stores: list[PostgresStore] = []
        self.queue = RedisQueue(redis)
        self._db = connect(url, name="simulation")
        for table in ("tasks", "runs", "tickers"):  # a vacuum that cuts an emptied table locks it from all
            self._db.execute(f"ALTER TABLE ticker.{table} SET (autovacuum_enabled = off)")
        for table in ("tasks", "runs", "tickers", "limited_keys", "limits", "slots", "pauses"):
            self._db.execute(f"DELETE FROM ticker.{table}")
        self._db.execute(
            "SELECT setval('ticker.tasks_id_seq', 1, false)"
        )  # the place in the hours goes by the id, as in the double
        self._db.execute(  # one task in each job, since a worker takes jobs of one task here
            "INSERT INTO ticker.functions (name, batch, concurrency, announced_at) VALUES (%s, 1, 2, clock_timestamp())"
            " ON CONFLICT DO NOTHING", [GROUPED],
        )  # fmt: skip
        self._db.execute("SET lock_timeout = '100ms'; SET synchronous_commit = off")
        self._execute = sql.on(self._db, "ticker")
        redis.flushdb()

    def close(self) -> None:
        for store in self._stores:
            store.close()
        self._db.close()
        self._opened.close()

    def another_store(self) -> PostgresStore:
        store = PostgresStore(self._url)
        store.uptime = lambda now=None: NOWHERE  # type: ignore[method-assign]  # until the simulation says otherwise
        wake = store.wake

        def woken(now: datetime, limit: int) -> int:
            count = wake(now, limit)
            self._resumed_at(now)
            return count

        store.wake = woken  # type: ignore[method-assign]
        self._stores.append(store)
        return store

    def heartbeat(self, ticker_id: str, at: datetime, now: datetime) -> None:
        """The real statement; it reads the server's clock, so here the history's stands in its place."""
        text = sql.statements("ticker")["heartbeat"].replace("clock_timestamp()", "%(instant)s::timestamptz")
        self._db.execute(text, {"id": ticker_id, "host": "h", "pid": 1, "now": at, "report": "{}", "instant": now})

    # -------------------------------------------------------------------------------------- registered and edited

    def register(self, now: datetime, name: str, *, first: datetime | None = None, **said: Any) -> int:
        known = self._db.execute("SELECT FROM ticker.tasks WHERE name = %s", [name]).fetchone()
        with translated(), clock.use(lambda: now):
            task = ticker.register(self._db, said.pop("function", "poll"), name=name, first=first, **said)
        if known is None:  # the column's default is the server's clock
            self._db.execute("UPDATE ticker.tasks SET created_at = %s WHERE id = %s", [now, task.id])
        return task.id

    def edit(self, now: datetime, task_id: int, **changes: Any) -> None:
        with translated(), clock.use(lambda: now):
            ticker.edit(self._db, task_id, **changes)
        self._resumed_at(now)

    def pause(self, now: datetime, task_id: int, until: datetime | None) -> None:
        with translated(), clock.use(lambda: now):
            ticker.pause(self._db, task_id, by="someone", until=until)

    def resume(self, now: datetime, task_id: int) -> None:
        with translated(), clock.use(lambda: now):
            ticker.resume(self._db, task_id)
        self._resumed_at(now)

    def _resumed_at(self, now: datetime) -> None:
        """The trigger that writes it reads the server's clock."""
        self._db.execute(
            "UPDATE ticker.tasks SET resumed_at = %s WHERE resumed_at > clock_timestamp() - interval '1 minute'"
            " AND resumed_at <= clock_timestamp()", [now],
        )  # fmt: skip

    def pause_all(self, now: datetime, scope: str, value: str, until: datetime | None) -> int:
        with translated(), clock.use(lambda: now):
            return ticker.pause_all(self._db, **named(scope, value), by="someone", until=until).id

    def resume_all(self, now: datetime, scope: str, value: str) -> None:
        with translated(), clock.use(lambda: now):
            ticker.resume_all(self._db, **named(scope, value))

    def delete(self, now: datetime, task_id: int) -> None:
        with translated(), self._db.transaction():
            ticker.unregister(self._db, task_id)
            self._db.execute(  # the trigger reads the server's clock
                "UPDATE ticker.runs SET ended_at = %(now)s, created_at = CASE kind WHEN 'scheduled' THEN %(now)s ELSE created_at END"
                " WHERE task_id = %(id)s AND reason = 'gone'", {"now": now, "id": task_id},
            )  # fmt: skip

    def run_now(self, now: datetime, task_id: int, once_within: float | None = None) -> int:
        with translated(), clock.use(lambda: now):
            return ticker.run_now(self._db, task_id, once_within=once_within)[0]

    def stop(self, now: datetime, task_id: int) -> None:
        which = "SELECT id FROM ticker.runs WHERE task_id = %s AND state <> 'ended' ORDER BY id"
        with translated(), self._db.transaction(), clock.use(lambda: now):
            for (run_id,) in self._db.execute(which, [task_id]).fetchall():
                ticker.stop(self._db, run_id, by="someone")

    def limit(self, now: datetime, key: str, limit: Limit) -> None:
        with translated(), clock.use(lambda: now):
            ticker.limit(self._db, key, **limit.arguments)

    # -------------------------------------------------------------------------------------------- started and ended

    def start(self, now: datetime, job: Job, token: str, here: Uptime = NOWHERE) -> Verdict:
        boot, uptime = here
        which: dict[str, Any]
        common = {
            "boot": boot, "uptime": uptime, "functions": list(FUNCTIONS), "now": now, "worker": token, "host": "", "pid": 1,
            "waits": False, "back": None,
        }  # fmt: skip
        if job.run_id is not None:
            name, which = (
                "start_planned",
                {"task_id": job.task_id, "run_id": job.run_id, "token": token, "job_id": job.id},
            )
        else:
            name, which = (
                "start",
                {"task_ids": [job.task_id], "occurrences": [job.occurrence], "tokens": [token], "job_ids": [job.id]},
            )
        with translated():
            [row] = self._execute(name, **which, **common)
            refuse_locked(row["refusal"] == "locked")
        return Verdict(**{name: row[name] for name in VERDICT}, limits=tuple(row["limits"] or ()))

    def finish(
        self, now: datetime, task_id: int, token: str, outcome: Outcome, reason: str = "", *, alone: bool = False
    ) -> bool:
        with translated():
            end = {
                "task_ids": [task_id], "tokens": [token], "outcomes": [outcome], "reasons": [reason], "results": [None],
                "tracebacks": [""], "outputs": [""], "error_outputs": [""], "ages": [0.0], "pids": [None],
                "suspect_counts": [int(alone)], "now": now,
            }  # fmt: skip
            [row] = self._execute("finish", **end)
            if row["is_left"]:
                [row] = self._execute("finish_limited", **end)
            refuse_locked(row["is_locked"])
        return bool(row["run_id"])

    def again(self, now: datetime, task_id: int, token: str, after: float) -> datetime | None:
        with translated():
            rows = self._execute("again", task_id=task_id, token=token, after_ms=round(1000 * after), now=now)
        return rows[0]["next_run"] if rows else None

    def close_key(self, now: datetime, key: str, for_: timedelta, run_id: int | None) -> None:
        with translated():
            for_ms = for_ // timedelta(milliseconds=1)
            [row] = self._execute("close_key", key=key, run_id=run_id, for_ms=for_ms, age=0.0, now=now)
            refuse_locked(row["is_locked"])

    def checkpoint(self, task_id: int, token: str, value: Any) -> bool:
        with translated():
            return bool(self._execute("checkpoint", task_id=task_id, token=token, cursor=json.dumps(value)))

    # ------------------------------------------------------------------------------------------------- the queue

    def take(self) -> Job | None:
        """As a worker: ids whose job is gone are passed over."""
        while (id_ := self.drop_from_list()) is not None:
            with suppress(NoSuchJobError):
                args = RQJob.fetch(id_, connection=self._redis).args
                self._redis.hset(RQJob.key_for(id_), "status", "started")
                if len(args) == 3:
                    return Job(id_, args[0], None, args[2])
                return Job(id_, args[0], jobs.instant(args[1]), None)
        return None

    def end_job(self, job_id: str, *, failed: bool = False) -> None:
        if not failed:
            self._redis.delete(RQJob.key_for(job_id))
        elif self._redis.exists(RQJob.key_for(job_id)):
            self._redis.hset(RQJob.key_for(job_id), "status", "failed")

    def drop_from_list(self) -> str | None:
        popped = self._redis.lpop(f"rq:queue:{QUEUE}")
        return popped.decode() if isinstance(popped, bytes) else None

    def bring_forward(self, job_id: str) -> None:
        self._redis.lrem(f"rq:queue:{QUEUE}", 1, job_id)
        self._redis.lpush(f"rq:queue:{QUEUE}", job_id)

    def spoil(self, queue: str) -> None:
        """From now on the queue takes nothing."""
        self._redis.set(f"rq:queue:{queue}", "of another type")

    def wipe(self) -> None:
        self._redis.flushdb()

    # ------------------------------------------------------------------------------------------------- looked at

    def task_rows(self) -> list[TaskRow]:
        return [
            TaskRow(**{**row, "kind": Kind(row["kind"]), "waiting": tuple(row["waiting"]),
                       "limits": tuple(row["limits"]) if row["limits"] else None, "last_outcome": _outcome(row["last_outcome"])})
            for row in self._read("tasks", TaskRow)
        ]  # fmt: skip

    def run_rows(self) -> list[RunRow]:
        return [
            RunRow(**{**row, "kind": RunKind(row["kind"]), "outcome": _outcome(row["outcome"])})
            for row in self._read("runs", RunRow)
        ]

    def _read(self, table: str, shape: type[R]) -> list[dict[str, Any]]:
        columns = ", ".join(field.name for field in fields(shape))
        with self._db.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(f"SELECT {columns} FROM ticker.{table} ORDER BY id").fetchall()


@contextmanager
def small_budgets() -> Iterator[None]:
    """The rule of the least budget is another one here, so that a handful of tasks meets it."""
    _, rules = sql._document("ticker")
    usual, rules["least_budget"] = rules["least_budget"], str(LEAST_BUDGET)  # type: ignore[index]
    sql.statements.cache_clear()
    try:
        yield
    finally:
        rules["least_budget"] = usual  # type: ignore[index]
        sql.statements.cache_clear()


def named(scope: str, value: str) -> dict[str, str]:
    return {} if scope == "all" else {scope: value}


def _outcome(text: str | None) -> Outcome | None:
    return Outcome(text) if text else None


def refuse_locked(is_locked: bool) -> None:
    if is_locked:
        raise RowLocked("another transaction has locked the row")
