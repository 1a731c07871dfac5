"""Prints tables for people and JSON for programs. `ticker.read.formatting` provides the words."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ticker.cli import fit
from ticker.cli.fit import Line, Row, row
from ticker.errors import escaped
from ticker.model import Outcome
from ticker.read.formatting import (
    details,
    last_failure,
    moment,
    owner_of,
    schedule_now,
    state,
    state_in_words,
    took,
    why,
)
from ticker.schedules.duration import words
from ticker.tasks.fields import Task

if TYPE_CHECKING:
    from ticker.read.entries import JournalEntry
    from ticker.read.tasks import RunRecord

T = TypeVar("T")
DUMB = ("", "dumb", "unknown")
WIDE = 100_000  # columns: the terminal itself wraps long lines, so that copied words and ids stay whole
RED = {"failing", "not_pushed", Outcome.FAILED, Outcome.TIMED_OUT, Outcome.KILLED, Outcome.LOST}
YELLOW = {"paused", "resuming", "disabled", "owner_inactive", Outcome.INTERRUPTED, Outcome.HELD_OFF, Outcome.DROPPED}

TASK_COLUMNS = (
    "id", "name", "owner", "function", "schedule", "queue", "next run (UTC)", "last run (UTC)", "last outcome", "state",
)  # fmt: skip


def print_json(value: Any) -> None:
    """Prints one document in ASCII, which every terminal and encoding can show."""
    click.echo(json.dumps(value, indent=2))


def print_rows(
    rows: Sequence[T], as_json: bool, data: Callable[[T], Any], show: Callable[[Sequence[T]], None], none: str
) -> None:
    """Prints the JSON data of each row, or the rows with `show`, or the sentence `none` if there are no rows."""
    if as_json:
        print_json([data(row) for row in rows])
    elif rows:
        show(rows)
    else:
        say(none)


def print_tasks(tasks: Iterable[Task]) -> None:
    print_table(Table(TASK_COLUMNS, [*map(task_row, tasks)]))


def task_row(task: Task) -> Row:
    return row(
        task.id, task.name, task.owner, task.function, schedule_now(task), task.queue, moment(task.runs_next),
        moment(task.last_run), task.last_outcome or "", state_in_words(task), style=colour(state(task)),
    )  # fmt: skip


def print_task(task: Task, last: "RunRecord | None") -> None:
    """Prints all fields of a task. `last` is its run that ended last."""
    table = columns("", "")
    for name, value in {**details(task), "last failure": last_failure(last)}.items():
        if value not in ("", None):
            add(table, name, value)
    print_table(table)


def print_lines(lines: "Iterable[JournalEntry]", *, whose: bool, head: bool = True) -> None:
    """Prints one line for each entry. `whose` adds the entry's task."""
    names = ("when (UTC)", "what", *["task", "name", "owner"] * whose, "why", "run")
    table = columns(*(name if head else "" for name in names))
    longest = max(map(len, Outcome))  # so that columns stay aligned while --follow prints a few lines at a time
    for line in lines:
        name, run = [line.task_id, line.task_name, line.owner] * whose, line.run.id if line.run else ""
        add(table, moment(line.at), line.what.ljust(longest), *name, line.words, run, style=colour(line.what))
    print_table(table)


def print_runs(runs: "Iterable[RunRecord]", *, items: bool = False) -> None:
    """Prints one line for each run. With `items`, the runs are pieces of one run, and each shows its item instead of
    its task.
    """
    whose = ("piece", "attempt") if items else ("task", "name", "owner", "kind")
    table = columns("id", *whose, "when (UTC)", "took", "outcome", "why")
    for run in runs:
        cells = (json.dumps(run.item, ensure_ascii=False), run.attempt) if items else (
            run.task_id, run.task_name, owner_of(run), run.kind)  # fmt: skip
        when = run.started_at or run.checked_at or run.ended_at or run.pushed_at or run.due_at
        lasted = took(run)
        add(table, run.id, *cells, moment(when), "" if lasted is None else words(lasted), run.outcome or run.state, why(run), style=colour(run.outcome))  # fmt: skip
    print_table(table)


def say(sentence: str, *, err: bool = False) -> None:
    click.echo(escaped(sentence), err=err)


def warn(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        say(f"warning: {sentence}", err=True)


def colour(word: str | None) -> str:
    return "red" if word in RED else "yellow" if word in YELLOW else ""


@dataclass(frozen=True, slots=True)
class Table:
    names: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)


def columns(*names: str) -> Table:
    return Table(names)


def add(table: Table, *cells: object, style: str = "") -> None:
    """Adds a row. Cells are converted to text."""
    table.rows.append(row(*cells, style=style))


def print_table(table: Table) -> None:
    """Prints each row as one uncut line, in colour on a terminal. Rich is not imported."""
    for line in fit.lines([*[Row(table.names, "bold")] * any(table.names), *table.rows], WIDE):
        click.echo(painted(line) if is_screen() else line.plain.rstrip())


def painted(line: Line) -> str:
    """Returns the line in its colour, or without one if NO_COLOR is set."""
    text = line.plain.rstrip()
    if os.environ.get("NO_COLOR") or not line.style:
        return text
    return click.style(text, bold=True) if line.style == "bold" else click.style(text, fg=line.style)


def is_screen() -> bool:
    """Returns whether standard output is a terminal that can show colours and be redrawn."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in DUMB
