"""Runs the ticker's passes and the jobs that they push in this process, on a clock that only the kit moves."""

import logging
import math
import os
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

import psycopg

from ticker import clock, settings
from ticker.db import tables
from ticker.db.store import PostgresStore
from ticker.engine import timing
from ticker.engine.passes import TickOptions
from ticker.engine.tick import tick
from ticker.errors import BadInput
from ticker.queue.rq import RedisQueue
from ticker.read.journal import list_runs
from ticker.read.tasks import AT_MOST, RunRecord
from ticker.schedules.duration import HOUR, SECOND, Duration, milliseconds
from ticker.testing.isolation import Servers, create_tables
from ticker.testing.queues import Queues, claimed_once, perform

log = logging.getLogger("ticker.run")

AHEAD = timedelta(minutes=2)  # what triggers write by the database's clock in the first minute of a test is due at once
END = datetime.max.replace(tzinfo=UTC)
REAL_TIME = [clock.__name__, "_pytest.timing"]  # not frozen: a wait by a frozen clock would never end


class Kit:
    """A ticker and a worker in this process, within a `with` block.

    Within the block, the environment names the kit's servers and schema. Time stands still: `now` is what our
    statements and `run.quota` read, and, if freezegun is installed, what `datetime.now()` and `time.time()` return.
    Only `move` and `run_due` change it. It begins at a full minute, which is one to two minutes ahead of the present.

    `db` is a connection of psycopg in autocommit mode, for `ticker.register` and for the assertions of the test.
    """

    db: psycopg.Connection[Any]
    now: datetime

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._period: timedelta | None = None
        self._next_tick = END
        self._returned = set[int]()

    def __enter__(self) -> Self:
        servers = self._servers
        own = {"TICKER_HARD_LIMIT": "off", "TICKER_OUTPUT": os.environ.get("TICKER_OUTPUT", "pass")}
        with ExitStack() as block:
            block.enter_context(patch.dict(os.environ, {**servers.environ, **own}))
            log.addFilter(_is_wanted)
            block.callback(log.removeFilter, _is_wanted)
            self._settings = settings.from_environment()
            if servers.empties_tables:
                create_tables(servers.database_url, servers.schema)
            block.enter_context(claimed_once(servers.redis_url))
            self.db = block.enter_context(closing(psycopg.connect(servers.database_url, autocommit=True)))
            self._queues = block.enter_context(closing(Queues(servers.redis_url)))
            self._queue = block.enter_context(closing(RedisQueue.from_settings(self._settings)))
            self._store = block.enter_context(closing(PostgresStore(servers.database_url, servers.schema)))
            self._empty()
            self.now = clock.python_utc().replace(second=0, microsecond=0) + AHEAD
            block.enter_context(clock.use(lambda: self.now))
            self._frozen = block.enter_context(_frozen(self.now))
            self._block = block.pop_all()
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._block.__exit__(type_, error, trace)

    def move(self, *, to: datetime | None = None, by: Duration | None = None) -> datetime:
        """Moves the clock to an instant, or forward by a duration. Returns the new time.

        Functions may call it to let time pass. During `run_due`, the ticker ticks meanwhile, as in production. `to` may
        be in the past, as if the clock were set back.

        Raises BadInput unless exactly one of `to` and `by` is given, or if the instant has no time zone.
        """
        if (to is None) == (by is None):
            raise BadInput("move", None, "needs either to= or by=")
        target = self._instant("by", by) if to is None else self._instant("to", to)
        while self._period is not None and self._next_tick <= target:
            self._set(self._next_tick)
            self._next_tick += self._period
            self.tick()
        self._set(target)
        return target

    def tick(self) -> int:
        """Makes one pass of the ticker. Returns how many jobs it pushed."""
        config, period = self._settings, (self._period or timedelta(0)) // timedelta(milliseconds=1)
        options = TickOptions(
            look_ahead=timing.LOOK_AHEAD, batch=config.batch, depths=config.queue_depth, waiting_jobs=config.waiting_jobs,
            period=period, beat=period,
        )  # fmt: skip
        return tick(self._store, self._queue, self.now, options).enqueued

    def work(self, at_most: float = math.inf, *, raises: bool = False) -> list[RunRecord]:
        """Runs up to `at_most` waiting jobs, one after another. Returns the runs and drops that ended, oldest first.

        The returned runs are those that no earlier call has returned. An error of a function is recorded, as in
        production. With `raises`, it is also raised here, after it has been recorded. An error of a job without a
        record is always raised.
        """
        self._work(raises, at_most)
        return self._ended()

    def run_due(
        self, until: Duration | datetime, *, tick: Duration | None = None, raises: bool = False
    ) -> list[RunRecord]:
        """Ticks now and at each period of the ticker up to and including `until`, and runs all jobs after each tick.

        `until` is an instant, or a duration from now. `tick` is the period. It defaults to TICKER_TICK, or 30 s.
        Returns what `work` returns, for the whole time. The clock is at `until` afterwards, or later if a function
        moved it further.

        Raises BadInput if `until` is in the past, has no time zone, or is over 366 days.
        """
        end = self._instant("until", until)
        if end < self.now:
            raise BadInput(
                "until", f"{end:%Y-%m-%d %H:%M:%S%z}", f"is before the kit's time {self.now:%Y-%m-%d %H:%M:%S%z}"
            )
        given = self._settings.tick_ms if tick is None else milliseconds("tick", tick, least=SECOND // 10, most=HOUR)
        self._period = timedelta(milliseconds=given)
        self._next_tick = self.now + self._period
        try:
            self.tick()
            self._work(raises, until=end)
            while self._next_tick <= end:  # `move` ticks then
                self.move(to=self._next_tick)
                self._work(raises, until=end)
        finally:
            self._period = None
        self._set(max(end, self.now))
        return self._ended()

    def _work(self, raises: bool, at_most: float = math.inf, until: datetime = END) -> None:
        """Runs waiting jobs. Begins none after `until`: functions that take longer than their interval would never be
        done.
        """
        done = 0
        while done < at_most and self.now <= until and (job := self._queues.take()) is not None:
            done += 1
            error = perform(job)
            recorded = {run.job_id for run in list_runs(self.db, limit=AT_MOST) if run.outcome} if error else ()
            if error is not None and (raises or job.id not in recorded):
                raise error

    def _ended(self) -> list[RunRecord]:
        """Returns the ended runs that no earlier call has returned, in the order of their ends."""
        found: list[RunRecord] = []
        page = list_runs(self.db, limit=AT_MOST)
        while page:
            found += [run for run in page if run.ended_at is not None and run.id not in self._returned]
            page = list_runs(self.db, before=page[-1].id, limit=AT_MOST) if len(page) == AT_MOST else []
        self._returned.update(run.id for run in found)
        return sorted(found, key=lambda run: (run.ended_at or run.created_at, run.id))

    def _instant(self, field: str, value: Duration | datetime | None) -> datetime:
        if not isinstance(value, datetime):
            return self.now + timedelta(milliseconds=milliseconds(field, value))
        if value.tzinfo is None:
            raise BadInput(field, value.isoformat(), "has no time zone; write datetime(..., tzinfo=UTC)")
        return value.astimezone(UTC)

    def _set(self, now: datetime) -> None:
        self.now = now
        if self._frozen is not None:
            self._frozen.move_to(now)

    def _empty(self) -> None:
        self._queues.empty()
        if self._servers.empties_tables:
            emptied = (table for table in tables.metadata.sorted_tables if table is not tables.installation)
            names = ", ".join(f'"{self._servers.schema}".{table.name}' for table in emptied)
            self.db.execute(f"TRUNCATE {names} RESTART IDENTITY")


def _is_wanted(record: logging.LogRecord) -> bool:
    """Returns False for the warning that nothing ends a run, because it applies to each run of a kit."""
    return getattr(record, "event", "") != "no_hard_limit"


def _frozen(at: datetime) -> AbstractContextManager[Any]:
    """Freezes Python's clocks if freezegun is installed. Our own waits, event loops and pytest's durations keep real
    time.
    """
    try:
        from freezegun import freeze_time
    except ImportError:
        return nullcontext()
    frozen: AbstractContextManager[Any] = freeze_time(at, ignore=REAL_TIME, real_asyncio=True)
    return frozen
