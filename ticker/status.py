"""What people read: tasks and runs as they are now, and whether the tickers live."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from ticker import clock, identity, settings, sql
from ticker.errors import BadInput, UnknownRun, UnknownTask
from ticker.registration import Ref, described, id_or_name
from ticker.task import Outcome, RunKind, Task
from ticker.taskrow import tasks_from

AT_MOST = 10_000  # rows of one answer
STATES = ("failing", "late", "paused", "inactive", "running", "waiting")
"""What `list_tasks` can be asked for; a task may be in several."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run or drop as it is recorded, without its output. Times are UTC; durations in milliseconds.

    `parent_id` is the first run of a retry's occurrence, or the run that made a piece; `item` is that piece; `pieces`
    is how many pieces a run made; `retried`: it failed, and was attempted again; `until`: dead by then at the latest.
    """

    id: int
    task_id: int
    task_name: str
    function: str
    owner_type: str
    owner_id: str
    kind: RunKind
    parent_id: int | None
    item: Any
    occurrence: datetime | None
    attempt: int
    retried: bool
    pieces: int | None
    state: str
    outcome: Outcome | None
    reason: str
    due_at: datetime | None
    pushed_at: datetime | None
    started_at: datetime | None
    until: datetime | None
    ended_at: datetime | None
    created_at: datetime
    checked_last_run: datetime | None
    checked_at: datetime | None
    every_ms: int | None
    tolerance_ms: int | None
    result: Any
    traceback: str
    worker: str
    host: str
    pid: int | None
    job_id: str


@dataclass(frozen=True, slots=True)
class FullRun:
    """One run with all that is kept of it: what it printed, all attempts of its occurrence (or of its piece, itself
    included), and the pieces that it made, at most 10,000 of them."""

    run: RunRecord
    output: str
    error_output: str
    attempts: tuple[RunRecord, ...]
    pieces: tuple[RunRecord, ...]


@dataclass(frozen=True, slots=True)
class TickerStatus:
    """One ticker's heartbeat; `age` is in seconds of the database's clock, None before its first tick."""

    id: UUID
    host: str
    pid: int
    started_at: datetime
    last_tick_at: datetime | None
    last_report: dict[str, Any]
    age: float | None


def get(db: Any, task: Ref, *, owner: Any = None) -> Task:
    """One task, by its id or by name and owner; UnknownTask where there is none."""
    ref = id_or_name(task)
    if isinstance(ref, int):
        found = tasks_from(on(db)("read_task", id=ref))
    elif isinstance(ref, str):
        found = list_tasks(db, name=ref, owner=identity.NOBODY if owner is None else owner)
    else:
        raise BadInput("task", task, "is no id and no name")
    if not found:
        raise UnknownTask(f"there is no task {task!r}" + ("" if owner is None else f" of owner {described(db, owner)}"))
    return found[0]


def list_tasks(
    db: Any, *, owner: Any = None, owner_type: str | None = None, name: str | None = None, function: str | None = None,
    queue: str | None = None, group: str | None = None, submitter: str | None = None, state: str | None = None,
    search: str | None = None, after: int = 0, limit: int = AT_MOST,
) -> list[Task]:  # fmt: skip
    """Tasks by id, those over `after`, at most `limit`.

    `state` is one of `STATES`; `late`: due for longer than two ticks. `search` is a part of the name, the function, the
    owner (`type:id`) or the subject, in any case.
    """
    who = None if owner is None else identity.identify(db, owner)
    if state is not None and state not in STATES:
        raise BadInput("state", state, f"is none of: {', '.join(STATES)}")
    rows = on(db)(
        "list_tasks", owner_type=who.type if who else owner_type, owner_id=who.id if who else None, name=name,
        function=function, queue=queue, group=group, submitter=submitter, state=state, search=search, after=after,
        limit=limited(limit), now=clock.now(), late_ms=late_ms(),
    )  # fmt: skip
    return tasks_from(rows)


def due_tasks(db: Any, *, limit: int = AT_MOST) -> list[Task]:
    """What a tick would push now, oldest first; nothing is locked or changed."""
    return tasks_from(on(db)("due_tasks", now=clock.now(), limit=limited(limit)))


def list_runs(
    db: Any,
    *,
    task: Task | int | None = None,
    outcome: Outcome | None = None,
    before: int | None = None,
    limit: int = 100,
) -> list[RunRecord]:
    """Runs and drops, the newest first: of one task, of one outcome, with an id under `before`."""
    ref = id_or_name(task)
    if isinstance(ref, str):
        raise BadInput("task", ref, "is a name; give the task or its id")
    rows = on(db)("list_runs", task_id=ref, outcome=outcome, before=before, limit=limited(limit))
    return [_run(row) for row in rows]


def get_run(db: Any, run_id: int) -> FullRun:
    """One run or drop with all that is kept of it. UnknownRun where there is none: it may have been pruned."""
    ref = id_or_name(run_id)
    if not isinstance(ref, int):
        raise BadInput("run", run_id, "is no id of a run; list_runs has them")
    execute = on(db)
    found = execute("read_run", id=ref)
    if not found:
        raise UnknownRun(f"there is no run {ref}; it may have been pruned")
    run, texts = _run(found[0]), found[0]
    return FullRun(run, texts["output"], texts["error_output"], _attempts(execute, run), _pieces(execute, run.id))


def runs_by_id(execute: sql.Execute, ids: Iterable[int]) -> list[RunRecord]:
    """In the order of their ids; those that are not there any more are left out."""
    return [_run(row) for row in execute("runs_by_id", ids=list(ids))]


def _attempts(execute: sql.Execute, run: RunRecord) -> tuple[RunRecord, ...]:
    if run.kind == RunKind.PIECE and run.parent_id is not None:
        return tuple(piece for piece in _pieces(execute, run.parent_id) if piece.item == run.item)
    first = run.parent_id if run.kind == RunKind.RETRY and run.parent_id is not None else run.id
    again = execute("runs_of_parents", parents=[first], kind=RunKind.RETRY, limit=AT_MOST)
    return tuple(runs_by_id(execute, [first, *(row["id"] for row in again)]))


def _pieces(execute: sql.Execute, run_id: int) -> tuple[RunRecord, ...]:
    made = execute("runs_of_parents", parents=[run_id], kind=RunKind.PIECE, limit=AT_MOST)
    return tuple(runs_by_id(execute, [row["id"] for row in made]))


def tickers(db: Any) -> list[TickerStatus]:
    """The tickers, the one that was heard of last first; a living one removes those that were silent for a day."""
    return [TickerStatus(**row) for row in on(db)("tickers")]


def _run(row: sql.Row) -> RunRecord:
    values = {name: row[name] for name in RunRecord.__slots__}
    values["kind"] = RunKind(row["kind"])
    values["outcome"] = Outcome(row["outcome"]) if row["outcome"] else None
    return RunRecord(**values)


def late_ms() -> int:
    """Milliseconds behind its time from which on a task is late: two ticks."""
    return 2 * settings.current().tick_ms


def limited(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= AT_MOST:
        raise BadInput("limit", limit, f"is no whole number from 1 to {AT_MOST}")
    return limit


def on(db: Any) -> sql.Execute:
    return sql.on(db, settings.current().schema)
