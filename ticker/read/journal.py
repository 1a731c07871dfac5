"""Lists ended runs, drops and events, and counts the drops. Nothing is written or locked."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ticker.db.steps import Steps, reads
from ticker.errors import BadInput
from ticker.model import LARGEST_ID, Outcome, Reason
from ticker.read import tasks
from ticker.read.entries import (
    JournalEntry,
    event_from,
    graces_of,
    instant,
    line_of_event,
    line_of_run,
    look_up,
    pieces_of,
)
from ticker.read.explain import ExplainContext
from ticker.read.tasks import RunRecord
from ticker.schedules import once
from ticker.schedules.duration import milliseconds, whole
from ticker.tasks import identity
from ticker.tasks.fields import Owned, Task
from ticker.tasks.identity import Ref, id_or_name
from ticker.tasks.rows import query, sees_all

ENDED = [str(outcome) for outcome in Outcome if outcome is not Outcome.DROPPED]
REASONS = [str(reason) for reason in Reason]
LATE = timedelta(seconds=30)  # how long after its instant a row may become visible
MOST_AT_ONCE = 1_000_000  # more than ended or happened within `LATE`
GROUPS = ("reason", "owner", "task", "function")
SEARCHED = 20_000  # ends through which one page searches for a function, a queue or a text, for which there is no index
MOST_AROUND = 2_000  # entries that are read to find those right after a moment
AFTER_AT_MOST = 1_000_000  # groups of drops that may be skipped before a page

Past = datetime | timedelta | str | None
"""A time with a zone, or a duration before now; as text, `09:00` (UTC, today or yesterday), `2h` (ago) or ISO 8601 with
a zone.
"""

_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?Z?", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-", re.ASCII)


class Wanted(NamedTuple):
    """Selects the runs, drops and events of a journal. None means any."""

    task_id: int | None = None
    owner_type: str | None = None
    owner_id: str | None = None
    outcomes: Sequence[str] = ENDED
    reasons: Sequence[str] = REASONS
    events: bool = True
    function: str | None = None
    queue: str | None = None
    search: str | None = None

    @property
    def is_search(self) -> bool:
        """Whether no index finds the entries. Those of a task or an owner are few."""
        has_index = self.task_id is not None or self.owner_id is not None
        is_part = not sees_all() and (list(self.outcomes) != ENDED or list(self.reasons) != REASONS)
        return not has_index and (is_part or any(one is not None for one in (self.function, self.queue, self.search)))


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
    return list((yield from page.steps(wanted, since=since, until=until, limit=limit)).lines[::-1])


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
        ref = id_or_name(task)
        if isinstance(ref, str):
            raise BadInput("task", ref, "is a name; pass the task or its id")
        asked = {"outcome": outcome, "before": before, "limit": tasks.limited(limit)}
        if ref is None:
            return [tasks.run_from(row) for row in (yield query("list_runs", **asked))]
        return (yield from tasks.runs_by_id((yield query("runs_of_task", task_id=ref, **asked))))[::-1]
    if before is not None:
        raise BadInput("before", before, f"cannot be combined with {given[0]}; use until instead")
    wanted = yield from select.steps(task=task, owner=owner, owner_type=owner_type, outcome=outcome, reason=reason)
    listed = yield from page.steps(wanted._replace(events=False), since=since, until=until, limit=limit)
    return [line.run for line in listed.lines if line.run]


class Page(NamedTuple):
    """Lines, newest first, and the key before which the next page begins, or None after the last page.

    A search looks through a limited number of ends per page. If it stopped there, `looked_through` is that number, and
    the page may be empty. `total`: how many entries there are from the first line on, up to `count_to`, or None if a
    search stopped before.
    """

    lines: tuple[JournalEntry, ...]
    next: Key | None
    looked_through: int | None
    total: int | None


@reads
def page(
    wanted: Wanted, *, since: Past = None, until: Past = None, before: Key | None = None, around: Past = None,
    limit: int = 50, count_to: int = 0,
) -> Steps[Page]:  # fmt: skip
    """Returns one page of the journal, newest first. Counts up to `count_to` entries, but at least those of the page.

    Without `before`, the page may be `around` a time: half of its entries are from then on, if so many follow soon.
    """
    most, now = tasks.limited(limit), (yield from instant.steps())
    begin, end = between(since, until, now)
    first = min((key for key in (before, before_all(end)) if key), default=None)
    if before is None and (at := past("at", around, now)):
        first = yield from after(wanted, at, end, now, most // 2)
    found, last = yield from search(wanted, begin, max(most + 1, count_to), first)
    shown, is_full = found[::-1][:most], len(found) > most
    entries = tuple((yield from lines(shown, now)))
    total = None if last and len(found) < count_to else len(found)
    return Page(entries, shown[-1], None, total) if is_full else Page(entries, last, SEARCHED if last else None, total)


@reads
def select(
    *, task: Ref = None, owner: Any = None, owner_type: str | None = None, outcome: Outcome | None = None,
    reason: Reason | None = None, function: str | None = None, queue: str | None = None, search: str | None = None,
) -> Steps[Wanted]:  # fmt: skip
    """Checks and returns the filter of a journal. A name stands for the owner's current task of that name.

    `search` is a part of the reason of a run or drop. All filters but those of the task and its owner exclude events. Raises BadInput if nothing could match all filters.
    """
    if owner_type is not None and owner is not None:
        raise BadInput(
            "owner_type", owner_type, "cannot be combined with an owner, which has a type; leave out one of them"
        )
    for field, kind, value in (("outcome", Outcome, outcome), ("reason", Reason, reason)):
        if value is not None and value not in list(kind):
            raise BadInput(field, value, f"is not one of: {', '.join(kind)}")
    if reason is not None and outcome not in (None, Outcome.DROPPED):
        raise BadInput("reason", str(reason), f"applies to drops, but the outcome is {outcome}; leave out one of them")
    named = None if owner is None else identity.identify(owner)
    task_id, row = (None, None) if task is None else (yield from look_up(task, owner))
    wanted = Wanted(
        task_id,
        named.type if named else owner_type,
        named.id if named else None,
        [one for one in ENDED if reason is None and outcome in (None, one)],
        [one for one in REASONS if outcome in (None, Outcome.DROPPED) and reason in (None, one)],
        all(one is None for one in (outcome, reason, function, queue, search)),
        function,
        queue,
        search,
    )
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
    relation = f"belongs to {task.owner}" if task.owner else "has no owner"
    raise BadInput(
        field, value, f"cannot be combined with task {wanted.task_id}, which {relation}; leave out one of them"
    )


def before_all(end: datetime | None) -> Key | None:
    """Returns the key before which all entries are that were made before `end`."""
    return None if end is None else (end, "event", 0)


def after(wanted: Wanted, at: datetime, end: datetime | None, now: datetime, count: int) -> Steps[Key | None]:
    """Returns the key before which a page ends that begins with `count` entries from `at` on.

    An index is read backwards, so longer and longer spans are read. If a span has too many entries, the previous span
    counts.
    """
    last, width = end or now, timedelta(milliseconds=100)
    key = before_all(at)
    while True:
        until = at + width
        is_last = until >= last
        bound = before_all(end if is_last else until)
        later, looked = yield from search(wanted, at, MOST_AROUND, bound)
        if looked or len(later) == MOST_AROUND:
            return key
        key = later[count] if len(later) > count else bound
        if is_last or len(later) > count:
            return key
        width *= 8


def keys(wanted: Wanted, since: datetime | None, limit: int, before: Key | None = None) -> Steps[list[Key]]:
    """Returns the last keys that match and are before `before`, oldest first."""
    return (yield from search(wanted, since, limit, before))[0]


def search(
    wanted: Wanted, since: datetime | None, limit: int, before: Key | None = None
) -> Steps[tuple[list[Key], Key | None]]:
    """Returns these keys, and the one at which a search has looked through as many as it may."""
    at, sort, id_ = before or (None, "run", LARGEST_ID)
    most = SEARCHED if wanted.is_search else limit
    given = {**wanted._asdict(), "since": since, "limit": limit, "before": at, "most": most}
    rows = yield query(_statement(wanted), **given, before_run=id_ if sort == "run" else 0)
    found = [(row["at"], "run", row["id"]) for row in rows if row.get("fits", True)]
    ends = [(row["at"], "run", row["id"]) for row in rows if wanted.is_search and row["is_last"]]
    if wanted.events:
        rows = yield query("journal_of_events", **given, before_event=id_ if sort == "event" else LARGEST_ID)
        found += [(row["at"], "event", row["id"]) for row in rows]
    return sorted(found)[-limit:], next(iter(ends), None)


def lines(ordered: Sequence[Key], now: datetime) -> Steps[list[JournalEntry]]:
    """Returns the lines that still exist, in the order of the keys."""
    run_ids, event_ids = ([id_ for _, sort, id_ in ordered if sort == wanted] for wanted in ("run", "event"))
    runs = yield from tasks.runs_by_id({"id": id_} for id_ in run_ids)
    pieces, graces = (yield from pieces_of(runs)), (yield from graces_of(runs))
    by_key = dict[tuple[str, int], JournalEntry]()
    for one in runs:
        line = line_of_run(one, ExplainContext(now, grace_ms=graces.get(one.task_id), pieces=pieces.get(one.id)))
        by_key["run", one.id] = replace(line, at=one.ended_at or line.at)
    for row in (yield query("events_by_id", ids=event_ids)) if event_ids else []:
        by_key["event", row["id"]] = line_of_event(event_from(row))
    return [by_key[sort, id_] for _, sort, id_ in ordered if (sort, id_) in by_key]


# ------------------------------------------------------------------------------------------------------------ drops


@dataclass(frozen=True, slots=True)
class Drops:
    """Drops with the same reason, owner, task or function (`key`). `example` is the newest one."""

    key: str
    count: int
    newest: datetime
    example: JournalEntry | None


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
    after = whole("after", after, 0, AFTER_AT_MOST)
    now = yield from instant.steps()
    begin, end = between(since, until, now)
    most = after + tasks.limited(limit)
    rows = (yield query("drops", by=by, reasons=REASONS, since=begin, until=end, limit=most))[after:]
    newest = yield from tasks.runs_by_id({"id": row["run_id"]} for row in rows)
    examples = {run.id: line_of_run(run, ExplainContext(now)) for run in newest}
    return [Drops(row["key"], row["count"], row["newest"], examples.get(row["run_id"])) for row in rows]


@dataclass(frozen=True, slots=True)
class Deleted(Owned):
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


# ------------------------------------------------------------------------------------------------------- two times


def past(field: str, value: Past, now: datetime) -> datetime | None:
    """Returns the time. Raises BadInput if it is not a time, or is after `now`."""
    if value is None:
        return None
    at = _text(field, value, now) if isinstance(value, str) else now - value if isinstance(value, timedelta) else value
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise BadInput(field, value, "is not a time with a zone; write datetime(..., tzinfo=UTC)")
    if at > now:
        raise BadInput(field, at.isoformat(), "is in the future; for upcoming times, use: ticker next")
    return at


def between(since: Past, until: Past, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Returns the two times. Raises BadInput if the second one is not after the first."""
    begin, end = past("since", since, now), past("until", until, now)
    if begin and end and end <= begin:
        raise BadInput("until", end.isoformat(), f"is not after since, which is {begin.isoformat()}")
    return begin, end


