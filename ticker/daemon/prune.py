"""Deletes records that are older than their retention, in batches, next to the ticker's own work.

Two statements (`prune_runs`, `prune_events`) decide which records to delete. A lap walks once through both tables in
the order of their ids, and stops at the young records. Nothing is locked between two batches. Any number of laps may
run at once. A record stays until its minute was counted twice, so a lap begins with counting. At its end, it deletes
old minutes, and keys of limits that no task uses any more.
"""

import logging
import threading
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field, replace

import psycopg

from ticker import clock
from ticker.daemon.minutes import counted
from ticker.db import sql
from ticker.db.store import PostgresStore
from ticker.errors import DatabaseUnavailable, TickerError
from ticker.read import activity
from ticker.schedules.duration import HOUR, MINUTE, words
from ticker.settings import Settings

log = logging.getLogger("ticker")

MOST = 1000  # rows of one batch
SLOW = 0.25  # seconds: if a batch takes longer, the next one is smaller
REST = 50  # the ticker's own lap rests up to this many times as long as the last batch took
BETWEEN_LAPS = 3600.0  # seconds
BEFORE_THE_FIRST = 60.0  # seconds
USUAL = HOUR  # milliseconds for which a record is past its retention in any case: the next lap finds it


@dataclass(frozen=True, slots=True)
class Pruned:
    """Counts of deleted records: runs by their outcomes, and events. `seconds` is how long the deletion took.

    `overdue_ms`: the oldest of these runs was past its retention by so many milliseconds.
    """

    successes: int = 0
    failures: int = 0
    drops: int = 0
    events: int = 0
    seconds: float = 0.0
    overdue_ms: int = field(default=0, compare=False)

    def __add__(self, other: "Pruned") -> "Pruned":
        total = Pruned(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))
        return replace(total, overdue_ms=max(self.overdue_ms, other.overdue_ms))

    def __bool__(self) -> bool:
        return any((self.successes, self.failures, self.drops, self.events))

    def __str__(self) -> str:
        return f"successes={self.successes} failures={self.failures} drops={self.drops} events={self.events}"


def lap(store: PostgresStore, settings: Settings, *, dry: bool = False) -> Iterator[Pruned]:
    """Goes through both tables once. Yields what each batch did, after its commit; with `dry`, what it would do.

    Uses the settings `keep_successes_ms` and `keep_failures_ms`. An error in pruning the runs is raised only after the
    events have been pruned.

    No batch holds a lock for longer than a second. A batch that would is rolled back, and tried again with fewer rows.
    A single row that takes longer stays, and the walk continues after it.
    """
    failed: TickerError | None = None
    walks = (
        _walk(store, "prune_runs", "next_run", settings, dry),
        _walk(store, "prune_events", "next_event", settings, dry),
    )
    minutes = (Pruned() for _ in counted(store))
    rest = (_prune_minutes(store), _prune_keys(store), _prune_pauses(store, settings))
    for part in walks if dry else (minutes, *walks, *rest):
        began = clock.monotonic()
        try:
            for pruned in part:
                yield replace(pruned, seconds=clock.monotonic() - began)
                began = clock.monotonic()
        except TickerError as error:
            failed = failed or error
    if failed:
        raise failed


def _prune_minutes(store: PostgresStore) -> Iterator[Pruned]:
    kept = {"minutes": activity.KEPT[activity.MINUTE], "hours": activity.KEPT[activity.HOUR]}
    while store.execute("prune_minutes", limit=MOST, **kept)[0]["count"]:
        yield Pruned()


def _prune_keys(store: PostgresStore) -> Iterator[Pruned]:
    """Deletes keys of limits that no task uses any more.

    Both statements read all tasks with limits: 200,000 tasks, half of them with limits, take up to a second. Only a
    task that is about to use one of these keys waits for them.
    """
    keys = [""] * MOST
    while len(keys) == MOST:
        with store.transaction() as execute:
            keys = [row["key"] for row in execute("lock_unused_keys", limit=MOST)]
            execute("prune_keys", keys=keys)
        if keys:
            yield Pruned()


def _prune_pauses(store: PostgresStore, settings: Settings) -> Iterator[Pruned]:
    store.execute("prune_pauses", keep_ms=settings.keep_failures_ms)
    yield Pruned()


def _walk(store: PostgresStore, statement: str, first: str, settings: Settings, dry: bool) -> Iterator[Pruned]:
    after, limit, ended = 0, MOST, False
    while not ended:
        began = clock.monotonic()
        try:
            page = _page(store, statement, settings, after=after, limit=limit, dry=dry)
        except DatabaseUnavailable as error:
            if not isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise
            yield Pruned()
            after, limit = _past(store, first, after) if limit == 1 else after, max(limit // 4, 1)
            continue
        took = clock.monotonic() - began
        yield Pruned(page["successes"], page["failures"], page["drops"], page["events"], overdue_ms=page["overdue_ms"])
        after, ended = page["last"], page["seen"] < limit or page["young"]
        limit = max(limit // 2, 1) if took > SLOW else min(limit * 2, MOST)


def _past(store: PostgresStore, first: str, after: int) -> int:
    """Skips the next row in this lap, because even a batch of that row alone takes too long. Returns where the lap
    continues.
    """
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
        execute("set_patience", timeout="1s")  # no longer, because of its locks
        return execute(
            statement, after=after, limit=limit, dry=dry,
            successes_ms=settings.keep_successes_ms, failures_ms=settings.keep_failures_ms,
        )[0]  # fmt: skip


def rest(overdue_ms: int) -> float:
    """Returns how many times as long as a batch took the lap rests after it: the older its backlog, the shorter, but at
    least once.
    """
    return max(REST * min(1.0, USUAL / max(overdue_ms, 1)), 1.0)


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
            if self._stopping.wait(rest(total.overdue_ms) * pruned.seconds):
                break
        if total.overdue_ms > max(self._settings.keep_successes_ms // 10, 2 * USUAL):
            log.warning(
                "old records: the oldest was past its retention (TICKER_KEEP_SUCCESSES, TICKER_KEEP_FAILURES) by %s;"
                " for now, the ticker deletes faster",
                words(total.overdue_ms // MINUTE * MINUTE),
                extra={"event": "prune_behind"},
            )
        if total:
            log.info("pruned %s took=%.1f", total, total.seconds, extra={"event": "pruned"})
