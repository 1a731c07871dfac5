"""Reads the journal of all runs, drops and events, and counts the drops. Nothing is written or locked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ticker.db.sql import Row
from ticker.db.steps import Database, Steps, reads, run
from ticker.errors import BadInput
from ticker.model import LARGEST_ID, Outcome, Reason
from ticker.read import tasks
from ticker.read.entries import (
    JournalEntry,
    at_its_end,
    event_from,
    instant,
    line_of_event,
    line_of_run,
    look_up,
    pieces_of,
)
from ticker.read.explain import ExplainContext
from ticker.read.past import Past, between
from ticker.read.tasks import AT_MOST, RunRecord
from ticker.tasks import identity
from ticker.tasks.fields import Task
from ticker.tasks.queries import query
from ticker.tasks.reference import Ref

ENDED = [str(outcome) for outcome in Outcome if outcome is not Outcome.DROPPED]
REASONS = [str(reason) for reason in Reason]
LATE = timedelta(seconds=30)  # how long after its instant a row may become visible
GROUPS = ("reason", "owner", "task", "function")
AFTER_AT_MOST = 1_000_000  # groups of drops that may be skipped before a page


@dataclass(frozen=True, slots=True)
class Drops:
    """Drops with the same reason, owner, task or function (`key`). `example` is the newest one."""

    key: str
    count: int
    newest: datetime
    example: JournalEntry | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selects the runs, drops and events of a journal. None means any. An outcome or a reason excludes events."""

    task_id: int | None = None
    owner_type: str | None = None
    owner_id: str | None = None
    outcomes: Sequence[str] = tuple(ENDED)
    reasons: Sequence[str] = tuple(REASONS)
    events: bool = True


Key = tuple[datetime, str, int]
"""The instant of an end or an event, `run` or `event`, and its id."""


@reads
def journal(
    *, task: Ref = None, owner: Any = None, owner_type: str | None = None, outcome: Outcome | None = None,
    reason: Reason | None = None, since: Past = None, until: Past = None, limit: int = 100,
) -> Steps[list[JournalEntry]]:  # fmt: skip
    """Returns the last `limit` ended runs, drops and events that match, oldest first.

    `since` and `until` are times, or durations before now (`2h`). An entry at `until` is left out. Without `task`,
    `owner` selects all tasks that the owner has or had. `reason` applies to drops. Runs that have not ended are left
    out.
    """
    wanted = yield from select.steps(task=task, owner=owner, owner_type=owner_type, outcome=outcome, reason=reason)
    begin, end = between(since, until, (yield from instant.steps()))
    return (yield from lines((yield from keys(wanted, begin, tasks.limited(limit), ahead_of(end)))))


@reads
def list_runs(
    *, task: Ref = None, owner: Any = None, owner_type: str | None = None, outcome: Outcome | None = None,
    reason: Reason | None = None, since: Past = None, until: Past = None, before: int | None = None, limit: int = 100,
) -> Steps[list[RunRecord]]:  # fmt: skip
    """Returns runs and drops, newest first: all, or those of one task, with one outcome, or with ids under `before`.

    With `owner`, `owner_type`, `reason`, `since` or `until`, returns those that have ended and match, as `journal`
    does, the last end first. `before` cannot be combined with these.
    """
    filters = {"owner": owner, "owner_type": owner_type, "reason": reason, "since": since, "until": until}
    if not (given := [name for name, value in filters.items() if value is not None]):
        return (yield from tasks.newest_runs(task, outcome, before, limit))
    if before is not None:
        raise BadInput("before", before, f"cannot be combined with {given[0]}; use until instead")
    wanted = yield from select.steps(task=task, owner=owner, owner_type=owner_type, outcome=outcome, reason=reason)
    found = yield from page.steps(replace(wanted, events=False), since=since, until=until, limit=limit)
    return [line.run for line in found.lines if line.run]


@dataclass(frozen=True, slots=True)
class Page:
    """Lines, newest first, and the key before which the next page begins, or None after the last page."""

    lines: tuple[JournalEntry, ...]
    next: Key | None


@reads
def page(
    wanted: Wanted, *, since: Past = None, until: Past = None, before: Key | None = None, limit: int = 50
) -> Steps[Page]:  # fmt: skip
    """Returns one page of the journal, newest first."""
    begin, end = between(since, until, (yield from instant.steps()))
    first = min((key for key in (before, ahead_of(end)) if key), default=None)
    newest = (yield from keys(wanted, begin, tasks.limited(limit) + 1, first))[::-1]
    shown = newest[:limit]
    return Page(tuple((yield from lines(shown))), shown[-1] if len(newest) > limit else None)