def _statement(wanted: Wanted) -> str:
    """Returns the name of the statement that finds the entries by an index, if one does."""
    if wanted.task_id is not None:
        return "journal_of_task"
    if wanted.owner_id:
        return "journal_of_owner"
    return "journal" if sees_all() else "journal_of_owners"


def _text(field: str, text: str, now: datetime) -> datetime:
    bare = re.sub(r"\s*UTC$", "Z", text.strip())
    if match := _TIME_OF_DAY.fullmatch(bare):
        hour, minute, second = (int(part or 0) for part in match.groups())
        today = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return today if today <= now else today - timedelta(days=1)
    bare = bare.removesuffix(" ago").rstrip()
    if _DATE.match(bare):
        return once.instant(field, bare, lambda: now)
    try:
        return now - timedelta(milliseconds=milliseconds(field, bare))
    except BadInput:
        raise BadInput(
            field, text, "is not a time in the past; write 09:00 (UTC), 2h (ago), or 2026-07-01T12:00:00Z"
        ) from None


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

    def begin(self, since: Past, until: Past, limit: int) -> Steps[list[JournalEntry]]:
        now = yield from instant.steps()
        begin, end = between(since, until, now)
        self._since = now - LATE
        recent = yield from keys(self._wanted, self._since, MOST_AT_ONCE)
        first = yield from keys(self._wanted, begin, limit, before_all(end))
        self._returned = {*recent, *first}
        return (yield from lines(first, now))

    def more(self) -> Steps[list[JournalEntry]]:
        now = yield from instant.steps()
        recent = yield from keys(self._wanted, self._since, MOST_AT_ONCE)
        new = [key for key in recent if key not in self._returned]
        self._since = now - LATE
        self._returned = {key for key in recent if key[0] >= self._since}
        return (yield from lines(new, now))
