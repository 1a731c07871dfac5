"""Explains why a task ran, or did not: each of its occurrences with the numbers that decided it, and what happens next.

    print(*ticker.why(db, "mail.fetch", owner="mail_channels:5").lines, sep="\\n")

`db` is any connection that `register` accepts. Nothing is written or locked. `explain` describes what has happened, and
`forecast` describes what happens next.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ticker.db.steps import Steps, reads
from ticker.errors import UnknownTask
from ticker.model import EventKind, Reason, RunKind
from ticker.read import explain, gates, tasks
from ticker.read.entries import (
    Event,
    JournalEntry,
    event_from,
    instant,
    line_of_event,
    line_of_run,
    look_up,
    pieces_of,
)
from ticker.read.explain import ExplainContext
from ticker.read.forecast import following, held, stopped, then
from ticker.read.journal import Past, past
from ticker.read.tasks import AT_MOST, RunRecord
from ticker.tasks.fields import Task
from ticker.tasks.identity import Ref
from ticker.tasks.rows import query

EVENTS_AT_MOST = 1000  # the newest events of one task; earlier ones are left out
LOOKED_AT = 100  # a task's newest occurrences, which are searched for open runs


@dataclass(frozen=True, slots=True)
class Why:
    """The last occurrences of a task (with `at`: those around that time), oldest first, and what happens next.

    `then` describes the task at the time `at`. `next` says what happens next, and whether a ticker is alive. `task` is
    None if the task was deleted.
    """

    task_id: int
    task: Task | None
    now: datetime
    at: datetime | None
    lines: tuple[JournalEntry, ...]
    then: tuple[str, ...]
    next: tuple[str, ...]


@reads
def why(task: Ref, *, owner: Any = None, at: Past = None, limit: int = 20) -> Steps[Why]:
    """Explains why a task ran, or did not: its last `limit` occurrences, or those around `at`, and what happens next.

    A deleted task is found by its id, as long as any record of it is kept. Otherwise, raises UnknownTask.
    """
    task_id, row = yield from look_up(task, owner)  # first, because it may flush a pending owner
    now = yield from instant.steps()
    row = row and (yield from gates.explained([row], now))[0]
    at = past("at", at, now)
    newest_first = yield query("last_events", task_id=task_id, limit=EVENTS_AT_MOST)
    events = [event_from(event) for event in newest_first[::-1]]
    limit = tasks.limited(limit)
    last = yield query("last_occurrences", task_id=task_id, limit=max(limit, LOOKED_AT))
    newest = yield from tasks.runs_by_id(last)
    first = newest[-limit:]
    if at is not None:
        rows = yield query("occurrences_around", task_id=task_id, at=at, limit=limit)
        first = yield from tasks.runs_by_id(rows)
    runs = yield from with_retries(first)
    if row is None and not runs and not events:
        raise UnknownTask(f"there is no task {task_id}, and no record of one")
    lines = yield from run_lines(row, runs, events, now)
    shown = around(sorted([*lines, *waiting(row, now)], key=due_of), at, limit)
    between = [line_of_event(event) for event in events if is_between(event, shown, limit, at)]
    tickers = yield from tasks.tickers.steps(ended=True)
    waited = (yield from gates.then(row, at, now)) if at else []
    still_open = [run for run in (yield from with_retries(newest[-LOOKED_AT:])) if run.state != "ended"]
    halved = (yield query("halved", function=row.function, now=now)) if row else []
    return Why(
        task_id, row, now, at, tuple(sorted([*shown, *between], key=lambda line: line.at)),
        (*waited, *then(row, events, runs, tickers, at)) if at else (),
        tuple(following(row, still_open, tickers, now, [one["words"] for one in halved])) if row
        else (gone(runs, events, now),),
    )  # fmt: skip


def with_retries(runs: Sequence[RunRecord]) -> Steps[list[RunRecord]]:
    """Returns the runs, followed by the further attempts of their occurrences."""
    failed = [run.id for run in runs if run.retried]
    given = {"parents": failed, "kind": RunKind.RETRY, "after": 0, "limit": AT_MOST}
    rows = (yield query("runs_of_parents", **given)) if failed else []
    return [*runs, *(yield from tasks.runs_by_id(rows))]


def run_lines(
    task: Task | None, runs: Sequence[RunRecord], events: Sequence[Event], now: datetime
) -> Steps[list[JournalEntry]]:
    pieces = yield from pieces_of(runs)
    usual = ExplainContext(now, task.retries + 1 if task else 1, task.grace_ms if task else None)
    return [
        line_of_run(run, replace(usual, pieces=pieces.get(run.id), because=because(run, task, runs, events)))
        for run in runs
    ]


def because(run: RunRecord, task: Task | None, runs: Sequence[RunRecord], events: Sequence[Event]) -> str:
    """Returns what other rows say about a drop: who had paused the task, or which run held it."""
    if run.checked_at is None:
        return ""
    if run.reason == Reason.PAUSED:
        return "; ".join(stopped(task, events, run.checked_at))
    if run.reason == Reason.STILL_RUNNING:
        return "; ".join(held(runs, run.checked_at))
    if run.reason == Reason.SUPERSEDED:
        return "; ".join([*stopped(task, events, run.checked_at), *held(runs, run.checked_at)])
    return ""


def waiting(task: Task | None, now: datetime) -> list[JournalEntry]:
    if task is None:
        return []
    return [
        JournalEntry(due, "waiting", explain.waiting(due, now), task.id, task.name, task.owner_type, task.owner_id, due)
        for due in task.waiting
    ]


def due_of(line: JournalEntry) -> datetime:
    return line.due or line.at


def around(lines: Sequence[JournalEntry], at: datetime | None, limit: int) -> list[JournalEntry]:
    """Returns the last lines, or those up to `at` and the next one after it. Includes the retries of each occurrence."""
    first = [line for line in lines if line.run is None or line.run.kind != RunKind.RETRY]
    before = [line for line in first if at is None or due_of(line) <= at][-limit:]
    after = [line for line in first if at is not None and due_of(line) > at][:1]
    shown = [*before, *after]
    ids = {line.run.id for line in shown if line.run}
    retried = [line for line in lines if line.run and line.run.kind == RunKind.RETRY and line.run.parent_id in ids]
    return [*shown, *retried]


def is_between(event: Event, shown: Sequence[JournalEntry], limit: int, at: datetime | None) -> bool:
    """Returns whether an event belongs among these lines.

    It must not be before the first of `limit` lines nor, if `at` is given, after both the last line and `at`.
    """
    after_first = len(shown) < limit or event.at >= min(line.at for line in shown)
    return after_first and (at is None or event.at <= max([line.at for line in shown] + [at]))


def gone(runs: Sequence[RunRecord], events: Sequence[Event], now: datetime) -> str:
    for event in events[::-1]:
        if event.what == EventKind.DELETED:
            return f"the task is gone: {event.by} deleted it at {explain.time_of_day(event.at, now)}; nothing is pushed any more"
    last = max([explain.at(run) for run in runs] + [event.at for event in events])
    return f"the task was deleted, and nothing is pushed any more; its last record is from {explain.time_of_day(last, now)}"
