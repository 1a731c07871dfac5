"""Gives tasks that exist already a place of their own in their interval (`spread=True` of `ticker.register`)."""

from collections.abc import Iterator
from dataclasses import dataclass

from ticker import clock
from ticker.db.store import PostgresStore

BATCH = 5_000  # rows that are locked at a time


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which interval tasks; None: of every type, of every function."""

    owner_type: str | None = None
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Of the chosen tasks: how many there are and have a place, and the most that are due within one tick, now and then."""

    tasks: int
    placed: int
    most_now: int
    most_then: int


def plan(store: PostgresStore, chosen: Chosen, tick_ms: int) -> Plan:
    [row] = store.execute(
        "spread_plan", owner_type=chosen.owner_type, function=chosen.function, tick_ms=tick_ms, now=clock.now()
    )
    return Plan(**row)


def spread(store: PostgresStore, chosen: Chosen) -> Iterator[int]:
    """Batch after batch, each committed; how many tasks it gave a place. It may be broken off, and repeated."""
    after = 0
    while True:
        with store.transaction() as execute:
            rows = execute("spread", owner_type=chosen.owner_type, function=chosen.function, after=after, limit=BATCH)
            ids = [row["id"] for row in rows]
            execute("place", ids=ids, now=clock.now())
        if not ids:
            return
        after = max(ids)
        yield len(ids)
