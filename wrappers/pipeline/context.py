"""Defines the call that each step passes on (`Call`), and the run that a function receives (`Run`)."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from threading import Thread
from typing import Any, cast

from ticker import clock
from ticker.db import json_text, sql
from ticker.errors import BadInput, TickerError, of_type
from ticker.model import JSON_AT_MOST, LARGEST_ID, NO_FAILURE, Kind, RunKind
from ticker.schedules.duration import MILLISECOND, Duration, milliseconds, words
from ticker.settings import Settings
from wrappers.pipeline.database import Database
from wrappers.pipeline.slow_down import Until, checked_key, span
from wrappers.sandbox import limits
from wrappers.sandbox.limits import Limits

log = logging.getLogger("ticker.run")


class HoldLost(TickerError):
    """This run no longer holds its task: another run may have started. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Start:
    """The answer of the start statement to a run that may begin. Durations are in milliseconds."""

    run_id: int
    token: str
    now: datetime
    name: str
    function: str
    kwargs: Mapping[str, Any]
    owner_type: str
    owner_id: str
    cursor: Any
    box_ms: int
    grace_ms: int
    kind: RunKind = RunKind.SCHEDULED
    occurrence: datetime | None = None
    attempt: int = 1
    piece: Any = None
    limits: tuple[str, ...] = ()
    parent_id: int | None = None
    traceparent: str | None = None

    @property
    def names(self) -> tuple[str, str]:
        return names(self.name, self.owner_type, self.owner_id)


def names(name: str | None, owner_type: str | None, owner_id: str | None) -> tuple[str, str]:
    """Returns a task's name and owner as log lines show them: `?` if the task is gone, and `-` without an owner."""
    return name or "?", f"{owner_type}:{owner_id}" if owner_type else "-"


def log_end(outcome: str, reason: str, task_id: int, names: tuple[str, str], run_id: int, job_id: str) -> None:
    """Writes the one log line that each end of a run has, as a warning if it is a failure."""
    level = logging.INFO if outcome in {*NO_FAILURE, "processing"} else logging.WARNING
    log.log(
        level, "run %s task=%s name=%s owner=%s run=%s job=%s%s",
        outcome, task_id, *names, run_id, job_id, f": {reason}" if reason else "",
        extra={"event": "run_ended", "fields": {"outcome": str(outcome), "reason": reason}},
    )  # fmt: skip


@dataclass(slots=True)
class Answer:
    """A function's answer: its result as JSON text, nothing to do, or a JSON array of pieces of work.

    `note`: says how the result was changed, if it was.
    `overlooked`: the function was interrupted at its soft limit, and did not end by that.
    `stopped`: the function was interrupted because its run was stopped.
    `is_cancelled`: False in a group, if nothing asked the run's own coroutine to end.
    `cancelled_by`: the id of the task whose run cancelled this run, in a group.
    `threads`: those that the function started.
    """

    result: str | None = None
    note: str = ""
    nothing_to_do: bool = False
    pieces: str | None = None
    made: int = 0  # pieces that are already recorded
    overlooked: bool = False
    stopped: bool = False
    is_cancelled: bool = True
    cancelled_by: int | None = None
    threads: Collection[Thread] = ()


class Quota:
    """The time that is left in a run's box, by time.monotonic. The box begins just before the start statement is sent.

    While `clock.use` substitutes a clock, the box begins now, by that clock.
    """

    def __init__(self, box: float, began: float) -> None:
        self._box = box
        self._began = began
        self._began_at = clock.now()
        self.answered_exhausted = False

    @property
    def remaining(self) -> float:
        """The seconds that are left; 0.0 if the quota is used up."""
        now = clock.now()
        if now is None or self._began_at is None:
            left = max(self._began + self._box - clock.monotonic(), 0.0)
        else:
            left = max(self._box - (now - self._began_at).total_seconds(), 0.0)
        self.answered_exhausted |= left == 0.0
        return left

    @property
    def exceeded(self) -> bool:
        """Whether no time is left, so that the function should stop at a checkpoint. True at the deadline itself."""
        return self.remaining == 0.0


