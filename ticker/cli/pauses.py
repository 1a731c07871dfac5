"""`ticker pause | resume`: of one task, of an owner's tasks, or of many tasks with one row; and the wait for active runs."""

from contextlib import suppress
from typing import Any

import click

from ticker.cli import bulk, options, render
from ticker.cli.connection import awaited, database, instant, on_task, user
from ticker.cli.exits import NOT_SO
from ticker.errors import DatabaseUnavailable
from ticker.model import Pause
from ticker.read import formatting, gates, overview, tasks
from ticker.read.explain import counted
from ticker.schedules.duration import DAY, SECOND, milliseconds
from ticker.tasks import gates as pauses_of_many
from ticker.tasks import operations

LATEST_START = 2.5  # seconds after its commit: a start that was requested before a pause begins by then, or not at all (`pipeline.start`)

Scope = dict[str, Any]
"""The arguments of `pause_all` that choose the tasks."""

scoped = options.several((
    click.option("--all", "everything", is_flag=True, help="All tasks."),
    options.text("--group", "NAME", "The tasks of this group."),
    options.text("--function", "NAME", "The tasks that run this function."),
    options.text("--queue", "NAME", "The tasks of this queue."),
    options.text("--owner-type", "TYPE", "The tasks of all owners of this type."),
    click.option("--limit", metavar="KEY", help="The tasks with this key in their limits; imap.* stands for many keys."),
))  # fmt: skip
"""Options for many tasks. The command passes what it gets to `chosen`."""

each = options.several((
    click.option("--each", is_flag=True, help="Pause or resume each task by itself, not all of them with one row. With "
                 "it, all filters choose tasks together."),
    bulk.filters("name", "submitter", "state", "search"),
))  # fmt: skip
"""Options for pauses of many tasks, each of its own. The command passes them to `of_each`."""


@click.command()
@options.task_or_owner
@options.owner
@scoped
@each
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
@options.as_json
def pause(
    task: str | None,
    owner: str | None,
    reason: str,
    until: str | None,
    by: str | None,
    wait: str | None,
    only_list: bool,
    **scope: Any,
) -> None:
    """Pause TASK, all tasks of --owner, or many tasks at once.

    Nothing is pushed or started, except by `run-now`, until `resume` or the time given by --until. With --all, manual
    runs wait, too. Runs that have started continue. Due tasks wait, and are pushed after the pause.

    With --all and --wait, a pause of all tasks that is in force stays as it is, unless --reason or --until is given.

    With --each, pauses tasks one by one if --apply is given, and otherwise prints which ones it would pause.
    """
    if (wanted := of_each(task, owner, scope)) is not None:
        if wait or only_list:
            raise click.UsageError("--each cannot be combined with --wait and --list; leave out either")
        pause_each(wanted, by, reason, until)
        return
    many, author = chosen(task, owner, **scope), user() if by is None else by
    if only_list:
        if task or owner or many is not None or reason or until or by or wait:
            raise click.UsageError("--list can be combined with --json alone; leave out the other options")
        list_all()
    elif wait is not None:
        if many != {}:
            raise click.UsageError("--wait needs --all, because it waits until no run at all is active")
        drain(wait, author, reason, until)
    elif many is not None:
        pause_many(many, author, reason, until)
    else:
        with on_task(task, owner) as (db, named):
            end = instant(db, "until", until)
            paused = operations.pause(db, named, owner=owner, by=author, reason=reason, until=end)
            ends = overview.last_ends(db, paused)
        render.print_done("paused", paused, ends)


@click.command()
@options.task_or_owner
@options.owner
@scoped
@each
@options.as_json
def resume(task: str | None, owner: str | None, **scope: Any) -> None:
    """Resume TASK, all tasks of --owner, or many paused tasks.

    Paused tasks become due as soon as they may run; other tasks do not change. After a pause of many tasks, those that
    are due are pushed within a budget in each tick. Tasks with a pause of their own stay paused.

    With --each, ends tasks' own pauses if --apply is given, and otherwise prints which ones it would end.
    """
    if (wanted := of_each(task, owner, scope)) is not None:
        bulk.carry_out(wanted, "resume")
        return
    if (many := chosen(task, owner, **scope)) is not None:
        resume_many(many)
        return
    with on_task(task, owner) as (db, named):
        resumed = operations.resume(db, named, owner=owner, by=user())
        ends = overview.last_ends(db, resumed)
        one = None if named is None else tasks.get(db, named, owner=owner)
    render.print_done("resumed", resumed, ends)
    if one is not None and one.pause is not None:
        ending = "; ticker pause --list shows such pauses, and ticker resume ends one by the same option"
        render.warn([f"{one.name}: {formatting.state_in_words(one)}{'' if one.is_resuming else ending}"])


