"""The limits of a fault run with `--limits`: which keys tasks have, and how the limits of these keys change.

The keys of a task are also in its kwargs. So each run records for itself with which keys it started.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain, cycle, repeat

import psycopg

import ticker
from tests.faults.journal import Journal
from tests.faults.polls import CLOSED_KEY
from tests.faults.stage import Stage
from tests.slots import Limit

Keys = tuple[str, ...]
NONE: Keys = ()
HELD = CLOSED_KEY
CHOICES: tuple[Keys, ...] = (
    ("host:a",), ("host:b",), (HELD,), ("host:a", "host:b"), ("host:b", "host:a"), ("account:1", "host:a"), ("account:2",),
    (HELD, "account:3"),
)  # fmt: skip


LIMITS = {
    "host:a": Limit(2),
    "host:b": Limit(count=2, burst=2),
    HELD: Limit(3, 120, 60, 3),
    "account:*": Limit(1),
}
LOWERED = {
    "host:a": Limit(1),
    "host:b": Limit(count=2, seconds=3, burst=1),
    HELD: Limit(1, 60, 60, 1),
    "account:*": Limit(1, 1, 2, 1),
}
RAISED = {
    "host:a": Limit(6),
    "host:b": Limit(count=6, burst=4),
    HELD: Limit(6, 360, 60, 6),
    "account:*": Limit(3),
}


def in_turn(is_wanted: bool) -> Iterator[Keys]:
    """Yields the keys of one task after the other: every second task has some, if that `is_wanted`."""
    return cycle(chain.from_iterable((NONE, keys) for keys in CHOICES)) if is_wanted else repeat(NONE)


def declare_all(db: psycopg.Connection[object], journal: Journal) -> None:
    for key, limit in LIMITS.items():
        _declare(db, journal, key, limit)


def change(stage: Stage, key: str, limit: Limit) -> None:
    """Declares a limit, again and again until that is answered."""
    stage.insist(lambda db: _declare(db, stage.journal, key, limit))


def _declare(db: psycopg.Connection[object], journal: Journal, key: str, limit: Limit) -> None:
    about = {"id": time.monotonic_ns(), "key": key, **asdict(limit)}
    journal.write("limit", phase="sent", **about)
    ticker.limit(db, key, **limit.arguments)
    journal.write("limit", phase="acked", **about)
