"""Implements the ticker's ports with the tables: one short transaction per batch, on its own connection.

The statements are in the folder `sql`, in the order of a row's life.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, cast

from ticker import clock
from ticker.db import installation, sql
from ticker.db.batch import PostgresBatch
from ticker.db.connections import ONE_PLAN, Pool
from ticker.engine.jobs import EPOCH
from ticker.engine.key_limits import LimitedTask
from ticker.engine.ports import Batch, Look, OpenPauses, RunAtWork
from ticker.errors import DatabaseUnavailable

ROWS_AT_A_LOOK = 5_000
THOROUGH_EVERY = 120  # ticks, an hour: how often each row is checked for times too far ahead
ONE_SECOND = timedelta(seconds=1)
LEAST_PATIENCE = 10.0  # seconds
BEFORE_ALL = ("-infinity", 0)  # comes before each task by next_run and id
MANY_CREWS = 1000
SLOW_LOOK = 400_000  # microseconds: two readings that differ by twice as much are not yet a step


class PostgresStore:
    """The ticker's store. It connects on first use, and again after a connection breaks.

    Threads may work on batches in parallel, because `pool` gives each of them a connection.
    """

    def __init__(self, url: str, schema: str = "ticker") -> None:
        self.pool = Pool(url, plans=ONE_PLAN)
        self._schema = schema
        self._swept: dict[str, int] = {}
        self._clamps = 0
        self._read: datetime | None = None
        self._installation = ""
        self._last_look: tuple[str, timedelta] | None = None
        self._stepped = self._look_again = False
        self._watching_since = 0.0  # seconds since 1970
        self._was_interrupted = False  # the server did not answer, and no tick has ended since then

    @property
    def installation(self) -> str:
        """Implements the port. Raises ConfigurationError if the tables belong to another installation."""
        return self._installation or self._identify()

    def _identify(self) -> str:
        row = installation.read(self.execute)
        installation.check(row)
        self._installation = row.id
        return self._installation

    def now(self) -> datetime:
        self._read = cast(datetime, self.execute("instant", now=None)[0]["now"])
        return self._read

    def look(self, now: datetime | None, look_ahead: int) -> Look:
        """Implements the port. Reads the installation again before it locks any row: `ticker db adopt` may have changed
        it.
        """
        self._identify()
        if self._look_again or self._clamps % THOROUGH_EVERY == 0:
            return Look()
        boot, uptime = self.uptime(now)
        work = self.execute("has_work", now=now, look_ahead=look_ahead, boot=boot, uptime=uptime)[0]
        if now is None:
            self._read = work["now"]
        self._stepped = self._is_step(boot, uptime, work["now"], self.uptime(now)[1]) or self._stepped
        if self._stepped or (work["busy"] and not work["only_due"]):
            return Look()
        self._clamps += 1
        return Look(only_due_at=work["now"]) if work["busy"] else Look(idle_at=work["now"])

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        with self.transaction() as execute:
            yield PostgresBatch(execute, self._swept)

    def wake(self, now: datetime, limit: int) -> int:
        from ticker.schedules import kinds  # a work-horse uses this module, too, and does not need its libraries

        with self.transaction() as execute:
            if rows := execute("ended_pauses", now=now, limit=limit):
                firsts = [kinds.first_by_default(row, now) for row in rows]
                execute("resume_tasks", ids=[row["id"] for row in rows], firsts=firsts, by="ticker", now=now)
            return len(rows)

    def open_pauses(self, now: datetime) -> OpenPauses:
        return OpenPauses(**self.execute("open_pauses", now=now)[0])

    def wait_for_gate(
        self, now: datetime, look_ahead: int, limit: int, after: tuple[datetime, int] | None = None
    ) -> tuple[datetime, int] | None:
        after_run, after_id = after or BEFORE_ALL
        which = {"now": now, "look_ahead": look_ahead, "limit": limit, "after_run": after_run, "after_id": after_id}
        return next(((row["next_run"], row["id"]) for row in self.execute("wait_for_gate", **which)), None)

    def probe(self, now: datetime, period: int) -> None:
        self.execute("probe", now=now, period_ms=period)

    def grant_budget(
        self, now: datetime, look_ahead: int, period: int, tick: int, full: Collection[str] = ()
    ) -> int | None:
        which = {"now": now, "look_ahead": look_ahead, "period_ms": period, "tick_ms": tick, "full": list(full)}
        return next((row["budget"] for row in self.execute("grant_budget", **which)), None)

    def let_go(self, now: datetime, limit: int) -> tuple[int, int]:
        [row] = self.execute("let_go", now=now, limit=limit)
        return row["found"], row["gone"]

    def close_pauses(self, now: datetime) -> None:
        self.execute("close_pauses", now=now)

    def uptime(self, now: datetime | None = None) -> tuple[str | None, int | None]:
        """Returns this host's `clock.uptime`; (None, None) if `now` is not the database's. Simulations replace it."""
        return clock.uptime() if now in (None, self._read) else (None, None)

    def clamp(self, now: datetime | None, limit: int) -> bool:
        self._stepped = stepped = self._clock_was_set(now) or self._stepped
        set_back = stepped or self._look_again or self._sees_a_tick_ahead(now)
        if set_back or self._clamps % THOROUGH_EVERY == 0:
            self._clamp_tasks(now, stepped)
        instant = now or self.now()
        while len(self.execute("clamp_runs", now=instant, limit=limit)) == limit:
            pass
        self._stepped, self._look_again = False, stepped  # again in the next tick, for rows that are locked now
        self._clamps += 1
        return set_back

    def _sees_a_tick_ahead(self, now: datetime | None) -> bool:
        return bool(self.execute("clock_signs", now=now)[0]["set_back"])

    def _clamp_tasks(self, now: datetime | None, stepped: bool) -> None:
        """Checks every row in the order of the ids, so that each is checked once, whatever a rule changes."""
        after: int | None = 0
        while after is not None:
            boot, uptime = self.uptime(now)
            rows = self.execute(
                "clamp", now=now, limit=ROWS_AT_A_LOOK, after=after, boot=boot, uptime=uptime, stepped=stepped
            )
            after = rows[0]["id"] if rows else None
        self.execute("clamp_slots", now=now)

    def _clock_was_set(self, now: datetime | None) -> bool:
        """Returns whether the database's clock and this host's uptime moved apart by over a second since the last call."""
        boot, uptime = self.uptime(now)
        return self._is_step(boot, uptime, now or self.now(), self.uptime(now)[1])

    def _is_step(self, boot: str | None, uptime: int | None, now: datetime, answered: int | None) -> bool:
        """Detects a step of the clock from its time, and the uptimes before the clock was read and after the answer."""
        if boot is None or uptime is None:
            return False
        if (answered or 0) - uptime > SLOW_LOOK:  # a late answer is not a step
            return False
        ahead = now - EPOCH - timedelta(microseconds=uptime)
        before, self._last_look = self._last_look, (boot, ahead)
        if before is None or before[0] != boot:
            return False
        if abs(ahead - before[1]) <= ONE_SECOND:
            self._last_look = before  # so that many small steps add up to a large one
            return False
        return True

    def end_overdue(self, now: datetime | None, limit: int, period: int = 0) -> int:
        if period and self._watched_for(now, period) < patience(period):
            return 0
        boot, uptime = self.uptime(now)
        return len(self.execute("end_overdue", now=now, limit=limit, boot=boot, uptime=uptime))

    def watched(self, now: datetime, period: int) -> timedelta:
        return now - EPOCH - timedelta(seconds=self._watching_since) if period else timedelta.max

    def _watched_for(self, now: datetime | None, beat: int) -> float:
        """Returns the seconds since the last gap in the ticks of all tickers, or the last error in this ticker."""
        watched = self.execute("watched", now=now, gap=patience(beat) * 1000)[0]
        is_new = self._was_interrupted or watched["since"] is None
        self._watching_since = watched["now"] if is_new else watched["since"]
        return cast(float, watched["now"] - self._watching_since)

    def stop_runs(self, now: datetime, limit: int) -> Sequence[RunAtWork]:
        return [RunAtWork(row["worker"], str(row["token"])) for row in self.execute("stop_runs", now=now, limit=limit)]

    def remove_done(self, limit: int) -> int:
        return len(self.execute("remove_done", limit=limit))

    def drop_orphaned_plans(self, now: datetime, limit: int) -> int:
        return len(self.execute("drop_orphaned_plans", now=now, limit=limit))

    def count_due(self, now: datetime, look_ahead: int, queue: str) -> int:
        return cast(int, self.execute("count_due", now=now, look_ahead=look_ahead, queue=queue)[0]["count"])

    def limited_due(
        self, now: datetime, look_ahead: int, limit: int, ahead: int = 0, without: Collection[str] = (),
        full: Collection[str] = (), after: tuple[datetime, int] | None = None, delays: Mapping[str, float] | None = None,
    ) -> tuple[Sequence[LimitedTask], bool]:  # fmt: skip
        which = {
            "now": now, "limit": limit, "ahead": ahead, "without": list(without), "full": list(full), "delays": json.dumps({**(delays or {})}),
        }  # fmt: skip
        after_run, after_id = after or BEFORE_ALL
        rows = self.execute("limited_due", **which, look_ahead=look_ahead, after_run=after_run, after_id=after_id)
        rows += self.execute("limited_planned", **which)
        return [_limited(row) for row in rows], any(row["more"] for row in rows)

    def next_due(self, now: datetime) -> float | None:
        """Returns the seconds from `now` to the next work of a pass; None if there is none."""
        return cast(float | None, self.execute("next_due", now=now)[0]["seconds"])

    def queues(self) -> list[str]:
        """Returns the queues of all tasks; a million tasks take 0.7 s. Returns an empty list if PostgreSQL does not
        answer.
        """
        with suppress(DatabaseUnavailable):
            return [row["queue"] for row in self.execute("queues")]
        return []

    def heartbeat(
        self, ticker_id: str, host: str, pid: int, now: datetime, report: Mapping[str, Any], beat: int = 0
    ) -> None:
        """Writes the ticker's row: a sign of life, the result of its last tick, and the time since which ticks have had
        no gap.
        """
        if beat:
            self._watched_for(now, beat)
            report = {**report, "watching_since": self._watching_since}
        self.execute("heartbeat", id=ticker_id, host=host, pid=pid, now=now, report=json.dumps(report))
        self._was_interrupted = False

    def show_sign(self, ticker_id: str, host: str, pid: int, tick_ms: int, failure: str, failing_ms: int) -> None:
        """Writes another sign of life to the ticker's row: why its ticks fail, or that a pass takes long."""
        self.execute(
            "show_sign", id=ticker_id, host=host, pid=pid, tick_ms=tick_ms, failure=failure, failing_ms=failing_ms
        )

    def sample(
        self, ticker_id: str, now: datetime, waiting: Mapping[str, int], crews: Sequence[tuple[tuple[str, ...], int, int]]
    ) -> None:  # fmt: skip
        """Stores how many jobs wait in these queues, and the crews: queues, the workers that listen to them, and how
        many are busy.

        More than 1,000 crews are not stored: a part of them would make attended queues look unattended.
        """
        self.execute(
            "sample", id=ticker_id, now=now, crews=json.dumps(crews) if len(crews) <= MANY_CREWS else None,
            queues=[*waiting], waiting=[*waiting.values()],
            listening=[sum(workers for queues, workers, _ in crews if name in queues) for name in waiting],
            busy=[sum(busy for queues, _, busy in crews if name in queues) for name in waiting],
        )  # fmt: skip

    def deregister(self, ticker_id: str) -> None:
        """Records that the ticker ended cleanly, so that it no longer counts."""
        self.execute("deregister", id=ticker_id)

    def execute(self, name: str, /, **parameters: Any) -> list[sql.Row]:
        """Runs one named statement in its own transaction."""
        with self._noticed(), self.pool.connection() as connection:
            return sql.on(connection, self._schema)(name, **parameters)

    @contextmanager
    def transaction(self) -> Iterator[sql.Execute]:
        """Yields a function that runs named statements in one transaction."""
        with self._noticed(), self.pool.connection() as connection, connection.transaction():
            yield sql.on(connection, self._schema)

    @contextmanager
    def _noticed(self) -> Iterator[None]:
        try:
            yield
        except DatabaseUnavailable:
            self._was_interrupted = True
            raise

    def close(self) -> None:
        self.pool.close()


def patience(beat: int) -> float:
    """Returns how many seconds workers get to record ends after an outage of tickers or tables: two ticks, or at least
    10 s.
    """
    return max(2 * beat / 1000, LEAST_PATIENCE)


def _limited(row: sql.Row) -> LimitedTask:
    is_pair = row["two"] is not None
    return LimitedTask(
        row["id"], row["next_run"], row["queue"], (row["one"], row["two"]) if is_pair else (row["one"],),
        (row["room_one"], row["room_two"]) if is_pair else (row["room_one"],), (row["owner_type"], row["owner_id"]),
        row["priority"], row["free_at"], row["is_planned"], row["has_job"],
    )  # fmt: skip
