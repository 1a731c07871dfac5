"""`ticker add | edit | pause | resume | run-now | remove`: operations on tasks."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ticker.cli import options, render
from ticker.cli.connection import database, now
from ticker.cli.options import as_json, owner_hint, ref
from ticker.cli.tasks import pauses
from ticker.cli.tasks.definition import definition
from ticker.errors import UnknownTask
from ticker.read import formatting
from ticker.read.explain import counted
from ticker.schedules import once
from ticker.tasks.checks import json_value
from ticker.tasks.fields import FIELDS, SETTINGS, Task

if TYPE_CHECKING:
    from ticker.read.tasks import RunRecord

task_or_owner = click.argument("task", required=False)


@click.command()
@click.argument("function", callback=options.printable)
@definition(SETTINGS.values())
@click.option("--name", metavar="NAME", help="The task's name, unique per owner. Defaults to the function's name.")
@options.owner
@click.option(
    "--first",
    metavar="TIME",
    help="When the task is first due: a time, or a duration from now. By default, an interval task is due at once.",
)
@as_json
def add(function: str, name: str | None, owner: str | None, first: str | None, as_json: bool, **fields: Any) -> None:
    """Register a task that runs FUNCTION.

    With --every, the task is due at once, otherwise at its first scheduled time. Adding it again changes only the given
    values that differ from the last registration.
    """
    from ticker.read import overview
    from ticker.registration import operations

    given = values(fields)
    with database() as db:
        due = None if first is None else once.instant("first", first, lambda: now(db))
        task = overview.warned(
            db, operations.register(db, function, name=name, owner=owner, first=due, by=user(), **given)
        )
        ends = overview.last_ends(db, [task])
    print_one(task, ends, as_json)


@click.command()
@click.argument("task")
@options.owner
@definition(FIELDS.values())
@as_json
def edit(task: str, owner: str | None, as_json: bool, **fields: Any) -> None:
    """Change TASK as an operator.

    Adding the task again with the same values as before does not undo the edit.
    """
    from ticker.read import overview
    from ticker.registration import operations

    named, given = ref(task, owner), values(fields)
    if not given:
        raise click.UsageError("nothing to change: give an option, such as --every 1m or --disable")
    with owner_hint(named, owner), database() as db:
        changed = overview.warned(db, operations.edit(db, named, owner=owner, by=user(), **given))
        ends = overview.last_ends(db, [changed])
    print_one(changed, ends, as_json)


@click.command()
@task_or_owner
@options.owner
@pauses.scoped
@click.option("--reason", metavar="TEXT", default="", help="The reason for the pause, shown with the task.")
@click.option("--until", metavar="TIME", help="When the pause ends: a time, or a duration from now, such as 2h.")
@click.option(
    "--by", metavar="NAME", help="The name of the person who pauses the task. Defaults to the user of this process."
)
@click.option(
    "--wait",
    metavar="DURATION",
    help="With --all: wait until no run is active, and exit with 1 if some are after this time.",
)
@click.option("--list", "only_list", is_flag=True, help="List the pauses of many tasks, and pause nothing.")
@as_json
def pause(
    task: str | None,
    owner: str | None,
    reason: str,
    until: str | None,
    by: str | None,
    wait: str | None,
    only_list: bool,
    as_json: bool,
    **scope: Any,
) -> None:
    """Pause TASK, all tasks of --owner, or many tasks at once.

    Nothing is pushed or started, except by `run-now`, until `resume` or the time given by --until. With --all, manual
    runs wait, too. Runs that have started continue. Due tasks wait, and are pushed after the pause.

    With --all and --wait, a pause of all tasks that is in force stays as it is, unless --reason or --until is given.
    """
    many, author = pauses.chosen(task, owner, **scope), user() if by is None else by
    if only_list:
        if task or owner or many is not None or reason or until or by or wait:
            raise click.UsageError("--list can be combined with --json alone; leave out the other options")
        pauses.list_all(as_json)
    elif wait is not None:
        if many != {}:
            raise click.UsageError("--wait needs --all, because it waits until no run at all is active")
        pauses.drain(wait, by=author, reason=reason, until=until, as_json=as_json)
    elif many is not None:
        pauses.pause_many(many, by=author, reason=reason, until=until, as_json=as_json)
    else:
        pause_some(task, owner, author, reason, until, as_json)


def pause_some(task: str | None, owner: str | None, author: str, reason: str, until: str | None, as_json: bool) -> None:
    from ticker.read import overview
    from ticker.registration import operations

    named = ref(task, owner)
    with owner_hint(named, owner), database() as db:
        end = None if until is None else once.instant("until", until, lambda: now(db))
        paused = operations.pause(db, named, owner=owner, by=author, reason=reason, until=end)
        ends = overview.last_ends(db, paused if as_json else [])
    print_done("paused", paused, ends, as_json)


@click.command()
@task_or_owner
@options.owner
@pauses.scoped
@as_json
def resume(task: str | None, owner: str | None, as_json: bool, **scope: Any) -> None:
    """Resume TASK, all tasks of --owner, or many paused tasks.

    Paused tasks become due as soon as they may run; other tasks do not change. After a pause of many tasks, those that
    are due are pushed within a budget in each tick. Tasks with a pause of their own stay paused.
    """
    from ticker.read import overview, tasks
    from ticker.registration import operations

    if (many := pauses.chosen(task, owner, **scope)) is not None:
        pauses.resume_many(many, by=user(), as_json=as_json)
        return
    named = ref(task, owner)
    with owner_hint(named, owner), database() as db:
        resumed = operations.resume(db, named, owner=owner, by=user())
        ends = overview.last_ends(db, resumed if as_json else [])
        one = None if named is None else tasks.get(db, named, owner=owner)
    print_done("resumed", resumed, ends, as_json)
    if one is not None and one.pause is not None:
        ending = (
            ""
            if one.is_resuming
            else "; ticker pause --list shows such pauses, and ticker resume ends one by the same option"
        )
        render.warn([f"{one.name}: {formatting.state_in_words(one)}{ending}"])


@click.command("run-now")
@task_or_owner
@options.owner
@click.option("--once-within", metavar="DURATION", help="Keep this distance from the last manual run.")
@as_json
def run_now(task: str | None, owner: str | None, once_within: str | None, as_json: bool) -> None:
    """Run TASK, or all tasks of --owner, once.

    The next tick pushes the run, even if TASK is paused. The schedule does not change. A disabled task cannot run.

    If a manual run of TASK has not started yet, the call joins it. A new run starts after the run at work.

    With --once-within, an elastic interval returns to its lower bound.
    """
    from ticker.read import gates
    from ticker.read import tasks as read_tasks
    from ticker.registration import operations

    named = ref(task, owner)
    with owner_hint(named, owner), database() as db:
        planned = operations.plan_runs(db, named, owner=owner, once_within=once_within)
        paused = [one for one in gates.list_pauses(db) if one.scope == "all" and one.in_force]
        left = 0 if named is not None else len(read_tasks.list_tasks(db, owner=owner)) - len(planned)
    if as_json:
        render.print_json(formatting.planned_data(planned))
    else:
        for run in planned:
            then = "it starts after the run at work" if run["reason"] else "the next tick pushes it"
            new = f"planned run {run['id']}; {'it waits for the pause' if paused else then}"
            render.say(f"joined run {run['id']}, which has not started" if run["has_joined"] else new)
    render.warn([f"skipped {counted(left, 'disabled task')} of {owner}"] * (left > 0))
    render.warn([gates.sentence(one) for one in paused])


@click.command()
@task_or_owner
@options.owner
@as_json
def remove(task: str | None, owner: str | None, as_json: bool) -> None:
    """Delete TASK, or all tasks of --owner.

    The records of past runs are kept.
    """
    from ticker.registration import operations

    named = ref(task, owner)
    with owner_hint(named, owner), database() as db:
        removed = operations.unregister(db, named, owner=owner, by=user())
        if not removed:
            which = f" {named!r}" if named is not None else ""
            raise UnknownTask(f"there is no task{which}" + (f" of owner {owner}" if owner else ""))
    print_done("removed", removed, {}, as_json)


def values(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the options that were given, with JSON values parsed."""
    given = {name: value for name, value in fields.items() if value is not None}
    return {name: json_value(name, value) if FIELDS[name].kind == "json" else value for name, value in given.items()}


def user() -> str:
    """Returns the name of the user who runs this process, or the uid if the user has no name."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid {os.getuid()}"


def print_one(task: Task, ends: Mapping[int, "RunRecord"], as_json: bool) -> None:
    if as_json:
        render.print_json(formatting.task_data(task, ends))
    else:
        render.print_task(task, ends.get(task.id))
    render.warn(task.warnings)


def print_done(verb: str, tasks: Sequence[Task], ends: Mapping[int, "RunRecord"], as_json: bool) -> None:
    """Prints one line for each task."""
    if as_json:
        render.print_json([formatting.task_data(task, ends) for task in tasks])
        return
    for task in tasks:
        render.say(f"{verb} {task.id} {task.name}" + (f" of {task.owner}" if task.owner else ""))
    if not tasks:
        render.say(f"nothing was {verb}")
