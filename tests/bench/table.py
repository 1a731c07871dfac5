"""How the table of tasks is best kept: `python -m tests.bench table [--tasks N] [--ticks N]`.

The same simulated ticks over tables that differ in `fillfactor` and in autovacuum's settings: the time of a
tick, of its starts and ends (the real statements, 100 runs in each), the size of the table, the log written, and the share of updates that touched
no index (HOT). Simulated time runs ahead of real time, and so autovacuum looks as much more often.
"""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from statistics import median
from uuid import uuid4

import psycopg

import wrappers
from tests.bench.figures import Figure, Stage, parser, show, stage, timed
from tests.bench.usage import KEEPS_LOG, Meter
from ticker import clock
from ticker.daemon.push_threads import PushThreads
from ticker.db.store import PostgresStore
from ticker.engine.tick import TickOptions, tick
from ticker.model import Outcome
from ticker.queue.rq import RedisQueue
from ticker.settings import Settings
from wrappers.pipeline import start
from wrappers.pipeline.context import Call
from wrappers.pipeline.database import Database
from wrappers.sandbox import limits
from wrappers.sandbox.handoff import End, PendingEnd

EVERY, TICK, GROUP = 300, 30, 100  # seconds, seconds, runs whose starts, and whose ends, are one statement
PHASES = "UPDATE ticker.tasks SET next_run = %(now)s::timestamptz + (id %% %(every)s) * interval '1 s'"
WAITING = "SELECT id, waiting[1] FROM ticker.tasks WHERE waiting <> '{}' ORDER BY waiting[1], id"

VARIANTS = {
    "as PostgreSQL has it": "fillfactor = 100",
    "fillfactor 85": "fillfactor = 85",
    "fillfactor 70": "fillfactor = 70",
    "autovacuum at 5%": "autovacuum_vacuum_scale_factor = 0.05",
    "autovacuum at 5%, unthrottled": "autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0",
    "fillfactor 85, autovacuum at 5%, unthrottled": (
        "fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0"
    ),
}
FACTS = """
SELECT pg_relation_size(relid) / 1e6, pg_indexes_size(relid) / 1e6, 100.0 * n_tup_hot_upd / greatest(n_tup_upd, 1), autovacuum_count
FROM pg_stat_all_tables WHERE relid = 'ticker.tasks'::regclass"""


class Ticks:
    """Plays ticks. After each tick, starts and ends all its jobs at once, with the statements of workers."""

    def __init__(self, on: Stage) -> None:
        self.on, self.now = on, datetime.now(UTC).replace(microsecond=0)
        self.ticks: list[float] = []
        self.worked: list[float] = []
        self.runs: list[int] = []
        on.db.execute(PHASES, {"every": EVERY, "now": self.now})

    def play(self, ticks: int) -> None:
        push_threads = PushThreads()
        options = TickOptions(look_ahead=0, beat=1000 * TICK, push_threads=push_threads)
        with (
            closing(PostgresStore(self.on.database_url)) as store, closing(RedisQueue.from_url(self.on.redis_url)) as queue,
            closing(Database(self.on.database_url, "ticker")) as database, clock.use(lambda: self.now),
        ):  # fmt: skip
            for _ in range(ticks):
                self.now += timedelta(seconds=TICK)
                self.ticks.append(timed(lambda: tick(store, queue, self.now, options)))
                self.on.redis.flushall()
                self.now += timedelta(seconds=1)
                calls = list(self._calls(database))
                self.runs.append(len(calls))
                self.worked.append(timed(lambda calls=calls: self._work(database, calls)))  # type: ignore[misc]
                self.now -= timedelta(seconds=1)

    def _calls(self, database: Database) -> Iterator[Call]:
        for task_id, occurrence in self.on.db.execute(WAITING).fetchall():
            yield Call(task_id=task_id, occurrence=occurrence, planned=None, job_id="j", worker="w", rq_timeout=None,
                       settings=Settings(), database=database)  # fmt: skip

    def _work(self, database: Database, calls: list[Call]) -> None:
        for first in range(0, len(calls), GROUP):
            begun = start.ask_all(group := calls[first : first + GROUP], [str(uuid4()) for _ in group])
            ends = [
                PendingEnd(call.task_id, call.start.run_id, call.start.token, End(Outcome.SUCCEEDED, "", at=limits.now()))
                for call in begun if isinstance(call, Call) and call.start
            ]  # fmt: skip
            assert len(ends) == len(group) and all(database.finish_all(ends))


def look_often(db: psycopg.Connection[object], seconds: int) -> None:
    db.execute(f"ALTER SYSTEM SET autovacuum_naptime = {seconds}")
    db.execute("SELECT pg_reload_conf()")


def play(name: str, settings: str, tasks: int, ticks: int) -> list[Figure]:
    with stage(tasks, KEEPS_LOG) as on:
        look_often(on.db, 5)
        on.db.execute(f"ALTER TABLE ticker.tasks SET ({settings})")
        on.db.execute("VACUUM FULL ticker.tasks")
        played = Ticks(on)
        with closing(Meter(on)) as meter, meter.measured() as used:
            played.play(ticks)
        on.db.execute("SELECT pg_stat_force_next_flush()")
        [(heap, indexes, hot, vacuums)] = on.db.execute(FACTS).fetchall()
        took = [1000 * seconds for seconds in played.ticks]
        late = len(took) // 2  # by then the table has the shape that it keeps
        note = f"table {heap:,.0f} MB, indexes {indexes:,.0f} MB, HOT {hot:.0f}%, {vacuums} autovacuums"
        return [
            Figure(f"{name}: a tick", median(took[late:]), "ms", max(took[late:]), note),
            Figure(f"{name}: its starts and ends", 1000 * median(played.worked[late:]), "ms", 1000 * max(played.worked[late:])),
            Figure(f"{name}: log per run with its tick", used.log / sum(played.runs) / 1000, "kB", None, "without images"),
        ]  # fmt: skip


def main() -> None:
    options = parser(__doc__, tasks=100_000, ticks=40).parse_args()
    wrappers.task("mail.fetch")(lambda: None)
    figures = [
        figure for name, settings in VARIANTS.items() for figure in play(name, settings, options.tasks, options.ticks)
    ]
    show(figures, options.json, {"tasks": options.tasks, "ticks": options.ticks})


if __name__ == "__main__":
    main()
