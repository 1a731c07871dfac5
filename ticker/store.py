"""The tables behind the ticker's ports: one psycopg connection, one short transaction per batch.

The statements themselves stand in `statements.sql`, in the order of a row's life.
"""

import json
import os
import socket
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import psycopg

from ticker import clock, sql
from ticker.errors import ConfigurationError, DatabaseUnavailable, RowLocked
from ticker.ports import Batch, Settled
from ticker.task import Alarm, DueTask, Ended, Health, Kind, Note, Outcome, PlannedRun, Reason, RunKind, WaitingTask

CONNECT_TIMEOUT = 5  # seconds
ANSWER_TIMEOUT = 15.0  # seconds; the server's own time-outs end a statement after 5, if it lives
OLDEST_POSTGRESQL = 15
THOROUGH_EVERY = 120  # ticks, an hour of them: how often each row is looked at for times too far ahead
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ONE_SECOND = timedelta(seconds=1)
SLOW_LOOK = 400_000  # microseconds: two looks that differ by twice that are still no step
SERVER_TIMEOUTS = {
    "statement_timeout": "5s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "10s",
    "default_transaction_isolation": "read\\ committed",  # re-checks a WHERE after the lock; stricter levels raise
    "timezone": "UTC",
}


class Connection(psycopg.Connection[Any]):
    """Gives up a server that takes a statement and never answers: a stopped process, whose host still acknowledges."""

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._patiently(gen), *args, **kwargs)

    def _patiently(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """psycopg's steps; it goes through them once more every 0.1 s, with nothing ready, while nothing comes."""
        give_up_at = clock.monotonic() + ANSWER_TIMEOUT
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                if not ready and clock.monotonic() > give_up_at:
                    self.close()
                    raise psycopg.OperationalError(f"no answer to a statement within {ANSWER_TIMEOUT:g} s")
                wanted = steps.send(ready)
        except StopIteration as end:
            return end.value


def connect(url: str, *, name: str = "ticker") -> psycopg.Connection[Any]:
    """A connection whose every wait is bounded. Autocommit: one statement is one transaction, unless said otherwise."""
    try:
        return Connection.connect(
            url,
            autocommit=True,
            client_encoding="utf8",
            connect_timeout=CONNECT_TIMEOUT,
            application_name=name,
            options=" ".join(f"-c {key}={value}" for key, value in SERVER_TIMEOUTS.items()),
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=2,
            tcp_user_timeout=10_000,
        )
    except (psycopg.ProgrammingError, UnicodeError):  # whose text quotes the URL, and with it the password
        raise ConfigurationError(
            "DATABASE_URL cannot be read; write special characters in the name and the password as %XX"
        ) from None


@contextmanager
def translated() -> Iterator[None]:
    """psycopg's errors as ours, each in one sentence."""
    try:
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.InvalidSchemaName) as error:
        raise ConfigurationError(f"the tables do not fit: {first_line(error)}; run: ticker db upgrade") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(f"the user of DATABASE_URL lacks a right: {first_line(error)}") from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise DatabaseUnavailable(
            "PostgreSQL (DATABASE_URL) takes no writes: a standby, or default_transaction_read_only"
        ) from error
    except psycopg.errors.LockNotAvailable as error:
        raise RowLocked("a row is locked by another transaction for longer than 2 s") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise DatabaseUnavailable(f"PostgreSQL (DATABASE_URL) does not answer: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """An error's own words, on one line and without the hints that follow."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].strip().rstrip(".")


class PostgresStore:
    """The ticker's store. It connects when it is first used, and again after a connection broke."""

    def __init__(self, url: str, schema: str = "ticker") -> None:
        self._url = url
        self._schema = schema
        self._connection: psycopg.Connection[Any] | None = None
        self._swept: dict[str, int] = {}
        self._clamps = 0
        self._read: datetime | None = None
        self._last_look: tuple[str, timedelta] | None = None
        self._stepped = self._look_again = False
        self._since: float | None = None

    def now(self) -> datetime:
        with self.transaction() as execute:
            self._read = cast(datetime, execute("instant", now=None)[0]["now"])
        return self._read

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        with self.transaction() as execute:
            yield PostgresBatch(execute, self._swept)

    def wake(self, now: datetime, limit: int) -> None:
        from ticker.schedules import kinds  # a horse, which uses this module, too, does without its libraries

        with self.transaction() as execute:
            again = [
                (row["id"], found)
                for row in execute("end_pauses", now=now, limit=limit)
                if (found := kinds.after_pause(row, now)) is not None
            ]
            if again:
                ids, next_runs = (list(column) for column in zip(*again, strict=True))
                execute("set_next_runs", ids=ids, next_runs=next_runs)

    def uptime(self, now: datetime | None = None) -> tuple[str | None, int | None]:
        """This host's, as `clock.uptime`; none beside a `now` that is not the database's own. Simulations replace it."""
        return clock.uptime() if now in (None, self._read) else (None, None)

    def clamp(self, now: datetime | None, limit: int) -> bool:
        self._stepped = stepped = self._clock_was_set(now) or self._stepped
        set_back = stepped or self._look_again or self._sees_a_tick_ahead(now)
        thorough = self._look_again or self._clamps % THOROUGH_EVERY == 0
        self._clamp("clamp", now, limit, thorough=thorough, stepped=stepped)
        self._clamp("clamp_runs", now or self.now(), limit)
        self._stepped, self._look_again = False, stepped  # once more, for rows that were locked just now
        self._clamps += 1
        return set_back

    def _sees_a_tick_ahead(self, now: datetime | None) -> bool:
        with self.transaction() as execute:
            return bool(execute("clock_signs", now=now)[0]["set_back"])

    def _clamp(self, statement: str, now: datetime | None, limit: int, **looks: bool) -> None:
        """Batch after batch; tasks in the order of their ids, so that each comes once, whatever a rule makes of it."""
        after = 0
        while True:
            boot, uptime = self.uptime(now)
            with self.transaction() as execute:
                rows = execute(statement, now=now, limit=limit, after=after, boot=boot, uptime=uptime, **looks)
            if len(rows) < limit:
                return
            after = max(row["id"] for row in rows)

    def _clock_was_set(self, now: datetime | None) -> bool:
        """Whether the database's clock went on by over a second more, or less, than this host did since it was asked."""
        boot, uptime = self.uptime(now)
        if boot is None or uptime is None:
            return False
        ahead = (now or self.now()) - EPOCH - timedelta(microseconds=uptime)
        if (self.uptime(now)[1] or 0) - uptime > SLOW_LOOK:  # the answer was late: that is no step
            return False
        before, self._last_look = self._last_look, (boot, ahead)
        if before is None or before[0] != boot:
            return False
        if abs(ahead - before[1]) <= ONE_SECOND:
            self._last_look = before  # so that many small steps are seen as a large one
            return False
        return True

    def end_overdue(self, now: datetime | None, limit: int) -> int:
        boot, uptime = self.uptime(now)
        with self.transaction() as execute:
            return len(execute("end_overdue", now=now, limit=limit, boot=boot, uptime=uptime))

    def remove_done(self, limit: int) -> int:
        with self.transaction() as execute:
            return len(execute("remove_done", limit=limit))

    def next_due(self, now: datetime) -> float | None:
        """Seconds from `now` to the next thing that a pass would do; None: there is nothing."""
        with self.transaction() as execute:
            return cast(float | None, execute("next_due", now=now)[0]["seconds"])

    def heartbeat(self, ticker_id: str, host: str, pid: int, now: datetime, report: Mapping[str, Any]) -> None:
        """Writes the ticker's own row: it lives, and what its last tick did."""
        with self.transaction() as execute:
            execute("heartbeat", id=ticker_id, host=host, pid=pid, now=now, report=json.dumps(report))

    @contextmanager
    def transaction(self) -> Iterator[sql.Execute]:
        """Named statements in one transaction; a connection that broke, or was interrupted, is thrown away."""
        with translated():
            self._since = clock.monotonic()
            connection = self._connected()
            try:
                with connection.transaction():
                    yield sql.on(connection, self._schema)
            except (psycopg.Error, KeyboardInterrupt):
                self.close()
                raise
            finally:
                self._since = None

    def waited(self) -> float:
        """Seconds since the transaction that is open now began, in whichever thread; 0.0 when none is."""
        since = self._since
        return 0.0 if since is None else clock.monotonic() - since

    def interrupt(self) -> None:
        """From another thread: ends the wait for a server that hangs, as if the network had broken."""
        if self._connection is not None:
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._connection.fileno())) as wire:
                wire.shutdown(socket.SHUT_RDWR)

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._url)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class PostgresBatch:
    """The statements of one batch, on one transaction. `swept` remembers how far the sweep has come."""

    def __init__(self, execute: sql.Execute, swept: dict[str, int]) -> None:
        self._execute = execute
        self._swept = swept

    def claim_due(self, now: datetime, look_ahead: int, limit: int) -> Sequence[DueTask]:
        rows = self._execute("claim_due", now=now, look_ahead=look_ahead, limit=limit)
        return [_due(row) for row in rows]

    def advance(self, tasks: Sequence[tuple[DueTask, datetime | None]]) -> None:
        rows = [(task.id, task.occurrence, next_run) for task, next_run in tasks]
        self._columns("advance", ("ids", "occurrences", "next_runs"), rows)

    def skip(self, passed_over: Sequence[tuple[DueTask, datetime | None, Reason]], now: datetime) -> None:
        rows = [(task.id, task.occurrence, next_run, reason) for task, next_run, reason in passed_over]
        self._columns("skip", ("ids", "occurrences", "next_runs", "reasons"), rows, now=now)

    def claim_ended(self, limit: int) -> Sequence[Ended]:
        return [Ended(**{**row, **_enums(row)}) for row in self._execute("claim_ended", limit=limit)]

    def mark_followed(self, runs: Sequence[tuple[int, bool, str]]) -> None:
        self._columns("mark_followed", ("ids", "retried", "notes"), runs)

    def plan_retries(self, runs: Sequence[tuple[int, datetime]], now: datetime) -> None:
        self._columns("plan_retries", ("ids", "dues"), runs, now=now)

    def judge_tasks(self, tasks: Sequence[Health]) -> None:
        names = ("ids", "failures", "tolds", "stretched", "next_runs", "alarms", "pause_reasons", "pause_untils")
        self._columns("judge_tasks", names, [astuple(task) for task in tasks])

    def record_events(self, notes: Sequence[Note], now: datetime) -> None:
        self._columns("record_events", ("ids", "whats", "words", "run_ids"), [astuple(note) for note in notes], now=now)

    def sum_up(self, now: datetime, limit: int) -> int:
        return len(self._execute("sum_up", now=now, limit=limit))

    def claim_alarms(self, now: datetime, limit: int) -> Sequence[Alarm]:
        return [
            Alarm(**{**row, "kind": Kind(row["kind"])}) for row in self._execute("claim_alarms", now=now, limit=limit)
        ]

    def set_alarms(self, tasks: Sequence[tuple[int, datetime | None]]) -> None:
        self._columns("set_alarms", ("ids", "alarms"), tasks)

    def claim_ahead(self, now: datetime, limit: int) -> Sequence[DueTask]:
        return [_due(row) for row in self._next("claim_ahead", limit, now=now)]

    def bring_forward(self, tasks: Sequence[tuple[DueTask, datetime]]) -> None:
        self._columns("bring_forward", ("ids", "next_runs"), [(task.id, next_run) for task, next_run in tasks])

    def set_back(self, failed: Sequence[tuple[int, str, datetime]]) -> None:
        self._columns("set_back", ("ids", "errors", "afters"), failed)

    def claim_planned(self, now: datetime, limit: int) -> Sequence[PlannedRun]:
        self._execute("drop_orphaned_plans", now=now, limit=limit)
        return [PlannedRun(**row) for row in self._execute("claim_planned", now=now, limit=limit)]

    def mark_pushed(self, run_ids: Sequence[int], now: datetime) -> None:
        if run_ids:
            self._execute("mark_pushed", ids=list(run_ids), now=now)

    def set_back_planned(self, failed: Sequence[tuple[int, str, datetime]]) -> None:
        self._columns("set_back_planned", ("ids", "errors", "afters"), failed)

    def claim_waiting(self, limit: int) -> Sequence[WaitingTask]:
        rows = self._execute("claim_waiting", after=self._swept.get("claim_waiting", 0), limit=limit)
        self._swept["claim_waiting"] = (rows and rows[0]["upto"]) or 0
        return [_waiting(row) for row in rows]

    def settle(self, settled: Sequence[Settled], now: datetime) -> None:
        names = ("ids", "occurrences", "outcomes", "reasons")
        self._columns("settle_waiting", names, [astuple(one) for one in settled], now=now)

    def claim_pushed(self, limit: int) -> Sequence[PlannedRun]:
        return [PlannedRun(**row) for row in self._next("claim_pushed", limit)]

    def lose_planned(self, run_ids: Sequence[int], reason: str, now: datetime) -> None:
        if run_ids:
            self._execute("lose_planned", ids=list(run_ids), reason=reason, now=now)

    def _columns(self, statement: str, names: Sequence[str], rows: Sequence[tuple[Any, ...]], **values: Any) -> None:
        """A statement over rows that it takes column by column; none at all for none."""
        if rows:
            self._execute(statement, **dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)), **values)

    def _next(self, statement: str, limit: int, **values: Any) -> list[sql.Row]:
        """The rows behind those of the last call, and from the start again when they end."""
        rows = self._execute(statement, after=self._swept.get(statement, 0), limit=limit, **values)
        self._swept[statement] = rows[-1]["id"] if len(rows) == limit else 0
        return rows


def _waiting(row: sql.Row) -> WaitingTask:
    values = {name: value for name, value in row.items() if name != "upto"}
    return WaitingTask(**{**values, "waiting": tuple(sorted(row["waiting"]))})


def _due(row: sql.Row) -> DueTask:
    return DueTask(
        row["id"], row["occurrence"], row["queue"], row["function"],
        row["every_ms"], row["box_ms"], row["grace_ms"], row["push_errors"],
        Kind(row["kind"]), row["expression"], row["zone"], row["starts_at"], row["ends_at"], row["catch_up"],
        row["overlap"], row["busy"],
    )  # fmt: skip


def _enums(row: sql.Row) -> dict[str, Any]:
    """A run's words as what they are."""
    return {"kind": RunKind(row["kind"]), "outcome": Outcome(row["outcome"]), "schedule": Kind(row["schedule"])}
