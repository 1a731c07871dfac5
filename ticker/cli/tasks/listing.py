"""`ticker list`: lists tasks, redraws the part of the list that fits the screen, or shows one task."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ticker.cli import fit, options, render, watching
from ticker.cli.connection import database
from ticker.cli.fit import Line, Row
from ticker.cli.options import as_json, owner_hint, ref
from ticker.cli.render import TASK_COLUMNS, task_row
from ticker.cli.tasks.commands import print_one
from ticker.model import TASK_STATES
from ticker.read import formatting
from ticker.tasks.fields import Task

SPARE = tuple(map(TASK_COLUMNS.index, ("function", "queue", "last run (UTC)", "schedule", "owner", "last outcome")))
MORE = "and more; filter with --owner, --owner-type, --function, --group or --submitter"


@click.command("list")
@click.argument("task", required=False)
@options.owner
@options.owner_type
@click.option("--name", metavar="NAME", callback=options.printable, help="Only tasks with this name.")
@options.function
@click.option("--queue", metavar="NAME", callback=options.printable, help="Only tasks in this queue.")
@click.option("--group", metavar="NAME", callback=options.printable, help="Only tasks in this group.")
@click.option("--submitter", metavar="NAME", callback=options.printable, help="Only tasks with this submitter.")
@click.option("--state", type=click.Choice(TASK_STATES), help="Only tasks in this state; a task may be in several.")
@click.option(
    "--search", metavar="TEXT", callback=options.printable,
    help="Only tasks with this text in their name, function, owner or subject; case is ignored.",
)  # fmt: skip
@options.limit(100)
@click.option("--watch", is_flag=True, help="Redraw the list until you press q or Ctrl-C.")
@watching.interval
@as_json
def list_(task: str | None, limit: int, watch: bool, interval: str, as_json: bool, **chosen: Any) -> None:
    """List tasks, or show TASK with all its fields.

    With TASK, also says why its last run failed, if it did.
    """
    from ticker.read import gates, overview
    from ticker.read import tasks as read_tasks

    if task is not None:
        if watch or any(value for name, value in chosen.items() if name != "owner"):
            raise click.UsageError("with TASK, only --owner and --json apply; leave out --watch and all filters")
        show(task, chosen["owner"], as_json)
        return
    if chosen["owner"] is not None and chosen["owner_type"] is not None:
        raise click.UsageError("--owner and --owner-type cannot be combined; leave out one of them")
    if watch:
        redraw({**chosen, "limit": limit}, interval, as_json)
        return
    with database() as db:
        tasks = read_tasks.list_tasks(db, **chosen, limit=min(limit + 1, options.MOST_ROWS))
        paused = gates.list_pauses(db)
        ends = overview.last_ends(db, tasks[:limit] if as_json else [])
    render.print_rows(
        tasks[:limit], as_json, lambda task: formatting.task_data(task, ends), render.print_tasks, "no tasks"
    )
    render.warn([gates.sentence(pause) for pause in paused])
    if len(tasks) > limit:
        render.warn([f"there are more than {limit} tasks; see --limit, and --help for the filters"])


def show(task: str, owner: str | None, as_json: bool) -> None:
    from ticker.read import overview
    from ticker.read import tasks as read_tasks

    named = ref(task, owner)
    assert named is not None
    with owner_hint(named, owner), database() as db:
        one = read_tasks.get(db, named, owner=owner)
        ends = overview.last_ends(db, [one])
    print_one(one, ends, as_json)


def redraw(chosen: Mapping[str, Any], interval: str, as_json: bool) -> None:
    """Redraws the list until q or Ctrl-C. Raises UsageError if JSON was requested, or if the output is not a terminal."""
    from ticker.read import tasks

    every_ms = watching.interval_ms(interval)
    if as_json or not render.is_screen():
        raise click.UsageError(
            "--watch needs a terminal and prints no JSON; for a pipe or JSON, use ticker runs --follow"
        )
    watching.watch(lambda db: tasks.list_tasks(db, **chosen), lines, every_ms)


def lines(tasks: Sequence[Task], width: int, height: int) -> list[Line]:
    """Returns at most `height` lines of the table, without the columns that do not fit."""
    if not tasks:
        return [fit.line("no tasks", width)][:height]
    table = fit.lines([Row(TASK_COLUMNS, "bold"), *map(task_row, tasks)][:height], width, SPARE)
    if len(tasks) >= height > 1:
        table[-1] = fit.line(MORE, width)
    return table
