"""Turns a run, a drop or an event into a line: its time, its outcome, and its numbers in words."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ticker.db.sql import Row
from ticker.db.steps import Steps, reads
from ticker.errors import UnknownTask
from ticker.model import EventKind
from ticker.read import explain, tasks
from ticker.read.explain import ExplainContext, Pieces, time_of_day
from ticker.read.tasks import RunRecord
from ticker.tasks import rows
from ticker.tasks.fields import Owned, Task
from ticker.tasks.identity import Ref, id_or_name
from ticker.tasks.rows import query


@dataclass(frozen=True, slots=True)
class Event:
    """An entry in a task's history other than a run, such as a pause with its author, or a first failure.

    An event that counts (`enough_jobs`) has happened `count` times, first at `at`, and last at `until`.
    """

    id: int
    at: datetime
    task_id: int
    task_name: str
    function: str
    owner_type: str
    owner_id: str
    what: EventKind
    by: str
    words: str
    run_id: int | None
    count: int | None
    until: datetime | None
    subject: str = ""


@dataclass(frozen=True, slots=True)
class JournalEntry(Owned):
    """One entry of the journal, at an instant: a run, a drop, a waiting occurrence, or an event.

    `what` is the outcome, the state, or the event's name. `words` explains it with its numbers. `due` is the instant
    for which a run was meant. `run` or `event` is the entry's row. A waiting occurrence has no row yet.
    """

    at: datetime
    what: str
    words: str
    task_id: int
    task_name: str
    owner_type: str
    owner_id: str
    due: datetime | None = None
    run: RunRecord | None = None
    event: Event | None = None
    subject: str = ""

    derived = ("owner",)

    def __str__(self) -> str:
        return f"{time_of_day(self.at, self.at)}  {self.what}  {self.words}".rstrip()


def line_of_run(run: RunRecord, context: ExplainContext) -> JournalEntry:
    return JournalEntry(
        explain.at(run), explain.what(run), explain.line(run, context), run.task_id, run.task_name, run.owner_type,
        run.owner_id, explain.due(run), run, subject=run.subject,
    )  # fmt: skip


def line_of_event(event: Event) -> JournalEntry:
    return JournalEntry(
        event.at, event.what, event_words(event), event.task_id, event.task_name, event.owner_type, event.owner_id,
        event=event, subject=event.subject,
    )  # fmt: skip


def event_words(event: Event) -> str:
    """Returns the author and the reason, which follow the event's name."""
    if event.count is not None and event.until is not None:
        several = (
            f"{event.count} occurrences from {time_of_day(event.at, event.until)}"
            if event.count > 1
            else "1 occurrence"
        )
        return f"{several} to {time_of_day(event.until, event.until)}: {event.words}"
    if event.what == EventKind.FAILED:  # "failed" alone would read like another run
        return f"began to fail: {event.words.removeprefix('failed: ')}"
    author = "" if event.by in ("", "ticker") else f"by {event.by}"
    return ": ".join(part for part in (author, event.words) if part)


def event_from(row: Row) -> Event:
    return Event(**{**row, "what": EventKind(row["what"])})


instant = reads(rows.instant)


def pieces_of(runs: Iterable[RunRecord]) -> Steps[dict[int, Pieces]]:
    parents = [run.id for run in runs if run.pieces is not None]
    counts = (yield query("pieces_of", parents=parents)) if parents else []
    return {row["parent_id"]: Pieces(row["done"], row["failed"], row["open"]) for row in counts}


def look_up(task: Ref, owner: Any) -> Steps[tuple[int, Task | None]]:
    """Returns the task's id, and the task, or None if it was deleted."""
    try:
        found = yield from tasks.get.steps(task, owner=owner)
    except UnknownTask:
        if isinstance(ref := id_or_name(task), int):
            return ref, None
        raise
    return found.id, found


def graces_of(runs: Iterable[RunRecord]) -> Steps[dict[int, int]]:
    """Returns the graces in milliseconds, by task id, for those runs whose interval is not known."""
    ids = {run.task_id for run in runs if run.until and not run.every_ms}
    rows = (yield query("graces", ids=[*ids])) if ids else []
    return {row["id"]: row["grace_ms"] for row in rows}
