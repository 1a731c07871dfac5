"""What people read: tasks and runs as they are now, and whether the tickers live."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from ticker import clock, settings
from ticker.db.sql import Row
from ticker.db.steps import Steps, reads
from ticker.errors import BadInput, UnknownRun, UnknownTask
from ticker.model import Outcome, RunKind
from ticker.tasks import identity
from ticker.tasks.fields import Task
from ticker.tasks.queries import query
from ticker.tasks.reference import Ref, described, id_or_name
from ticker.tasks.rows import tasks_from

AT_MOST = 10_000  # rows of one answer
STATES = ("failing", "late", "paused", "inactive", "running", "waiting")
"""What `list_tasks` can be asked for; a task may be in several."""
READ_THROUGH = ("name", "function", "queue", "group", "submitter", "search")
"""Its filters that no index serves without an owner."""
CROWD = 50_000  # tasks in a state: those of more are met by a walk through all, instead of by their ids
SEARCHED = 100_000  # tasks that one page of a list looks through for them


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
class TaskPage:
    """Tasks by id, and the id behind which the next page begins; None: there is none.

    `looked_through`: this page ended behind so many tasks, before it was full: more may fit behind them.
    """

    tasks: tuple[Task, ...]
    next: int | None
    looked_through: int | None


@dataclass(frozen=True, slots=True)
class FullRun:
    """One run with all that is kept of it: what it printed, all attempts of its occurrence (or of its piece, itself
    included), and the pieces that it made, in each of their attempts: at most as many as were asked for.

    `next` is the id behind which further ones follow; None: there are none.
    """

    run: RunRecord
    output: str
    error_output: str
    attempts: tuple[RunRecord, ...]
    pieces: tuple[RunRecord, ...]
    next: int | None = None


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


@reads
def get(task: Ref, *, owner: Any = None) -> Steps[Task]:
    """One task, by its id or by name and owner; UnknownTask where there is none."""
    ref = id_or_name(task)
    if isinstance(ref, int):
        found = tasks_from((yield query("read_task", id=ref)))
    elif isinstance(ref, str):
        found = yield from list_tasks.steps(name=ref, owner=identity.NOBODY if owner is None else owner)
    else:
        raise BadInput("task", task, "is no id and no name")
    if not found:
        raise UnknownTask(f"there is no task {task!r}" + ("" if owner is None else f" of owner {described(owner)}"))
    return found[0]


@reads
def list_tasks(
    *, owner: Any = None, owner_type: str | None = None, name: str | None = None, function: str | None = None,
    queue: str | None = None, group: str | None = None, submitter: str | None = None, state: str | None = None,
    search: str | None = None, after: int = 0, limit: int = AT_MOST,
) -> Steps[list[Task]]:  # fmt: skip
    """Tasks by id, those over `after`, at most `limit`.

    `state` is one of `STATES`; `late`: due for longer than two ticks. `search` is a part of the name, the function, the
    owner (`type:id`) or the subject, in any case. Of a large table `page_of_tasks` answers sooner.
    """
    wanted = yield from _wanted(
        owner=owner, owner_type=owner_type, name=name, function=function, queue=queue, group=group, submitter=submitter,
        state=state, search=search,
    )  # fmt: skip
    return (yield from _listed(wanted, after=after, before=None, limit=limited(limit)))


@reads
def page_of_tasks(*, after: int = 0, limit: int = 50, **filters: Any) -> Steps[TaskPage]:
    """The same, page by page, each in a bounded time: what no index knows (`name`, `function`, `queue`, `group`, `submitter`,
    `search` without an owner, a state that over 50,000 are in) is looked for in the next 100,000 tasks, and the page ends there."""
    wanted = yield from _wanted(**filters)
    beyond = (yield query("task_behind", after=after, count=SEARCHED)) if _is_search(wanted) else []
    before = beyond[0]["id"] if beyond else None
    found = yield from _listed(wanted, after=after, before=before, limit=limited(limit) + 1)
    if len(found) > limit:
        return TaskPage(tuple(found[:limit]), found[limit - 1].id, None)
    return TaskPage(tuple(found), before and before - 1, before and SEARCHED)


def _wanted(*, owner: Any = None, state: str | None = None, **said: str | None) -> Steps[dict[str, Any]]:
    """The filters of `list_tasks`; a state that many are in is `crowded`, and each is among the few tasks of an owner."""
    who = None if owner is None else identity.identify(owner)
    if state is not None and state not in STATES:
        raise BadInput("state", state, f"is none of: {', '.join(STATES)}")
    found: dict[str, Any] = dict.fromkeys(("owner_type", "owner_id", *READ_THROUGH, "state", "crowded")) | said
    if who is not None:
        found |= {"owner_type": who.type, "owner_id": who.id}
    is_walk = state not in (None, "running") and (who is not None or (yield from _is_crowded(state)))
    return found | {"crowded" if is_walk else "state": state}


def _is_crowded(state: str | None) -> Steps[bool]:
    [row] = yield query("is_crowded", state=state, most=CROWD, now=clock.now(), late_ms=late_ms())
    return bool(row["is_crowded"])


def _is_search(wanted: dict[str, Any]) -> bool:
    """Whether no index finds what is wanted."""
    if wanted["owner_id"] is not None or wanted["state"] is not None:
        return False
    return any(wanted[name] is not None for name in ("crowded", *READ_THROUGH))


def _listed(wanted: dict[str, Any], *, after: int, before: int | None, limit: int) -> Steps[list[Task]]:
    is_state_alone = not any(wanted[name] is not None for name in ("owner_type", "owner_id", *READ_THROUGH))
    rows = yield query(
        "list_tasks", **wanted, after=after, before=before, limit=limit, most=CROWD, first=limit if is_state_alone else None,
        now=clock.now(), late_ms=late_ms(),
    )  # fmt: skip
    return tasks_from(rows)


@reads
def due_tasks(*, limit: int = AT_MOST) -> Steps[list[Task]]:
    """What a tick would push now, oldest first; nothing is locked or changed."""
    return tasks_from((yield query("due_tasks", now=clock.now(), limit=limited(limit))))


@reads
def list_runs(
    *,
    task: Task | int | None = None,
    outcome: Outcome | None = None,
    before: int | None = None,
    limit: int = 100,
) -> Steps[list[RunRecord]]:
    """Runs and drops, the newest first: of one task, of one outcome, with an id under `before`."""
    ref = id_or_name(task)
    if isinstance(ref, str):
        raise BadInput("task", ref, "is a name; give the task or its id")
    wanted = {"outcome": outcome, "before": before, "limit": limited(limit)}
    if ref is None:
        return [_run(row) for row in (yield query("list_runs", **wanted))]
    return (yield from runs_by_id((yield query("runs_of_task", task_id=ref, **wanted))))[::-1]


@reads
def get_run(run_id: int, *, pieces: int = AT_MOST, after: int = 0) -> Steps[FullRun]:
    """One run or drop with all that is kept of it, and so many of its pieces, those with an id over `after`. UnknownRun where
    there is none: it may have been pruned."""
    ref = id_or_name(run_id)
    if not isinstance(ref, int):
        raise BadInput("run", run_id, "is no id of a run; list_runs has them")
    found = yield query("read_run", id=ref)
    if not found:
        raise UnknownRun(f"there is no run {ref}; it may have been pruned")
    run, texts = _run(found[0]), found[0]
    made = yield query("runs_of_parents", parents=[run.id], kind=RunKind.PIECE, after=after, limit=limited(pieces) + 1)
    return FullRun(
        run, texts["output"], texts["error_output"], tuple((yield from _attempts(run))),
        tuple((yield from runs_by_id(made[:pieces]))), made[pieces - 1]["id"] if len(made) > pieces else None,
    )  # fmt: skip


def runs_by_id(rows: Iterable[Row]) -> Steps[list[RunRecord]]:
    """The runs whose ids are in the rows, by their ids; those that are not there any more are left out."""
    return [_run(row) for row in (yield query("runs_by_id", ids=[row["id"] for row in rows]))]


def _attempts(run: RunRecord) -> Steps[list[RunRecord]]:
    if run.kind == RunKind.PIECE and run.parent_id is not None:
        return (yield from runs_by_id((yield query("attempts_of_piece", id=run.id, limit=AT_MOST))))
    first = run.parent_id if run.kind == RunKind.RETRY and run.parent_id is not None else run.id
    again = yield query("runs_of_parents", parents=[first], kind=RunKind.RETRY, after=0, limit=AT_MOST)
    return (yield from runs_by_id([{"id": first}, *again]))


@reads
def tickers(*, ended: bool = False) -> Steps[list[TickerStatus]]:
    """The tickers, the one that was heard of last first; a living one removes those that were silent for a day.

    `ended`: also those that ended cleanly.
    """
    found = [TickerStatus(**row) for row in (yield query("tickers"))]
    return [one for one in found if ended or "ended" not in one.last_report]


def _run(row: Row) -> RunRecord:
    values = {name: row[name] for name in RunRecord.__slots__}
    values["kind"] = RunKind(row["kind"])
    values["outcome"] = Outcome(row["outcome"]) if row["outcome"] else None
    return RunRecord(**values)


def late_ms() -> int:
    """Milliseconds behind its time from which on a task is late: two ticks."""
    return 2 * settings.current().tick_ms


def limited(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= AT_MOST:
        raise BadInput("limit", limit, f"is not a whole number from 1 to {AT_MOST}")
    return limit
