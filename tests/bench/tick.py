"""The tick against its limits and against what teams write: `python -m tests.bench tick [--tasks N] [--due N] [--rounds N]`.

In each round, one after the other, over the same due tasks of the same table:

tick      the production tick, with its two push threads and its sweep
one thread  the same with one
claim     its two statements of a due task alone, batch by batch: PostgreSQL's share, nothing is read from the answers
push      its call to Redis alone, with all bytes ready: Redis' share
core      what teams write: SQLAlchemy Core claims the rows, RQ's `enqueue_many` pushes the jobs

The limit that nobody passes with one thing after another is claim + push.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from redis import Redis
from rq import Queue
from sqlalchemy import MetaData, Table, any_, create_engine, func, select, update

from tests.bench.figures import Figure, Stage, middle, parser, show, stage, timed
from ticker.daemon.tick_job import PushThreads
from ticker.db import sql
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.engine import jobs
from ticker.engine.passes import TickOptions, alone
from ticker.engine.tick import tick
from ticker.model import DueTask, Kind
from ticker.queue import bulk
from ticker.queue.rq import RedisQueue
from ticker.settings import Settings

LOOK_AHEAD = 750  # milliseconds, as of a tick of 30 s


class Rivals:
    def __init__(self, on: Stage, due: int) -> None:
        self.on, self.due, self.batch = on, due, Settings().batch
        self.push_threads = PushThreads()
        self.store, self.queue = PostgresStore(on.database_url), RedisQueue.from_url(on.redis_url)
        self.store.clamp(None, self.batch)  # the look at every row, which comes once in 120 ticks

    def tick(self, push_threads: Callable[..., Any]) -> float:
        self.queue.push([])
        return timed(
            lambda: self._check(
                tick(
                    self.store,
                    self.queue,
                    options=TickOptions(look_ahead=LOOK_AHEAD, batch=self.batch, push_threads=push_threads),
                ).enqueued
            )
        )

    def claim(self) -> float:
        statements = sql.statements("ticker")
        with connect(self.on.database_url) as db:
            parameters = {"now": datetime.now(UTC), "look_ahead": LOOK_AHEAD, "limit": self.batch, "without": []}
            return timed(lambda: self._check(self._claims(db, statements, parameters)))

    def _claims(self, db: Any, statements: Any, parameters: dict[str, Any]) -> int:
        """Nothing is read but the ids, which the second statement needs, straight from libpq's answer."""
        count = 0
        while True:
            with db.transaction():
                found = db.execute(statements["claim_due"], parameters).pgresult
                ids = [found.get_value(row, 0).decode() for row in range(found.ntuples)]
                if ids:
                    arrays = {"ids": ids, "next_runs": [TOMORROW] * len(ids), "batch_jobs": ["NULL"] * len(ids)}
                    db.execute(
                        statements["advance"], {name: "{" + ",".join(all_) + "}" for name, all_ in arrays.items()}
                    )
            count += len(ids)
            if len(ids) < self.batch:
                return count

    def push(self) -> float:
        now = datetime.now(UTC)
        tasks = [
            DueTask(
                n, now + timedelta(microseconds=n), "polling", "mail.fetch", 300_000, 150_000, 1000, kind=Kind.INTERVAL
            )
            for n in range(1, self.due + 1)
        ]
        with Redis.from_url(self.on.redis_url) as redis:
            shared = bulk.shared_fields(redis, 0, 3600)
            script = redis.script_load(bulk.PUSH)
            specs = [jobs.for_occurrence("bench123", task) for task in tasks]
            connection = redis.connection_pool.get_connection()
            calls = [
                connection.pack_command("EVALSHA", script, 0, *bulk.arguments(specs[n : n + self.batch], shared))
                for n in range(0, self.due, self.batch)
            ]

            def all_calls() -> None:
                for call in calls:
                    connection.send_packed_command(call)
                    connection.read_response()

            took = timed(all_calls)
            redis.connection_pool.release(connection)
            assert redis.llen("rq:queue:polling") == self.due
        return took

    def core(self) -> float:
        engine = create_engine(self.on.database_url.replace("postgresql://", "postgresql+psycopg://", 1))
        tasks = Table("tasks", MetaData(), schema="ticker", autoload_with=engine)
        with Redis.from_url(self.on.redis_url) as redis:
            queue = Queue("polling", connection=redis)
            took = timed(lambda: self._check(self._core(engine, tasks, queue)))
        engine.dispose()
        return took

    def _core(self, engine: Any, tasks: Table, queue: Queue) -> int:
        due = (
            select(tasks.c.id).where(tasks.c.enabled, tasks.c.owner_active, tasks.c.paused_by.is_(None), tasks.c.next_run <= func.now())
            .order_by(tasks.c.next_run).limit(self.batch).with_for_update(skip_locked=True)
        )  # fmt: skip
        claim = (
            update(tasks).where(tasks.c.id == any_(func.array(due.scalar_subquery())))
            .values(next_run=func.now() + tasks.c.every_ms * timedelta(milliseconds=1))
            .returning(tasks.c.id, tasks.c.function, tasks.c.every_ms, tasks.c.box_ms)
        )  # fmt: skip
        count = 0
        while True:
            with engine.begin() as connection:
                rows = connection.execute(claim).all()
                now = datetime.now(UTC).timestamp()
                queue.enqueue_many([
                    Queue.prepare_data("wrappers.run", args=(row.id, int(now)), timeout=181, ttl=4200, result_ttl=0,
                                       failure_ttl=3600, description=row.function, job_id=f"bench123-t{row.id}-{int(now)}")
                    for row in rows
                ])  # fmt: skip
            count += len(rows)
            if len(rows) < self.batch:
                return count

    def _check(self, count: int) -> None:
        assert count == self.due, f"{count} of {self.due} due tasks"


TOMORROW = (datetime.now(UTC) + timedelta(days=1)).isoformat()


def measure(on: Stage, due: int, rounds: int) -> list[Figure]:
    rivals = Rivals(on, due)
    ways: dict[str, Callable[[], float]] = {
        "tick": lambda: rivals.tick(rivals.push_threads), "one thread": lambda: rivals.tick(alone),
        "claim": rivals.claim, "push": rivals.push, "core": rivals.core,
    }  # fmt: skip
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            on.make_due(due)
            found[name].append(way())
    figures = [
        middle(f"{name}, {due:,} due", [1e6 * t / due for t in times], "us/task") for name, times in found.items()
    ]
    limit = [c + p for c, p in zip(found["claim"], found["push"], strict=True)]
    shares = {
        "times as fast as core": [c / t for c, t in zip(found["core"], found["tick"], strict=True)],
        "of the limit (claim + push)": [m / t for m, t in zip(limit, found["tick"], strict=True)],
        "of the limit, one thread": [m / t for m, t in zip(limit, found["one thread"], strict=True)],
    }
    return figures + [
        Figure(f"tick, {due:,} due: {name}", median(values), "x", None, f"{min(values):.2f} to {max(values):.2f}")
        for name, values in shares.items()
    ]


def main() -> None:
    options = parser(__doc__, tasks=1_000_000, due=0, rounds=5)
    chosen = options.parse_args()
    with stage(chosen.tasks) as on:
        figures = [
            figure
            for due in ([chosen.due] if chosen.due else [100_000, 10_000])
            for figure in measure(on, due, chosen.rounds)
        ]
    show(figures, chosen.json, {"tasks": chosen.tasks})


if __name__ == "__main__":
    main()
