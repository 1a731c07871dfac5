"""Gives existing tasks a phase in their interval, as `ticker.register(..., spread=True)` does for new ones."""

from collections.abc import Iterator
from dataclasses import dataclass

from ticker import clock
from ticker.db.store import PostgresStore

BATCH = 5_000  # rows that are locked at a time


@dataclass(frozen=True, slots=True)
class Chosen:
    """Selects interval tasks by the type of their owner and by their function. None selects all."""

    owner_type: str | None = None
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Counts of the selected tasks: all, those with a phase, and the most due in one tick, before and after the spread."""

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
    """Spreads the selected tasks in batches, commits each, and yields its size. It can be interrupted and repeated."""
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
