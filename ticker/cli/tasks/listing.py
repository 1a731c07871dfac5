"""`ticker list --watch`: redraws the part of the list that fits the screen."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ticker.cli import fit, watching
from ticker.cli.connection import database
from ticker.cli.fit import Line, Row
from ticker.cli.render import colour
from ticker.read import formatting
from ticker.tasks.fields import Task

HEAD = (
    "id",
    "name",
    "owner",
    "function",
    "schedule",
    "queue",
    "next run (UTC)",
    "last run (UTC)",
    "last outcome",
    "state",
)
SPARE = tuple(map(HEAD.index, ("function", "queue", "last run (UTC)", "schedule", "owner", "last outcome")))
MORE = "and more; filter with --owner, --owner-type, --function, --group or --submitter"


def watch(chosen: Mapping[str, Any], interval: str, as_json: bool) -> None:
    """Redraws the list until q or Ctrl-C. Raises UsageError if JSON was requested, or if the output is not a terminal."""
    every_ms = watching.interval_ms(interval)
    if as_json or not watching.is_screen():
        raise click.UsageError(
            "--watch needs a terminal and prints no JSON; for a pipe or JSON, use ticker journal --follow"
        )
    from ticker.read import tasks

    def look(db: Any) -> list[Task]:
        return tasks.list_tasks(db, **chosen)

    with database() as db:
        first = look(db)
    watching.watch(first, look, lines, every_ms)


def lines(tasks: Sequence[Task], width: int, height: int) -> list[Line]:
    """Returns at most `height` lines of the table of `ticker list`, without the columns that do not fit."""
    if not tasks:
        return [fit.line("no tasks", width)][:height]
    table = fit.lines([Row(HEAD, "bold"), *map(listed, tasks)][:height], width, SPARE)
    if len(tasks) >= height > 1:
        table[-1] = fit.line(MORE, width)
    return table


def listed(task: Task) -> Row:
    return fit.row(
        task.id, task.name, task.owner, task.function, formatting.schedule_now(task), task.queue, formatting.moment(task.runs_next),
        formatting.moment(task.last_run), formatting.outcome(task), formatting.state_in_words(task),
        style=colour(formatting.state(task)),
    )  # fmt: skip
