"""Provides a connection to PostgreSQL that opens on first use. It belongs to the worker or a horse, never to both."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from threading import RLock
from typing import Any, TypeVar

import psycopg

from ticker import clock, settings
from ticker.db import sql
from ticker.db.connections import Connection, connect, first_line, translated
from ticker.errors import RowLocked, TickerError
from wrappers.pipeline import registry
from wrappers.sandbox import limits
from wrappers.sandbox.handoff import PendingEnd

T = TypeVar("T")

log = logging.getLogger("ticker.run")

LOCKED_AT_MOST = 2.0  # seconds
LOCK_PAUSE = 0.02  # seconds
LOCKED = "a row is locked by another transaction"

RECORDED = ("outcome", "reason", "pid", "suspect_count", "result", "traceback", "output", "error_output")
"""What the tables keep of an end."""


def age(left: PendingEnd, now: datetime | None) -> float:
    """Returns the seconds since a run ended; 0.0 if `clock.use` substitutes a clock."""
    return 0.0 if now else max(limits.now() - left.end.at, 0.0)


def while_locked(step: Callable[[], T]) -> T:
    """Repeats a step while it raises RowLocked, for up to 2 s. The statement itself must not wait for the row."""
    give_up_at = clock.monotonic() + LOCKED_AT_MOST
    while True:
        try:
            return step()
        except RowLocked:
            if clock.monotonic() > give_up_at:
                raise
        time.sleep(LOCK_PAUSE)


class Database:
    """Runs named statements, each in its own transaction. Connects on first use, and again after an error.

    Threads take turns: the runs of a group store their cursors on the same connection that requests the starts.
    """

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        self._url = url
        self._connection: Connection | None = None
        self._turn = RLock()

    @classmethod
    def from_environment(cls) -> "Database":
        config = settings.from_environment()
        return cls(config.require_database(), config.schema)

    def open(self) -> None:
        """Connects now, so that a deadline that starts next does not include the time to connect. Raises
        DatabaseUnavailable.
        """
        with self._turn:
            if self._connection is not None and not self._connection.is_alive:
                self.close()
            if self._connection is None:
                with translated():
                    self._connection = connect(self._url, name="ticker-run", planned_once=True)

    def execute(self, name: str, /, **parameters: Any) -> list[sql.Row]:
        """Runs one statement. Discards the connection if an error or a signal interrupts it."""
        with self._turn:
            self.open()
            try:
                with translated():
                    return sql.on(self._connection, self.schema)(name, **parameters)
            except BaseException:
                self.close()
                raise

    def finish(self, left: PendingEnd) -> bool:
        """Ends a run. Returns False if it no longer holds its task and nothing was written.

        With a `run_id`, the end also corrects a run that was declared lost meanwhile. Texts that the tables refuse are
        left out: a run without an end would be worse.
        """
        try:
            return while_locked(lambda: self._end(left))
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            log.warning(
                "the texts of a run of task=%s cannot be stored: %s",
                left.task_id,
                first_line(error),
                extra={"event": "texts_refused"},
            )
            bare = replace(left.end, result=None, traceback="", output="", error_output="")
            return while_locked(lambda: self._end(left._replace(end=bare)))

    def _end(self, left: PendingEnd) -> bool:
        [is_written] = self.finish_all([left])
        if is_written is None:
            raise RowLocked(LOCKED)
        if is_written or not left.run_id:
            return is_written
        run = {"task_id": left.task_id, "token": left.token, "run_id": left.run_id}
        now = clock.now()
        end = {name: getattr(left.end, name) for name in RECORDED}
        if not self.execute("finish_late", **run, **end, age=age(left, now), now=now):
            return False
        log.warning(
            "end recorded late task=%s run=%s: %s, %.1f s ago",
            left.task_id,
            left.run_id,
            left.end.outcome,
            age(left, now),
            extra={"event": "end_recorded_late"},
        )
        return True

    def finish_all(self, ends: Sequence[PendingEnd]) -> list[bool | None]:
        """Ends runs of different tasks together. Returns whether each end was written.

        False means that the run no longer holds its task. None means that another transaction has locked the row.
        """
        self.open()  # first, so that the ages do not include the time to connect
        now = clock.now()

        def sets(ends: Sequence[PendingEnd]) -> dict[str, Any]:
            recorded = {f"{name}s": [getattr(left.end, name) for left in ends] for name in RECORDED}
            which = {"task_ids": [left.task_id for left in ends], "tokens": [left.token for left in ends]}
            return recorded | which | {"ages": [age(left, now) for left in ends], "now": now}

        is_limited = any(left.has_keys or left.end.suspect_count for left in ends)
        rows = [] if is_limited else self.execute("finish", **sets(ends))
        answers = {str(row["token"]): row for row in rows if not row["is_left"]}
        if more := [left for left in ends if left.token not in answers]:
            answers |= {str(row["token"]): row for row in self.execute("finish_limited", **sets(more))}
        found = [answers[left.token] for left in ends]
        self._wake_for_room({left.task_id: row for left, row in zip(ends, found, strict=True) if row["run_id"]})
        return [None if row["is_locked"] else row["run_id"] is not None for row in found]

    def _wake_for_room(self, ended: Mapping[int, sql.Row]) -> None:
        """Wakes tickers that listen, if others waited for the end of a run of these tasks."""
        if ended and settings.from_environment().wake:
            keys = list({key for row in ended.values() for key in row.get("keys", ())})
            was_alone = any(row["was_alone"] for row in ended.values())
            which = {"task_ids": [*ended], "keys": keys, "was_alone": was_alone}
            self.execute("wake_for_room", schema=self.schema, **which)

    def wake_tickers(self) -> None:
        """Wakes tickers that listen, because tasks may have room, or look for some."""
        if settings.from_environment().wake:
            self.execute("wake_up", schema=self.schema)

    def close_key(self, key: str, run_id: int, for_ms: int | None, *, at: float) -> None:
        """Lets no run of the key start for a time after the instant `at` of `limits.now`."""
        self.open()  # first, so that the age does not include the time to connect
        now = clock.now()

        def write() -> None:
            age = 0.0 if now else max(limits.now() - at, 0.0)
            [row] = self.execute("close_key", key=key, run_id=run_id, for_ms=for_ms, age=age, now=now)
            if row["is_locked"]:
                raise RowLocked(LOCKED)
            log.info("key %s is closed until %s", key, row["closed_until"], extra={"event": "key_closed"})

        while_locked(write)

    def outcome_of(self, run_id: int, token: str) -> str | None:
        """Returns the outcome of the run with this token, its state if it has none, or None if it has no record."""
        rows = self.execute("outcome_of", run_id=run_id, token=token)
        return rows[0]["outcome"] if rows else None

    def hand_out(self, left: PendingEnd) -> bool:
        """Records the last pieces of work of a run, which waits for all of its pieces. Returns the same as `finish`."""
        end = left.end
        which = {"task_id": left.task_id, "token": left.token, "items": end.pieces, "made": end.made}
        return bool(self.execute("generated", **which, output=end.output, error_output=end.error_output, pid=end.pid))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def announce(queues: Sequence[str], *, survives: type[TickerError]) -> bool:
    """Announces the functions and queues of this worker, and how a job may run the tasks of each function. Returns
    whether it did.

    After an error of the kind `survives`, this only logs a warning.
    """
    known = registry.functions().values()
    try:
        with translated(), closing(Database.from_environment()) as database:
            database.execute(
                "announce",
                names=[function.name for function in known],
                batches=[function.batch for function in known],
                concurrencies=[function.concurrency for function in known],
                repeatables=[function.repeatable for function in known],
                queues=list(queues),
            )
    except survives as error:
        log.warning("this worker's functions were not announced: %s", error, extra={"event": "announcement_failed"})
        return False
    return True
