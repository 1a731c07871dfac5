"""`ticker add | edit | list | run-now | remove`: operations on tasks."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from ticker.cli import bulk, fit, options, render, watching
from ticker.cli.connection import database, instant, on_task, user
from ticker.cli.fit import Line, Row
from ticker.cli.render import TASK_COLUMNS, task_row
from ticker.errors import UnknownTask
from ticker.read import formatting, gates, overview
from ticker.read import tasks as read_tasks
from ticker.read.explain import counted
from ticker.tasks import operations
from ticker.tasks.checks import json_value
from ticker.tasks.fields import FIELDS, SETTINGS, Task
from ticker.tasks.sorts import Field

SPARE = ("function", "queue", "last run (UTC)", "schedule", "last outcome", "owner")
SET = ("function", "queue", "group", "submitter")
"""The fields whose options choose tasks if `edit` changes many."""
ONLY_FILTERS = ("owner_type", "name", "state", "search")
MORE = "and more; filter with --owner, --owner-type, --function, --group or --submitter"


def option(field: Field) -> options.Option:
    """Returns the option that sets the field. Without it, a field stays unchanged, or has its default in a new task."""
    name = field.name.replace("_", "-")
    kinds = {"number": options.Integer(), "choice": click.Choice(field.schema.get("enum", ()))}
    declared = field.option or (f"--{name}/--no-{name}" if field.kind == "flag" else f"--{name}")
    kind, metavar = kinds.get(field.kind), field.sort.metavar or None
    return click.option(declared, field.name, type=kind, metavar=metavar, default=None, help=field.says)


@click.command()
@click.argument("function", callback=options.printable)
@options.several(map(option, SETTINGS.values()))
@click.option("--name", metavar="NAME", help="The task's name, unique per owner. Defaults to the function's name.")
@options.owner
@click.option(
    "--first",
    metavar="TIME",
    help="When the task is first due: a time, or a duration from now. By default, an interval task is due at once.",
)
@options.as_json
def add(function: str, name: str | None, owner: str | None, first: str | None, **fields: Any) -> None:
    """Register a task that runs FUNCTION.

    With --every, the task is due at once, otherwise at its first scheduled time. Adding it again changes only the given
    values that differ from the last registration.
    """
    given = values(fields)
    with database() as db:
        due = instant(db, "first", first)
        task = operations.register(db, function, name=name, owner=owner, first=due, by=user(), **given)
        task, ends = overview.warned(db, task), overview.last_ends(db, [task])
    render.print_task(task, ends)


@click.command()
@options.task_or_owner
@options.owner
@options.several(map(option, FIELDS.values()))
@click.option(
    "--set",
    "sets",
    metavar="FIELD=NAME",
    multiple=True,
    help="Without TASK: change the function, the queue, the group or the submitter. Repeatable.",
)
@bulk.filters(*ONLY_FILTERS)
@options.as_json
def edit(task: str | None, owner: str | None, sets: tuple[str, ...], **fields: Any) -> None:
    """Change TASK, or many tasks, as an operator.

    Adding the task again with the same values as before does not undo the edit.

    Without TASK, --function, --queue, --group, --submitter and the filters choose tasks, and --set changes these four
    fields. Prints which tasks would change and which are refused, and changes them with --apply.
    """
    many = bulk.chosen(task, owner, **{name: fields.pop(name) for name in (*ONLY_FILTERS, "apply")})
    if task is None:
        many |= {name: value for name in SET if (value := fields.pop(name)) is not None}
        many |= {"owner": owner} if owner else {}
        if not many.keys() - {"apply"}:
            raise click.UsageError("missing argument 'TASK'; to change many tasks, give a filter, such as --function")
    elif sets:
        raise click.UsageError("--set is for many tasks; with TASK, use the option of the field")
    if not (given := values(fields) | assigned(sets)):
        raise click.UsageError("nothing to change: give an option, such as --every 1m or --disable")
    if task is None:
        bulk.carry_out(many, "edit", **given)
        return
    with on_task(task, owner) as (db, named):
        changed = overview.warned(db, operations.edit(db, named, owner=owner, by=user(), **given))
        ends = overview.last_ends(db, [changed])
    render.print_task(changed, ends)


def assigned(sets: Sequence[str]) -> dict[str, str]:
    """Returns the fields that --set names, with their values."""
    pairs = [text.partition("=") for text in sets]
    for field, sign, _ in pairs:
        if not sign or field not in SET:
            raise click.UsageError(f"--set takes FIELD=NAME, where FIELD is one of: {', '.join(SET)}")
    return {field: value for field, _, value in pairs}


def values(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the options that were given, with JSON values parsed."""
    given = {name: value for name, value in fields.items() if value is not None}
    return {name: json_value(name, value) if FIELDS[name].kind == "json" else value for name, value in given.items()}


