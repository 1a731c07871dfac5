"""Prints tables for people and JSON for programs. `ticker.read.formatting` provides the words."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ticker.cli import fit, options
from ticker.cli.fit import Line, Row, row
from ticker.errors import escaped
from ticker.model import Outcome
from ticker.read.explain import span
from ticker.read.formatting import (
    details,
    last_failure,
    moment,
    plain_data,
    schedule_now,
    state,
    state_in_words,
    task_data,
    tone,
    why,
)
from ticker.tasks.fields import Task

if TYPE_CHECKING:
    from ticker.read.entries import JournalEntry
    from ticker.read.tasks import RunRecord

T = TypeVar("T")
DUMB = ("", "dumb", "unknown")
WIDE = 100_000  # columns of a pipe, whose lines stay whole
COLOURS = {"bad": "red", "warn": "yellow"}

TASK_COLUMNS = (
    fit.SUBJECT, "id", "name", "owner", "function", "schedule", "queue", "next run (UTC)", "last run (UTC)", "last outcome", "state",
)  # fmt: skip


def is_json() -> bool:
    """Returns whether the command was called with --json."""
    return bool(click.get_current_context().meta.get(options.JSON))


def print_json(value: Any) -> None:
    """Prints one document in ASCII, which every terminal and encoding can show."""
    click.echo(json.dumps(plain_data(value), indent=2))


def answer(data: Any, *sentences: str) -> None:
    """Prints the data as JSON if --json was given, otherwise the sentences."""
    if is_json():
        print_json(data)
    else:
        for sentence in sentences:
            say(sentence)


def print_rows(
    rows: Sequence[T], show: Callable[[Sequence[T]], None], none: str, data: Callable[[T], Any] = plain_data,
    limit: int = options.MOST_ROWS, fewer: str = "",
) -> None:  # fmt: skip
    """Prints up to `limit` rows with `show`, or the sentence `none` if there are no rows, or the JSON data of each row.
    Warns if there are more rows. `fewer` names them, and says how to get fewer.
    """
    shown = rows[:limit]
    if shown and not is_json():
        show(shown)
    else:
        answer([*map(data, shown)], none)
    if len(rows) > limit:
        warn([f"there are more than {limit} {fewer}"])


def print_tasks(tasks: Iterable[Task]) -> None:
    print_table(TASK_COLUMNS, map(task_row, tasks))


def task_row(task: Task) -> Row:
    return row(
        task.subject, task.id, task.name, task.owner, task.function, schedule_now(task), task.queue, moment(task.runs_next),
        moment(task.last_run), task.last_outcome or "", state_in_words(task), style=colour(state(task)),
    )  # fmt: skip


def print_task(task: Task, ends: "Mapping[int, RunRecord]") -> None:
    """Prints all fields of a task. `ends` has the last ends of tasks, by their ids."""
    if is_json():
        print_json(task_data(task, ends))
    else:
        print_fields({**details(task), "last failure": last_failure(ends.get(task.id))})
    warn(task.warnings)


def print_done(verb: str, tasks: Sequence[Task], ends: "Mapping[int, RunRecord]") -> None:
    """Says for each task what was done with it."""
    done = [f"{verb} {task.id} {task.name}" + (f" of {task.owner}" if task.owner else "") for task in tasks]
    answer([task_data(task, ends) for task in tasks], *(done or [f"nothing was {verb}"]))


def print_fields(values: Mapping[str, object]) -> None:
    """Prints a line for each name and its value, unless the value is empty."""
    given = {name: value for name, value in values.items() if value not in ("", None)}
    print_table((), [row(*item, style=colour(item[1]) if item[0] == "outcome" else "") for item in given.items()])


def print_lines(lines: "Iterable[JournalEntry]", *, whose: bool, head: bool = True) -> None:
    """Prints one line for each entry. `whose` adds the entry's task."""
    names = ("when (UTC)", "what", *[fit.SUBJECT, "task", "name", "owner"] * whose, "run", "why")
    longest = max(map(len, Outcome))  # so that columns stay aligned while --follow prints a few lines at a time
    rows = []
    for line in lines:
        name = [line.subject, line.task_id or "", line.task_name, line.owner] * whose
        run = line.run.id if line.run else ""
        cells = moment(line.at), line.what.ljust(longest), *name, run, line.words
        rows.append(row(*cells, style=colour(line.what)))
    print_table(names if head else (), rows)


def print_runs(runs: "Iterable[RunRecord]", *, items: bool = False) -> None:
    """Prints one line for each run. With `items`, the runs are pieces of one run, and each shows its item instead of
    its task.
    """
    names = ("piece", "attempt") if items else (fit.SUBJECT, "task", "name", "owner", "kind")
    rows = []
    for run in runs:
        task = (run.subject, run.task_id, run.task_name, run.owner, run.kind)
        whose = (json.dumps(run.item, ensure_ascii=False), run.attempt) if items else task
        when = run.started_at or run.checked_at or run.ended_at or run.pushed_at or run.due_at
        lasted = "" if run.took_ms is None else span(run.took_ms)
        cells = run.id, *whose, moment(when), lasted, run.outcome or run.state, why(run)
        rows.append(row(*cells, style=colour(run.outcome)))
    print_table(("id", *names, "when (UTC)", "took", "outcome", "why"), rows)


def say(sentence: str, *, err: bool = False) -> None:
    click.echo(escaped(sentence), err=err)


def warn(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        say(f"warning: {sentence}", err=True)


def colour(word: object) -> str:
    return COLOURS.get(tone(word), "")


def print_table(names: Sequence[str], rows: Iterable[Row], spare: Sequence[str] = ()) -> None:
    """Prints each row in full: on a terminal in colour, its last column folded, otherwise as one line. Leaves out the
    `spare` columns on a narrow terminal. Does not import Rich.
    """
    table = [*[Row(names, "bold")] * bool(names), *rows]
    for line in fit.lines(table, shutil.get_terminal_size().columns if is_screen() else WIDE, spare, folds=True):
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


@contextmanager
def progress(title: str) -> Iterator[Callable[[str], None]]:
    """Shows each sentence on the same line of the terminal. Shows nothing if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda sentence: None
        return
    from rich.console import Console

    with Console(stderr=True).status(title) as status:
        yield status.update
