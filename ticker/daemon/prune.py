"""Deletes records that are older than their retention, in batches, next to the ticker's own work.

Two statements (`prune_runs`, `prune_events`) decide which records to delete. A lap walks once through both tables in the order
of their ids, and stops at the young records. Nothing is locked between two batches. Any number of laps may run at once.
After that, keys of limits that no task uses any more are deleted.
"""

import logging
import threading
from collections.abc import Generator, Iterator
from dataclasses import astuple, dataclass

import psycopg

from ticker import clock
from ticker.db import sql
from ticker.db.store import PostgresStore
from ticker.errors import DatabaseUnavailable, TickerError
from ticker.settings import Settings

log = logging.getLogger("ticker")

MOST = 1000  # rows of one batch
SLOW = 0.25  # seconds: if a batch takes longer, the next one is smaller
REST = 50  # the ticker's own lap rests this many times as long as the last batch took
BETWEEN_LAPS = 3600.0  # seconds
BEFORE_THE_FIRST = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Pruned:
    """Counts of deleted records: runs by their outcomes, and events. `seconds` is how long the deletion took."""

    successes: int = 0
    failures: int = 0
    drops: int = 0
    events: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Pruned") -> "Pruned":
        return Pruned(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __bool__(self) -> bool:
        return any((self.successes, self.failures, self.drops, self.events))

    def __str__(self) -> str:
        return f"successes={self.successes} failures={self.failures} drops={self.drops} events={self.events}"


def lap(store: PostgresStore, settings: Settings, *, dry: bool = False) -> Iterator[Pruned]:
    """Goes through both tables once. Yields what each batch did, after its commit; with `dry`, what it would do.

    Uses the settings `keep_successes_ms` and `keep_failures_ms`. An error in pruning the runs is raised only after the
    events have been pruned.

    No batch holds a lock for longer than a second. A batch that would is rolled back, and tried again with fewer rows. A
    single row that takes longer stays, and the walk continues after it.
    """
    failed: TickerError | None = None
    for statement, first in (("prune_runs", "next_run"), ("prune_events", "next_event")):
        try:
            yield from _walk(store, statement, first, settings, dry)
        except TickerError as error:
            failed = failed or error
    try:
        while not dry and (yield from _prune_keys(store)):
            pass
        if not dry:
            store.execute("prune_pauses", now=clock.now(), keep_ms=settings.keep_failures_ms)
    except TickerError as error:
        failed = failed or error
    if failed:
        raise failed


def _prune_keys(store: PostgresStore) -> Generator[Pruned, None, bool]:
    """Deletes keys of limits that no task uses any more. Returns whether there may be more.

    Both statements read all tasks with limits: 200,000 tasks, half of them with limits, take up to a second. Only a task that
    is about to use one of these keys waits for them.
    """
    began = clock.monotonic()
    with store.transaction() as execute:
        keys = [row["key"] for row in execute("lock_unused_keys", now=clock.now(), limit=MOST)]
        execute("prune_keys", now=clock.now(), keys=keys)
    if keys:
        yield Pruned(seconds=clock.monotonic() - began)
    return len(keys) == MOST


def _walk(store: PostgresStore, statement: str, first: str, settings: Settings, dry: bool) -> Iterator[Pruned]:
    after, limit, ended = 0, MOST, False
    while not ended:
        began = clock.monotonic()
        try:
            page = _page(store, statement, settings, after=after, limit=limit, dry=dry)
        except DatabaseUnavailable as error:
            if not isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise
            yield Pruned(seconds=clock.monotonic() - began)
            after, limit = _past(store, first, after) if limit == 1 else after, max(limit // 4, 1)
            continue
        took = clock.monotonic() - began
        yield Pruned(page["successes"], page["failures"], page["drops"], page["events"], took)
        after, ended = page["last"], page["seen"] < limit or page["young"]
        limit = max(limit // 2, 1) if took > SLOW else min(limit * 2, MOST)


def _past(store: PostgresStore, first: str, after: int) -> int:
    """Skips the next row in this lap, because even a batch of that row alone takes too long. Returns where the lap continues."""
    with store.transaction() as execute:
        id_ = execute(first, after=after)[0]["id"]
    log.warning(
        "old records stay for now: one row took too long, %s %s",
        first.removeprefix("next_"),
        id_,
        extra={"event": "prune_delayed"},
    )
    return after if id_ is None else int(id_)


def _page(store: PostgresStore, statement: str, settings: Settings, *, after: int, limit: int, dry: bool) -> sql.Row:
    with store.transaction() as execute:
        execute("prune_patience")
        return execute(
            statement, now=clock.now(), after=after, limit=limit, dry=dry,
            successes_ms=settings.keep_successes_ms, failures_ms=settings.keep_failures_ms,
        )[0]  # fmt: skip


class Pruner(threading.Thread):
    """Runs a lap every hour, in its own thread and on its own connection. No tick waits for it."""

    def __init__(self, store: PostgresStore, settings: Settings, stopping: threading.Event) -> None:
        super().__init__(name="ticker-pruner", daemon=True)
        self._store, self._settings, self._stopping = store, settings, stopping

    def run(self) -> None:
        pause = BEFORE_THE_FIRST
        while not self._stopping.wait(pause):
            self.attempt()
            self._store.close()
            pause = BETWEEN_LAPS

    def attempt(self) -> None:
        """Runs one lap. Logs errors and raises nothing, so that the next lap still runs."""
        try:
            self._lap()
        except TickerError as error:
            log.warning("old records stay for now: %s", error, extra={"event": "prune_failed"})
        except Exception:
            log.exception("old records stay for now, because of an internal error", extra={"event": "prune_failed"})

    def _lap(self) -> None:
        total = Pruned()
        for pruned in lap(self._store, self._settings):
            total += pruned
            if self._stopping.wait(REST * pruned.seconds):
                break
        if total:
            log.info("pruned %s took=%.1f", total, total.seconds, extra={"event": "pruned"})