@click.command("list")
@options.task_or_owner
@options.owner
@options.several(options.FILTERS.values())
@options.limit(100)
@click.option("--watch", is_flag=True, help="Redraw the list until you press q or Ctrl-C.")
@watching.interval
@options.as_json
def list_(task: str | None, limit: int, watch: bool, every_ms: int, **chosen: Any) -> None:
    """List tasks, or show TASK with all its fields.

    With TASK, also says why its last run failed, if it did.
    """
    owner = chosen["owner"]
    if task is not None:
        if watch or any(value for name, value in chosen.items() if name != "owner"):
            raise click.UsageError("with TASK, only --owner and --json apply; leave out --watch and all filters")
        with on_task(task, owner) as (db, named):
            one = read_tasks.get(db, named, owner=owner)
            ends = overview.last_ends(db, [one])
        render.print_task(one, ends)
        return
    if owner is not None and chosen["owner_type"] is not None:
        raise click.UsageError("--owner and --owner-type cannot be combined; leave out one of them")
    if watch:
        if render.is_json() or not render.is_screen():
            raise click.UsageError(
                "--watch needs a terminal and prints no JSON; for a pipe or JSON, use ticker runs --follow"
            )
        watching.watch(lambda db: read_tasks.list_tasks(db, **chosen, limit=limit), lines, every_ms)
        return
    with database() as db:
        tasks = read_tasks.list_tasks(db, **chosen, limit=min(limit + 1, options.MOST_ROWS))
        paused = gates.list_pauses(db)
        ends = overview.last_ends(db, tasks[:limit])
    fewer = "tasks; see --limit, and --help for the filters"
    data = partial(formatting.task_data, ends=ends)
    render.print_rows(tasks, render.print_tasks, "no tasks", data, limit, fewer)
    render.warn([gates.told(pause) for pause in paused])


def lines(tasks: Sequence[Task], width: int, height: int) -> list[Line]:
    """Returns at most `height` lines of the table, without the columns that do not fit."""
    if not tasks:
        return [fit.line("no tasks", width)][:height]
    table = fit.lines([Row(TASK_COLUMNS, "bold"), *map(task_row, tasks)][:height], width, SPARE)
    if len(tasks) >= height > 1:
        table[-1] = fit.line(MORE, width)
    return table


@click.command("run-now")
@options.task_or_owner
@options.owner
@click.option("--once-within", metavar="DURATION", help="Keep this distance from the last manual run.")
@click.option("--failed", is_flag=True, help="With filters: only tasks whose last run has failed.")
@bulk.filters()
@options.as_json
def run_now(
    task: str | None, owner: str | None, once_within: str | None, failed: bool, apply: bool, **filters: Any
) -> None:
    """Run TASK, all tasks of --owner, or many tasks once.

    The next tick pushes the run, even if TASK is paused. The schedule does not change. A disabled task cannot run.

    If a manual run of TASK has not started yet, the call joins it. A new run starts after the run at work.

    With --once-within, an elastic interval returns to its lower bound.

    Filters choose many tasks, which run with --apply, in groups, each a tick after the other.
    """
    if many := bulk.chosen(task, owner, **filters, failed=failed, apply=apply):
        action = "retry" if many.pop("failed", False) else "run"
        bulk.carry_out(many, action, **({} if once_within is None else {"once_within": once_within}))
        return
    with on_task(task, owner) as (db, named):
        planned = operations.plan_runs(db, named, owner=owner, once_within=once_within)
        paused = [pause for pause in gates.list_pauses(db) if gates.stops_all(pause)]
        is_alive = any(one.lives() for one in read_tasks.tickers(db))
        left = 0 if named is not None else len(read_tasks.list_tasks(db, owner=owner)) - len(planned)
    sentences = []
    for run in planned:
        then = "it starts after the run at work" if run["reason"] else "the next tick pushes it"
        new = f"planned run {run['id']}; {'it waits for the pause' if paused else then}"
        sentences.append(f"joined run {run['id']}, which has not started" if run["has_joined"] else new)
    render.answer(formatting.planned_data(planned), *sentences)
    render.warn([f"skipped {counted(left, 'disabled task')} of {owner}"] * (left > 0))
    render.warn([gates.told(one) for one in paused])
    render.warn(["no ticker is running here, so the run waits for `ticker run` or `ticker tick`"] * (not is_alive))


@click.command()
@options.task_or_owner
@options.owner
@bulk.filters()
@options.as_json
def remove(task: str | None, owner: str | None, apply: bool, **filters: Any) -> None:
    """Delete TASK, all tasks of --owner, or many tasks.

    The records of past runs are kept. Tasks that are chosen by filters are deleted with --apply.
    """
    if many := bulk.chosen(task, owner, **filters, apply=apply):
        bulk.carry_out(many, "delete")
        return
    with on_task(task, owner) as (db, named):
        removed = operations.unregister(db, named, owner=owner, by=user())
        if not removed:
            which = f" {named!r}" if named is not None else ""
            raise UnknownTask(f"there is no task{which}" + (f" of owner {owner}" if owner else ""))
    render.print_done("removed", removed, {})
