"""Reads tasks and runs as they are now, says which tasks are late, and reads the heartbeats of the tickers."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ticker.db.sql import Row
from ticker.db.steps import Steps, reads
from ticker.engine import timing
from ticker.errors import BadInput, UnknownRun, UnknownTask
from ticker.model import Outcome, Reason, RunKind
from ticker.read import gates
from ticker.read.explain import span
from ticker.schedules.duration import SECOND
from ticker.tasks import filters, identity
from ticker.tasks.fields import Owned, Task
from ticker.tasks.identity import Ref, id_or_name
from ticker.tasks.rows import instant, query, tasks_from

AT_MOST = 10_000  # rows of one answer
MILLISECOND = timedelta(milliseconds=1)
LEAST_GRACE = 5 * SECOND


@dataclass(frozen=True, slots=True)
class RunRecord(Owned):
    """The record of one run or drop, without its output. Times are in UTC; durations are in milliseconds.

    `parent_id` is the first run of a retry's occurrence, or the run that made a piece. `item` is that piece. `pieces`
    is how many pieces a run made. `retried`: it failed, and was attempted again. `until`: it is dead by then at the
    latest. `stop_requested_by` asked to stop it. `pid` is the process that ran the function; it is None while a single
    run is at work, as the worker asks for its start before the process exists.
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
    stop_requested_by: str | None
    stop_requested_at: datetime | None
    queue: str
    subject: str = ""

    @property
    def earliest(self) -> datetime | None:
        """The earliest start that its spacing allowed, if the numbers were recorded."""
        if self.checked_last_run is None or self.every_ms is None or self.tolerance_ms is None:
            return None
        return timing.earliest_start(self.checked_last_run, self.every_ms, self.tolerance_ms)

    derived = ("owner", "took_ms", "early_ms")

    @property
    def took_ms(self) -> int | None:
        """How long the run took. None while it runs, and for a lost run, whose end is not known."""
        if self.started_at is None or self.ended_at is None or self.outcome == Outcome.LOST:
            return None
        return round((self.ended_at - self.started_at) / MILLISECOND)

    @property
    def early_ms(self) -> int | None:
        """How much too early a dropped job was: last_run + interval - tolerance - checked_at."""
        if self.reason != Reason.TOO_EARLY or self.earliest is None or self.checked_at is None:
            return None
        return round((self.earliest - self.checked_at) / MILLISECOND)


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Tasks by id, and the id after which the next page begins, or None after the last page.

    `looked_through`: this page ended after a search of this many tasks, before it was full. Later tasks may match, too.
    """

    tasks: tuple[Task, ...]
    next: int | None
    looked_through: int | None


@dataclass(frozen=True, slots=True)
class FullRun:
    """One run with all of its records: its output, its attempts, and the pieces that it made.

    `attempts` has all attempts at its occurrence or piece, including the run itself. `pieces` has all attempts at its
    pieces, up to the number asked for. `next` is the id after which further pieces follow, or None.
    """

    run: RunRecord
    output: str
    error_output: str
    attempts: tuple[RunRecord, ...]
    pieces: tuple[RunRecord, ...]
    next: int | None = None


@dataclass(frozen=True, slots=True)
class TickerStatus:
    """The heartbeat of one ticker. `age_ms` is by the database's clock, and None before its first tick.

    `seen_at` is its last sign of life, `seen_ms` ago: a tick, a failed one, or a pass in progress. Without any for
    `patience_ms`, the ticker is silent. `failure` says why its ticks have failed for `failing_ms`, or is empty.
    """

    id: UUID
    host: str
    pid: int
    started_at: datetime
    last_tick_at: datetime | None
    last_report: dict[str, Any]
    age_ms: int | None
    failure: str
    failing_ms: int
    seen_at: datetime | None
    seen_ms: int | None
    patience_ms: int | None

    @property
    def has_ended(self) -> bool:
        """Returns whether the ticker was stopped cleanly."""
        return "ended" in self.last_report

    @property
    def refused(self) -> str:
        """Returns why the ticker refused to start, or an empty text."""
        return str(self.last_report.get("refused", ""))

    def silent_ms(self, most: int | None = None) -> int:
        """Returns for how long the ticker has been silent; 0 if that is at most `most`, which defaults to its patience.

        An age is negative if the clock was set back after the sign of life. Only its absolute value counts.
        """
        age, most = abs(self.seen_ms or 0), (self.patience_ms or 0) if most is None else most
        return age if age > most else 0

    def lives(self, most: int | None = None) -> bool:
        return self.seen_ms is not None and not self.has_ended and not self.silent_ms(most)

    def ticks(self, most: int | None = None) -> bool:
        """Returns whether the ticker lives, and its ticks do not fail."""
        return self.lives(most) and not self.failure

    @property
    def fails(self) -> str:
        """Returns a sentence that says why the ticks of the live ticker fail. Otherwise, returns an empty text."""
        if not self.failure or not self.lives():
            return ""
        lasts = span(self.failing_ms // SECOND * SECOND)
        return f"the ticks of pid {self.pid} on {self.host} have failed for {lasts}: {self.failure}"


@reads
def get(task: Ref, *, owner: Any = None) -> Steps[Task]:
    """Returns one task, by its id or by name and owner. Raises UnknownTask."""
    ref = id_or_name(task)
    if isinstance(ref, int):
        matching = yield from found("tasks_by_id", ids=[ref])
    elif isinstance(ref, str):
        matching = yield from list_tasks.steps(name=ref, owner=identity.NOBODY if owner is None else owner)
    else:
        raise BadInput("task", task, "is neither an id nor a name")
    if not matching:
        raise UnknownTask(
            f"there is no task {task!r}" + ("" if owner is None else f" of owner {identity.identify(owner)}")
        )
    return matching[0]


@reads
def list_tasks(
    *, owner: Any = None, owner_type: str | None = None, name: str | None = None, function: str | None = None,
    queue: str | None = None, group: str | None = None, submitter: str | None = None, state: str | None = None,
    search: str | None = None, cause: str | None = None, error: str | None = None, after: int = 0, limit: int = AT_MOST,
) -> Steps[list[Task]]:  # fmt: skip
    """Returns up to `limit` tasks with ids over `after`, by id.

    `state` is one of `TASK_STATES`. `late`: due for longer than a tick (at least 30 s) and its tolerance, and not
    started. A task that waits for room under its limits is `no_room` instead. `outside_hours` has no index. `search` is
    a part of the name, the function, the owner (`type:id`) or the subject; case is ignored. `cause` selects failing
    tasks, and `error` failing tasks whose last error contains this text, such as a host; case is ignored. For a large
    table, `page_of_tasks` is faster.
    """
    wanted = yield from filters.chosen(
        owner=owner, owner_type=owner_type, name=name, function=function, queue=queue, group=group, submitter=submitter,
        state=state, search=search, cause=cause, error=error,
    )  # fmt: skip
    rows = yield from filters.matching(wanted, after=after, before=None, limit=limited(limit))
    return (yield from gates.explained(tasks_from(rows)))


@reads
def page_of_tasks(*, after: int = 0, limit: int = 50, sort: str | None = None, **wanted: Any) -> Steps[TaskPage]:
    """Returns the tasks of `list_tasks` page by page, each page in a bounded time.

    Some filters have no index: `name`, `function`, `queue`, `group`, `submitter`, `search` and `error` without an
    owner, the state `outside_hours`, and states of over 50,000 tasks. With these, a page searches the next 100,000
    tasks, and ends there. So it does with `error` and a cause, because it reads a run of each task.

    `sort` orders failing tasks by `failures` in a row, the most first, or late ones by `lateness`. Then `after` and `next`
    are how many tasks come before a page. With `error`, failing tasks are searched in that order.
    """
    chosen, most = (yield from filters.chosen(**wanted)), limited(limit)
    paged = (
        filters.in_order(sort, chosen, after=after, limit=most)
        if sort
        else filters.page(chosen, after=after, limit=most)
    )
    page = yield from paged
    return TaskPage(tuple((yield from gates.explained(tasks_from(page.rows)))), page.next, page.looked_through)


def found(name: str, /, **parameters: Any) -> Steps[list[Task]]:
    """Returns the tasks that a statement finds, with what they wait for."""
    return (yield from gates.explained(tasks_from((yield query(name, **parameters)))))


@reads
def due_tasks() -> Steps[list[Task]]:
    """Returns the tasks that a tick would push now, oldest first. Nothing is locked or changed."""
    return (yield from found("due_tasks", now=(yield from instant()), look_ahead=0, limit=AT_MOST))


@reads
def get_run(run_id: int, *, pieces: int = AT_MOST, after: int = 0) -> Steps[FullRun]:
    """Returns one run or drop with all of its records, and up to `pieces` pieces with ids over `after`.

    Raises UnknownRun if there is no such run; it may have been pruned.
    """
    ref = identity.run_id(run_id)
    rows = yield query("read_run", id=ref)
    if not rows:
        raise UnknownRun(f"there is no run {ref}; it may have been pruned")
    row = dict(rows[0])
    output, error_output = row.pop("output"), row.pop("error_output")
    run = run_from(row)
    most = limited(pieces)
    made = yield query("runs_of_parents", parents=[run.id], kind=RunKind.PIECE, after=after, limit=most + 1)
    return FullRun(
        run, output, error_output, tuple((yield from _attempts(run))), tuple((yield from runs_by_id(made[:most]))),
        made[most - 1]["id"] if len(made) > most else None,
    )  # fmt: skip


def runs_by_id(rows: Iterable[Row]) -> Steps[list[RunRecord]]:
    """Returns the runs whose ids are in the rows, by id. Deleted runs are left out."""
    ids = [row["id"] for row in rows]
    return [run_from(row) for row in (yield query("runs_by_id", ids=ids))] if ids else []


def _attempts(run: RunRecord) -> Steps[list[RunRecord]]:
    if run.kind == RunKind.PIECE and run.parent_id is not None:
        return (yield from runs_by_id((yield query("attempts_of_piece", id=run.id, limit=AT_MOST))))
    first = run.parent_id if run.kind == RunKind.RETRY and run.parent_id is not None else run.id
    again = yield query("runs_of_parents", parents=[first], kind=RunKind.RETRY, after=0, limit=AT_MOST)
    return (yield from runs_by_id([{"id": first}, *again]))


@reads
def tickers(*, ended: bool = False) -> Steps[list[TickerStatus]]:
    """Returns the tickers, latest sign of life first. A live ticker removes tickers that have been silent for a day.

    `ended` includes tickers that ended cleanly.
    """
    known = [TickerStatus(**{**row, "failing_ms": row["failing_ms"] or 0}) for row in (yield query("tickers"))]
    return [one for one in known if ended or not one.has_ended]


@reads
def tick_ms() -> Steps[int | None]:
    """Returns the tick of the ticker that is alive, in milliseconds, or None."""
    [row] = yield query("tick_ms")
    return row["tick_ms"]  # type: ignore[no-any-return]


def run_from(row: Row) -> RunRecord:
    outcome = Outcome(row["outcome"]) if row["outcome"] else None
    return RunRecord(**{**row, "kind": RunKind(row["kind"]), "outcome": outcome})


def limited(limit: int) -> int:
    """Returns the number of rows that an answer may have, checked. Raises BadInput."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= AT_MOST:
        raise BadInput("limit", limit, f"is not a whole number from 1 to {AT_MOST}")
    return limit


# ---------------------------------------------------------------------------------------------------------- lateness


def due_since(next_run: datetime, task: Task) -> datetime:
    """Returns since when the task has been due. Time during which it was paused or disabled does not count."""
    return max(next_run, task.resumed_at or next_run)


def late_since(task: Task, now: datetime) -> datetime | None:
    """Returns since when the task has been due without a start, whether a job of it waits or not; None if it is not
    late. The rule `late` (ticker/db/sql/rules.sql) says the same.
    """
    if not task.is_runnable:
        return None
    bound = now - timing.span(filters.late_ms() + max(task.tolerance_ms, LEAST_GRACE))
    due = (
        *task.waiting[:1],
        *([due_since(task.next_run, task)] if task.next_run and task.waits_for != "no_room" else []),
    )
    return min((since for since in due if since < bound), default=None)