# ------------------------------------------------------------------------------------------------------- many tasks


def of_each(task: str | None, owner: str | None, scope: Scope) -> dict[str, Any] | None:
    """Returns the filters if each of many tasks is meant, or None. Takes the options of `each` out of the scope."""
    is_each, of_list = (
        scope.pop("each"),
        {name: scope.pop(name) for name in ("name", "submitter", "state", "search", "apply")},
    )
    if not is_each:
        if any(of_list.values()):
            raise click.UsageError("--name, --submitter, --state, --search and --apply need --each")
        return None
    if scope["limit"] is not None:
        raise click.UsageError("--each cannot be combined with --limit; leave out one of them")
    given = {name: value for name, value in scope.items() if name != "everything"}
    if (
        not (wanted := bulk.chosen(task, owner, **given, **of_list, each=True)).keys() - {"each", "apply"}
        and not scope["everything"]
    ):
        raise click.UsageError("--each needs a filter, or --all")
    return {name: value for name, value in wanted.items() if name != "each"}


def pause_each(wanted: dict[str, Any], by: str | None, reason: str, until: str | None) -> None:
    with database() as db:
        end = instant(db, "until", until)
    bulk.carry_out(wanted, "pause", by=by, reason=reason, until=end)


def chosen(task: str | None, owner: str | None, everything: bool, **scope: str | None) -> Scope | None:
    """Returns the scope if many tasks are meant, or None for TASK or --owner."""
    given = {name: value for name, value in scope.items() if value is not None}
    if len(given) + everything + (task is not None or owner is not None) > 1:
        raise click.UsageError(
            "give one of TASK, --owner, --all, --group, --function, --queue, --owner-type and --limit"
        )
    return given if given or everything else None


def pause_many(scope: Scope, by: str, reason: str, until: str | None) -> None:
    """Pauses the tasks. Warns if there are none, as after a misspelled name."""
    paused = begin(scope, by, reason, until)
    end = f" until {formatting.at(paused.until)}" if paused.until else ""
    render.answer(paused, f"paused {paused.words}{end}")
    with suppress(DatabaseUnavailable), database() as db:  # the pause has been committed: an error does not matter
        if not gates.has_tasks(db, paused):
            render.warn([f"there are no {paused.words}; the pause is in force anyway"])


def drain(wait: str, by: str, reason: str, until: str | None) -> None:
    """Pauses all tasks, unless they are paused and there is no new reason, and waits until no run is active."""
    wait_ms = milliseconds("--wait", wait, least=SECOND, most=DAY)
    with database() as db:
        in_force = [pause for pause in gates.list_pauses(db) if gates.stops_all(pause)]
    is_new = reason or until is not None or not in_force
    paused = begin({}, by, reason or "drain", until) if is_new else in_force[0]
    active = awaited(
        overview.running, lambda active, waited: waited >= LATEST_START and (not active or waited >= wait_ms / SECOND)
    )
    ended = [] if active else ["all tasks are paused, and nothing runs; ticker resume --all ends the pause"]
    render.answer({"pause": paused, "active": active}, *ended)
    if active:
        still = (
            f"{counted(active, 'run')} did not end within {wait}, and the pause stays in force; ticker top lists what runs,"
            " ticker stop ends a run, and ticker resume --all ends the pause"
        )
        render.warn([still])
        raise click.exceptions.Exit(NOT_SO)


def begin(scope: Scope, by: str, reason: str, until: str | None) -> Pause:
    with database() as db:
        return pauses_of_many.pause_all(db, **scope, by=by, reason=reason, until=instant(db, "until", until))


def resume_many(scope: Scope) -> None:
    with database() as db:
        resumed = pauses_of_many.resume_all(db, **scope, by=user())
    if resumed is None:
        render.answer(None, "no such pause is in force; ticker pause --list shows those that are")
        return
    turns = f"; {counted(resumed.waiting, 'due task')} will be pushed, oldest first" if resumed.waiting else ""
    render.answer(resumed, f"resumed {resumed.words}{turns}")


def list_all() -> None:
    """Lists the pauses of many tasks, also those that are over but for which tasks still wait for their turn."""
    with database() as db:
        found = gates.list_pauses(db)
    sentences = [gates.told(pause) for pause in found]
    none = "no pauses of many tasks; ticker list shows tasks with a pause of their own"
    render.answer(found, *(sentences or [none]))
