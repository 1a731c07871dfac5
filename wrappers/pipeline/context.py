"""What the layers hand on (`Call`), and what a function is handed (`Run`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ticker import clock
from ticker.db import json_text, sql
from ticker.errors import BadInput, TickerError
from ticker.model import JSON_AT_MOST, RunKind
from ticker.settings import Settings
from wrappers.pipeline.database import Database
from wrappers.sandbox.limits import Limits


class HoldLost(TickerError):
    """This run no longer holds its task: another run may have started. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Start:
    """What the start statement answered to a run that may begin. Durations in milliseconds."""

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


@dataclass(slots=True)
class Answer:
    """What a function returned: JSON text of its result, or nothing to do, or a JSON array of pieces of work."""

    result: str | None = None
    nothing_to_do: bool = False
    pieces: str | None = None
    made: int = 0  # pieces that are already recorded


class Quota:
    """How much of its time box a run has left. Counted from before the start statement was sent, by time.monotonic."""

    def __init__(self, box: float, began: float) -> None:
        self._box = box
        self._began = began
        self.answered_exhausted = False

    @property
    def remaining(self) -> float:
        """Seconds; 0.0 when nothing is left."""
        left = max(self._began + self._box - clock.monotonic(), 0.0)
        self.answered_exhausted |= left == 0.0
        return left

    @property
    def exceeded(self) -> bool:
        """Whether nothing is left: stop at a checkpoint now. At the deadline itself nothing is left."""
        return self.remaining == 0.0


@dataclass(slots=True)
class Run:
    """What a function may know and do about its own run, as its first parameter `run`.

    `occurrence` is the same for all attempts and pieces of an occurrence; None for a run that was asked for by hand.
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

    def checkpoint(self, value: Any, session: Any = None) -> None:
        """From here the next run goes on: its `run.cursor` is `value` (JSON, up to 64 kB).

        Stored at once; with `session` (a connection of SQLAlchemy, Django, psycopg or psycopg2, or a Session, to the
        same database) inside its transaction, so that work and cursor commit together. Raises HoldLost if this run no
        longer holds its task, and BadInput if `value` is not JSON. Stores nothing if the task was deleted. `run.cursor`
        is set at once: after a rollback of `session`, set it back before you go on in the same run. A piece of work has none: it is done, or attempted
        again as a whole.
        """
        if self.kind is RunKind.PIECE:
            raise BadInput(
                "checkpoint", None, "a piece of work has no cursor, as pieces run side by side; return a result"
            )
        try:
            text = json_text.dumps(value, most=JSON_AT_MOST)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput("checkpoint", type(value).__name__, f"cannot be a cursor: {error}") from None
        execute = self._database.execute if session is None else sql.on(session, self._database.schema)
        written = execute("checkpoint", task_id=self.task_id, token=self._token, cursor=text)
        if not written and execute("has_task", id=self.task_id):
            raise HoldLost(f"run {self.id} does not hold task {self.task_id} any more: its cursor was not written")
        self.cursor = value


@dataclass(frozen=True, slots=True)
class Call:
    """One job on its way through the layers, each of which may add what the next ones need.

    `pid` is the process that runs the function; None if the start is requested before that process exists. `began` and
    `since` are one instant, before the start was requested: by `clock.monotonic`, from which the quota counts, and by
    `limits.now`, from which the limits do.
    """

    task_id: int
    occurrence: datetime | None
    planned: int | None
    job_id: str
    worker: str
    rq_timeout: int | None
    settings: Settings
    database: Database
    pid: int | None = None
    began: float = 0.0
    since: float = 0.0
    start: Start | None = field(default=None, repr=False)  # Sentry shows the variables of frames
    run: Run | None = field(default=None, repr=False)
    limits: Limits | None = None
    answer: Answer = field(default_factory=Answer)