@reads
def select(
    *, task: Ref = None, owner: Any = None, owner_type: str | None = None, outcome: Outcome | None = None,
    reason: Reason | None = None,
) -> Steps[Wanted]:  # fmt: skip
    """Checks and returns the filter of a journal. A name stands for the owner's current task of that name.

    Raises BadInput if the task belongs to another owner, because nothing could match both.
    """
    if owner_type is not None and owner is not None:
        raise BadInput(
            "owner_type", owner_type, "cannot be combined with an owner, which has a type; leave out one of them"
        )
    named = None if owner is None else identity.identify(owner)
    outcomes, reasons = chosen(outcome, reason)
    task_id, row = (None, None) if task is None else (yield from look_up(task, owner))
    wanted = Wanted(
        task_id, named.type if named else owner_type, named.id if named else None, outcomes, reasons,
        outcome is None and reason is None,
    )  # fmt: skip
    if task_id is not None and wanted.owner_type is not None:
        check_owner(wanted, row or (yield from deleted.steps([task_id])).get(task_id))
    return wanted


def check_owner(wanted: Wanted, task: "Task | Deleted | None") -> None:
    """Raises BadInput if the task belongs to another owner. The owner of a deleted task without a record is unknown."""
    if task is None or (isinstance(task, Deleted) and not task.task_name):
        return
    if task.owner_type == wanted.owner_type and wanted.owner_id in (None, task.owner_id):
        return
    has_id = wanted.owner_id is not None
    field, value = ("owner", f"{wanted.owner_type}:{wanted.owner_id}") if has_id else ("owner_type", wanted.owner_type)
    relation = f"belongs to {task.owner_type}:{task.owner_id}" if task.owner_type else "has no owner"
    raise BadInput(
        field, value, f"cannot be combined with task {wanted.task_id}, which {relation}; leave out one of them"
    )


def chosen(outcome: Outcome | None, reason: Reason | None) -> tuple[list[str], list[str]]:
    """Returns the chosen outcomes other than `dropped`, and the chosen reasons for drops."""
    if reason is not None:
        if outcome not in (None, Outcome.DROPPED):
            raise BadInput(
                "reason", str(reason), f"applies to drops, but the outcome is {outcome}; leave out one of them"
            )
        return [], [str(member("reason", Reason, reason))]
    if outcome is None:
        return ENDED, REASONS
    chosen_outcome = member("outcome", Outcome, outcome)
    return ([], REASONS) if chosen_outcome is Outcome.DROPPED else ([str(chosen_outcome)], [])


def member(field: str, kind: Any, value: object) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise BadInput(field, value, f"is not one of: {', '.join(kind)}") from None


def keys(
    wanted: Wanted, since: datetime | None, limit: int, before: Key | None = None
) -> Steps[list[Key]]:  # fmt: skip
    """Returns the last keys that match and are before `before`, oldest first."""
    result = [(row["at"], "run", row["id"]) for row in (yield from ended(wanted, since, limit, before))]
    if wanted.events:
        rows = yield query(
            "journal_of_events", task_id=wanted.task_id, owner_type=wanted.owner_type, owner_id=wanted.owner_id,
            since=since, limit=limit, before=before and before[0],
            before_event=before[2] if before and before[1] == "event" else LARGEST_ID,
        )  # fmt: skip
        result += [(row["at"], "event", row["id"]) for row in rows]
    return sorted(result)[-limit:]


def ahead_of(end: datetime | None) -> Key | None:
    """Returns the key before which all entries are that were made before `end`."""
    return None if end is None else (end, "event", 0)


def all_keys(wanted: Wanted, since: datetime | None) -> Steps[list[Key]]:
    """Returns all matching keys from `since` on, oldest first. Increases the limit until it exceeds their number."""
    limit = AT_MOST
    while len(result := (yield from keys(wanted, since, limit))) == limit:
        limit *= 4
    return result