@dataclass(slots=True)
class Run:
    """A function's access to its own run, passed as the first parameter `run`.

    `occurrence` is the same for all attempts and pieces of an occurrence, and None for a run that was requested by
    hand.
    """

    id: int
    task_id: int
    name: str
    owner_type: str
    owner_id: str
    occurrence: datetime | None
    cursor: Any
    quota: Quota
    _token: str = field(repr=False)
    _database: Database = field(repr=False)
    kind: RunKind = RunKind.SCHEDULED
    attempt: int = 1
    _keys: tuple[str, ...] = field(default=(), repr=False)

    def slow_down(self, key: str, until: Until | None = None) -> None:
        """Holds off a key of the task: no run of the key starts before `until`, on any worker. This run continues.

        `until` is what `SlowDown` takes. Raises BadInput if the task does not have this key.
        """
        self._database.close_key(checked_key(key, self._keys), self.id, span(until), at=limits.now())

    def again(self, after: Duration) -> datetime | None:
        """Makes the task due `after` this time from now, once, instead of after its interval. Returns when it is due.

        The task is never due before its next run may start. A time over 24 hours, or over the upper bound of an elastic
        interval, is cut to that limit, with a warning in the log. To wait longer, close a key with `SlowDown`. The
        time is stored at once, and applies whatever becomes of this run. The last call counts. Returns None, and
        changes nothing, if the next occurrence is in the queue already, or if the schedule is over.

        Raises HoldLost if this run no longer holds its task, and BadInput for a task without an interval and in a piece
        of work.
        """
        if self.kind is RunKind.PIECE:
            raise BadInput("again", None, "a piece of work has no schedule; ask in the run that makes the pieces")
        after_ms = milliseconds("again", after, least=MILLISECOND, most=LARGEST_ID)
        found = self._database.execute("again", task_id=self.task_id, token=self._token, after_ms=after_ms)
        if not found:
            raise HoldLost(f"run {self.id} no longer holds task {self.task_id}: its next run was not changed")
        [row] = found
        if row["kind"] != Kind.INTERVAL:
            raise BadInput(
                "again", words(after_ms), f"applies only to intervals; task {self.task_id} has {row['kind']}"
            )
        if after_ms > row["longest_ms"]:
            log.warning(
                "run=%s of task=%s asked for %s: cut to the limit of %s; to wait longer, close a key with SlowDown",
                self.id, self.task_id, words(after_ms), words(row["longest_ms"]), extra={"event": "again_cut"},
            )  # fmt: skip
        return cast(datetime | None, row["next_run"])

    def checkpoint(self, value: Any, session: Any = None) -> None:
        """Stores where the next run continues: its `run.cursor` will be `value` (JSON, up to 64 kB).

        The value is stored at once. With `session`, it is stored inside that session's transaction, so that work and
        cursor commit together. `session` is a connection of SQLAlchemy, Django, psycopg or psycopg2 to the same
        database, or a SQLAlchemy Session.

        Raises HoldLost if this run no longer holds its task, and BadInput if `value` is not JSON. Stores nothing if the
        task was deleted. A piece of work has no checkpoint: it is done, or attempted again from its beginning.

        `run.cursor` is set at once. After a rollback of `session`, restore the old `run.cursor` before you continue in
        the same run.
        """
        if self.kind is RunKind.PIECE:
            raise BadInput(
                "checkpoint", None, "a piece of work has no cursor, because pieces run in parallel; return a result"
            )
        try:
            text = json_text.dumps(value, most=JSON_AT_MOST)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput("checkpoint", None, f"{of_type(value)} cannot be a cursor: {error}") from None
        execute = self._database.execute if session is None else sql.on(session, self._database.schema)
        written = execute("checkpoint", task_id=self.task_id, token=self._token, cursor=text)
        if not written and execute("has_task", id=self.task_id):
            raise HoldLost(f"run {self.id} no longer holds task {self.task_id}: its cursor was not written")
        self.cursor = value


@dataclass(frozen=True, slots=True)
class Call:
    """One job on its way to its function and its end. Each step may add what the next ones need.

    `function` is the one that the job names; its task may have another by now. Empty if it is unknown.

    `pid` is the process that runs the function; None if the start is requested before that process exists.

    `began` and `since` are the same instant, just before the start was requested. `began` is by `clock.monotonic`, for
    the quota. `since` is by `limits.now`, for the limits.
    """

    task_id: int
    occurrence: datetime | None
    planned: int | None
    job_id: str
    worker: str
    rq_timeout: int | None
    settings: Settings
    database: Database
    function: str = ""
    pid: int | None = None
    began: float = 0.0
    since: float = 0.0
    start: Start | None = field(default=None, repr=False)  # no repr, because Sentry shows the variables of frames
    run: Run | None = field(default=None, repr=False)
    limits: Limits | None = None
    answer: Answer = field(default_factory=Answer)

    def seconds(self, share: float) -> float:
        """Returns the seconds from the request of the start until this share of the grace has passed after the box."""
        assert self.start is not None
        return (self.start.box_ms + share * self.start.grace_ms) / 1000

    def at(self, share: float) -> float:
        """Returns the instant of `limits.now` at which that is so. A coroutine is cancelled at B + g/4, and a plain
        function is interrupted at B + g/2.
        """
        return self.since + self.seconds(share)

    @property
    def deadline(self) -> float:
        """The instant of `limits.now` at which the run is killed: B + g after its start was requested."""
        return self.at(1)
