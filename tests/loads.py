"""Synthetic loads for "enough workers", and the rows that a simulated hour of each leaves in the tables."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from tests.truth import GRACE, LATE, TICK, Task, Truth

HOUR = 3600.0
JUDGED = 2 * HOUR  # played for a verdict; its first quarter does not count


@dataclass(frozen=True)
class Load:
    """Tasks, the workers that work on them while durations are measured, and how functions and keys are shared."""

    tasks: Callable[[], list[Task]]
    workers: dict[str, int]
    groups: dict[str, tuple[int, int]] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)

    def play(self, seconds: float, **workers: int) -> Truth:
        return Truth(self.tasks(), self.workers | workers, groups=self.groups, limits=self.limits).play(seconds)

    def lateness(self, queue: str, workers: int) -> float:
        """The 99th percentile with so many workers in a queue, and enough in the others."""
        truth = self.play(JUDGED, **dict.fromkeys(self.workers, 1000) | {queue: workers})
        is_limited = all(task.key for task in truth.tasks if task.queue == queue)
        return truth.lateness(queue, limited=is_limited, since=JUDGED / 4)

    def is_enough(self, queue: str, workers: int) -> bool:
        return self.lateness(queue, workers) < LATE


def polls(count: int, low: float, high: float, every: float = 60.0, **fields: Any) -> list[Task]:
    function = fields.pop("function", "mail.fetch")
    return [Task(function, every, lambda chance: chance.uniform(low, high), **fields) for _ in range(count)]


def spread(tasks: list[Task]) -> list[Task]:
    for number, task in enumerate(tasks):
        task.phase = task.next_run = number * 0.6180339887 * task.every % task.every
    return tasks


def hanging(count: int) -> list[Task]:
    """The server never answers: each run lasts until its box ends it."""
    return [Task("mail.fetch", 60.0, lambda _: 1e9) for _ in range(count)]


LOADS = {
    "uniform": Load(lambda: polls(200, 1.0, 2.0), {"polling": 1}),
    "two hanging": Load(lambda: [*hanging(2), *polls(198, 0.2, 0.4)], {"polling": 1}),
    "mixed queues": Load(
        lambda: [
            *spread(polls(400, 0.1, 0.9)), *spread(polls(40, 10.0, 50.0, 600.0, function="report.build")),
            *polls(90, 0.3, 0.5, queue="mail"), *spread(polls(60, 8.0, 12.0, 300.0, queue="mail", function="mail.send")),
        ],
        {"polling": 2, "mail": 8},
    ),
    "groups": Load(lambda: polls(3000, 0.5, 1.5), {"polling": 2}, groups={"mail.fetch": (50, 20)}),
    "all at once": Load(lambda: polls(1000, 0.3, 0.9, 300.0), {"polling": 6}),
    "limits": Load(lambda: polls(108, 1.9, 2.1, key="api"), {"polling": 6}, limits={"api": 4}),
    # More than its limit allows: it never catches up, with however many workers.
    "held back": Load(lambda: polls(300, 1.9, 2.1, key="api"), {"polling": 6}, limits={"api": 4}),
}  # fmt: skip


def write(db: Any, load: Load, truth: Truth) -> None:
    """Writes the tasks and records of a simulated time that ends now."""
    [(now,)] = db.execute("SELECT clock_timestamp()").fetchall()
    begin = now - timedelta(seconds=truth.now)
    ids = {id(task): number for number, task in enumerate(truth.tasks, 1)}
    db.execute("SET session_replication_role TO replica")  # these ends are not late
    with db.cursor() as cursor:
        with cursor.copy(
            "COPY ticker.tasks (name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue, next_run, spread, limits) FROM STDIN"
        ) as copy:
            for task in truth.tasks:
                copy.write_row((
                    f"task {ids[id(task)]}", task.function, "interval", int(1000 * task.every), int(1000 * task.tolerance),
                    int(1000 * task.box), int(1000 * GRACE), task.queue, at(begin, task.next_run), task.phase is not None,
                    [task.key] if task.key else None,
                ))  # fmt: skip
        with cursor.copy(
            "COPY ticker.runs (task_id, function, queue, kind, occurrence, state, outcome, reason, started_at, ended_at) FROM STDIN"
        ) as copy:
            for one in truth.records:
                if one.ended <= truth.now:
                    copy.write_row((
                        ids[id(one.task)], one.task.function, one.task.queue, "scheduled",
                        at(begin, one.due) + timedelta(microseconds=len(truth.records) % 7), "ended", one.outcome, one.reason,
                        None if one.started is None else at(begin, one.started), at(begin, one.ended),
                    ))  # fmt: skip
    db.execute("SET session_replication_role TO origin")
    for name, (batch, concurrency) in load.groups.items():
        db.execute(
            "INSERT INTO ticker.functions (name, batch, concurrency, announced_at) VALUES (%s, %s, %s, clock_timestamp())",
            [name, batch, concurrency],
        )
    for key, places in load.limits.items():
        db.execute("INSERT INTO ticker.limited_keys (key, concurrency) VALUES (%s, %s)", [key, places])
    crews = [[[queue], count, 0] for queue, count in truth.employed.items()]
    db.execute(
        "INSERT INTO ticker.tickers (id, pid, started_at, last_tick_at, last_report) VALUES (%s, 1, %s, %s, %s)",
        [uuid4(), begin, at(begin, truth.now // TICK * TICK), json.dumps({"crews": crews})],
    )


def at(begin: datetime, seconds: float) -> datetime:
    return begin + timedelta(seconds=seconds)