def ended(wanted: Wanted, since: datetime | None, limit: int, before: Key | None) -> Steps[list[Row]]:
    common = {
        "outcomes": list(wanted.outcomes), "reasons": list(wanted.reasons), "since": since, "limit": limit,
        "before": before and before[0],
        "before_run": LARGEST_ID if before is None else before[2] if before[1] == "run" else 0,
    }  # fmt: skip
    if wanted.task_id is not None:
        return (yield query("journal_of_task", task_id=wanted.task_id, **common))
    if wanted.owner_id:
        return (yield query("journal_of_owner", owner_type=wanted.owner_type, owner_id=wanted.owner_id, **common))
    if wanted.owner_type is not None:
        return (yield query("journal", owner_types=[wanted.owner_type], **common))
    types = [row["owner_type"] for row in (yield query("owner_types"))]
    return (yield query("journal", owner_types=types, **common))


def lines(ordered: Sequence[Key]) -> Steps[list[JournalEntry]]:
    """Returns the lines that still exist, in the order of the keys."""
    now = yield from instant.steps()
    run_ids, event_ids = ([id_ for _, sort, id_ in ordered if sort == wanted] for wanted in ("run", "event"))
    runs = (yield from tasks.runs_by_id({"id": id_} for id_ in run_ids)) if run_ids else []
    pieces = yield from pieces_of(runs)
    by_key = {
        ("run", run.id): at_its_end(line_of_run(run, ExplainContext(now, pieces=pieces.get(run.id)))) for run in runs
    }
    for row in (yield query("events_by_id", ids=event_ids)) if event_ids else []:
        by_key["event", row["id"]] = line_of_event(event_from(row))
    return [by_key[sort, id_] for _, sort, id_ in ordered if (sort, id_) in by_key]


# ------------------------------------------------------------------------------------------------------------ drops


@reads
def drops(
    *, by: str = "reason", since: Past = None, until: Past = None, limit: int = 100, after: int = 0
) -> Steps[list[Drops]]:
    """Counts the jobs dropped from `since` on and before `until`, by `reason`, `owner`, `task` (its id) or `function`,
    largest groups first.

    `after` skips the first groups, up to 1,000,000.
    """
    if by not in GROUPS:
        raise BadInput("by", by, f"is not one of: {', '.join(GROUPS)}")
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after <= AFTER_AT_MOST:
        raise BadInput("after", after, f"is not a whole number from 0 to {AFTER_AT_MOST}")
    now = yield from instant.steps()
    begin, end = between(since, until, now)
    rows = yield query("drops", by=by, since=begin, until=end, limit=tasks.limited(limit), after=after)
    context = ExplainContext(now)
    newest = yield from tasks.runs_by_id({"id": row["run_id"]} for row in rows)
    examples = {run.id: line_of_run(run, context) for run in newest}
    return [Drops(row["key"], row["count"], row["newest"], examples.get(row["run_id"])) for row in rows]


@dataclass(frozen=True, slots=True)
class Deleted:
    """A deleted task, as its newest record names it. All texts are empty if no record is left."""

    id: int
    task_name: str
    owner_type: str
    owner_id: str


@reads
def deleted(task_ids: Iterable[int]) -> Steps[dict[int, Deleted]]:
    """Returns the given tasks that were deleted, by id."""
    rows = yield query("deleted_tasks", ids=list(set(task_ids)))
    return {row["id"]: Deleted(**row) for row in rows}


# -------------------------------------------------------------------------------------------------------- going on


class Tail:
    """A journal that is followed: after `begin`, each call of `more` returns the new lines, oldest first.

    A row becomes visible at its commit, a little after its own instant. A row that a tick writes has the instant at
    which that tick began. Each read therefore goes back to half a minute before the previous one, and omits lines
    already returned.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._since: datetime | None = None
        self._returned: set[Key] = set()

    def begin(self, db: Database, since: Past, until: Past, limit: int) -> list[JournalEntry]:
        return run(db, self._begin(since, until, limit))

    def more(self, db: Database) -> list[JournalEntry]:
        return run(db, self._more())

    def _begin(self, since: Past, until: Past, limit: int) -> Steps[list[JournalEntry]]:
        now = yield from instant.steps()
        begin, end = between(since, until, now)
        self._since = now - LATE
        recent = yield from all_keys(self._wanted, self._since)
        first = yield from keys(self._wanted, begin, limit, ahead_of(end))
        self._returned = {*recent, *first}
        return (yield from lines(first))

    def _more(self) -> Steps[list[JournalEntry]]:
        now = yield from instant.steps()
        recent = yield from all_keys(self._wanted, self._since)
        new = [key for key in recent if key not in self._returned]
        self._since = now - LATE
        self._returned = {key for key in recent if key[0] >= self._since}
        return (yield from lines(new))
