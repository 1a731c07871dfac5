"""What it costs that no state stays in a session: `python -m tests.bench sessions [--tasks N] [--starts N] [--rounds N]`.

In each round, one after the other:

session      connections that are set up once, by start-up options: what a pooler in transaction mode does not bear
transaction  ours: each transaction is set up with its own statements, in the same round trip

Both make ticks of all tasks, and starts with their ends, on a connection that is kept.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from statistics import median
from typing import Any
from unittest.mock import patch

import psycopg

import wrappers
from tests.bench.figures import Figure, Stage, middle, parser, show, stage, timed
from ticker.db.connections import SETTINGS
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.model import Outcome
from ticker.queue.rq import RedisQueue
from ticker.settings import Settings
from wrappers.pipeline import start
from wrappers.pipeline.context import Call
from wrappers.pipeline.database import Database

WARM, MEASURED = 7, 5  # ticks of each round: the first ones prepare and plan each statement on the new connection
OPTIONS = " ".join(
    f"-c {name}={value}" for name, value in {**SETTINGS, "default_transaction_isolation": "read\\ committed"}.items()
)


class SetUpOnce(psycopg.Connection[Any]):
    """A connection as it was before: its session has the settings, and a statement alone needs no BEGIN."""

    has_pooler, is_alive = False, True


def connect(url: str, *, name: str = "ticker", planned_once: bool = False) -> SetUpOnce:
    options = f"{OPTIONS} -c plan_cache_mode=force_generic_plan" if planned_once else OPTIONS
    return SetUpOnce.connect(
        url, autocommit=True, client_encoding="utf8", application_name=name, options=options,
        prepare_threshold=0 if planned_once else 5,
    )  # fmt: skip


class Rivals:
    def __init__(self, on: Stage, count: int) -> None:
        self.on, self.count = on, count
        self.queue = RedisQueue.from_url(on.redis_url)
        on.db.execute("UPDATE ticker.tasks SET function = 'noop'")

    @contextmanager
    def session(self) -> Iterator[None]:
        with patch("ticker.db.connections.connect", connect), patch("wrappers.pipeline.database.connect", connect):
            yield

    transaction = staticmethod(nullcontext)

    def ticks(self) -> float:
        """Seconds."""
        with closing(PostgresStore(self.on.database_url)) as store:
            seconds = [self._tick(store) for _ in range(WARM + MEASURED)]
        return median(seconds[WARM:])

    def _tick(self, store: PostgresStore) -> float:
        self.on.make_due(self.on.tasks)
        return timed(lambda: tick(store, self.queue))

    def starts(self) -> float:
        """Seconds for each."""
        self.on.db.execute("TRUNCATE ticker.runs")
        self.on.db.execute(
            "UPDATE ticker.tasks SET waiting = ARRAY[next_run], last_run = NULL,"
            " last_occurrence = NULL, running_until = NULL, run_token = NULL"
        )
        rows = self.on.db.execute("SELECT id, next_run FROM ticker.tasks ORDER BY id LIMIT %s", [self.count]).fetchall()
        with closing(Database(self.on.database_url, "ticker")) as database:
            calls = [
                Call(task_id=id_, occurrence=occurrence, planned=None, job_id="j", worker="w", rq_timeout=None,
                     settings=Settings(), database=database)
                for id_, occurrence in rows
            ]  # fmt: skip
            start_and_end(calls[0])
            return timed(lambda: [start_and_end(call) for call in calls[1:]]) / (len(calls) - 1)


def start_and_end(call: Call) -> None:
    asked = start.ask(call)
    assert not isinstance(asked, str), asked
    assert asked.start
    assert asked.database.finish(asked.task_id, asked.start.token, Outcome.SUCCEEDED, reason="")


def main() -> None:
    options = parser(__doc__, tasks=3000, starts=500, rounds=7).parse_args()
    wrappers.task("noop")(lambda: None)
    figures: list[Figure] = []
    with stage(options.tasks) as on:
        rivals = Rivals(on, options.starts)
        for name, unit, scale in (("ticks", "ms", 1e3), ("starts", "us", 1e6)):
            measured: Callable[[], float] = getattr(rivals, name)
            found: dict[str, list[float]] = {"session": [], "transaction": []}
            for _ in range(options.rounds):
                for way, values in found.items():
                    with getattr(rivals, way)():
                        values.append(measured() * scale)
            figures += [middle(f"{name}, {way}", values, unit) for way, values in found.items()]
            shares = [ours / before for before, ours in zip(*found.values(), strict=True)]
            figures.append(Figure(f"{name}: transaction by session", median(shares), "times"))
    show(figures, options.json, {"tasks": options.tasks, "starts": options.starts, "rounds": options.rounds})
