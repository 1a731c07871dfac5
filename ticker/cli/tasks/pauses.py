"""`ticker pauses | drain`, and the options with which `pause` and `resume` apply to many tasks."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from ticker import clock
from ticker.cli import options, render
from ticker.cli.connection import database, now
from ticker.cli.exits import NOT_SO
from ticker.cli.options import as_json
from ticker.errors import DatabaseUnavailable
from ticker.read import formatting
from ticker.read.explain import counted
from ticker.schedules import once
from ticker.schedules.duration import DAY, SECOND, milliseconds

if TYPE_CHECKING:
    from ticker.tasks.pauses import Pause

EVERY = 0.5  # seconds between two looks at the runs
LATEST_START = 2.5  # seconds after its commit: a start that was requested before a pause begins by then, or not at all (`pipeline.start`)

Scope = dict[str, Any]
"""The arguments of `pause_all` that choose the tasks."""


def scoped(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options for many tasks. The command passes what it gets to `chosen`."""
    for option in reversed((
        click.option("--all", "everything", is_flag=True, help="All tasks."),
        click.option("--group", metavar="NAME", callback=options.printable, help="The tasks of this group."),
        click.option("--function", metavar="NAME", callback=options.printable, help="The tasks that run this function."),
        click.option("--queue", metavar="NAME", callback=options.printable, help="The tasks of this queue."),
        click.option("--owner-type", metavar="TYPE", callback=options.printable, help="The tasks of all owners of this type."),
        click.option("--limit", metavar="KEY", help="The tasks with this key in their limits; imap.* stands for many keys."),
    )):  # fmt: skip
        command = option(command)
    return command


def chosen(task: str | None, owner: str | None, everything: bool, **scope: str | None) -> Scope | None:
    """Returns the scope if many tasks are meant, or None for TASK or --owner."""
    given = {name: value for name, value in scope.items() if value is not None}
    number = len(given) + everything + (task is not None or owner is not None)
    if number > 1:
        raise click.UsageError(
            "give one of TASK, --owner, --all, --group, --function, --queue, --owner-type and --limit"
        )
    return given if given or everything else None


def pause_many(scope: Scope, *, by: str, reason: str, until: str | None, as_json: bool) -> None:
    from ticker.registration import pauses

    with database() as db:
        end = None if until is None else once.instant("until", until, lambda: now(db))
        paused = pauses.pause_all(db, **scope, by=by, reason=reason, until=end)
    print_pause(
        paused, f"paused {paused.words}" + (f" until {formatting.at(paused.until)}" if paused.until else ""), as_json
    )
    warn_if_unused(paused)


def resume_many(scope: Scope, *, by: str, as_json: bool) -> None:
    from ticker.registration import pauses

    with database() as db:
        resumed = pauses.resume_all(db, **scope, by=by)
    if resumed is None:
        print_pause(None, "no such pause is in force; ticker pauses lists them", as_json)
        return
    turns = f"; {counted(resumed.waiting, 'due task')} will be pushed, oldest first" if resumed.waiting else ""
    print_pause(resumed, f"resumed {resumed.words}{turns}", as_json)


def print_pause(pause: "Pause | None", text: str, as_json: bool) -> None:
    render.print_json(formatting.plain_data(pause)) if as_json else render.say(text)


def warn_if_unused(pause: "Pause") -> None:
    """Warns if the pause is for no task, as after a misspelled name. The pause has been committed: an error does not matter."""
    from ticker.read import pauses

    with suppress(DatabaseUnavailable), database() as db:
        if not pauses.has_tasks(db, pause):
            render.warn([f"there are no {pause.words}; the pause is in force anyway"])


@click.command()
@as_json
def pauses(as_json: bool) -> None:
    """List pauses of many tasks.

    Includes pauses that are over but for which tasks still wait for their turn.
    """
    from ticker.read import pauses as read_pauses

    with database() as db:
        found = read_pauses.list_pauses(db)
    if as_json:
        render.print_json([formatting.plain_data(pause) for pause in found])
    for pause in found if not as_json else ():
        render.say(read_pauses.sentence(pause))
    if not found and not as_json:
        render.say("no pauses of many tasks; ticker list shows tasks with a pause of their own")


@click.command()
@click.option(
    "--wait", metavar="DURATION", default="10m", show_default=True, help="How long to wait until nothing runs."
)
@click.option(
    "--reason", metavar="TEXT", default="drain", show_default=True, help="The reason for the pause, shown everywhere."
)
@as_json
def drain(wait: str, reason: str, as_json: bool) -> None:
    """Pause all tasks, and wait until no run is active.

    If a pause of all tasks is already in force, it stays as it is. No new run starts, whatever its kind. Runs that have started continue to their end. If some have not ended after --wait, the exit code is 1.
    `ticker resume --all` ends the pause.
    """
    from ticker.cli.tasks.commands import user
    from ticker.read import pauses as read_pauses
    from ticker.registration import pauses

    wait_ms = milliseconds("--wait", wait, least=SECOND, most=DAY)
    with database() as db:
        in_force = (pause for pause in read_pauses.list_pauses(db) if pause.scope == "all" and pause.in_force)
        paused = next(in_force, None) or pauses.pause_all(db, by=user(), reason=reason)
    active = await_ends(wait_ms / SECOND)
    if as_json:
        render.print_json({"pause": formatting.plain_data(paused), "active": active})
    elif not active:
        render.say("all tasks are paused, and nothing runs; ticker resume --all ends the pause")
    if active:
        render.warn(
            [f"{counted(active, 'run')} did not end within {wait}; ticker top lists them, and ticker stop ends one"]
        )
        raise click.exceptions.Exit(NOT_SO)


def await_ends(seconds: float) -> int:
    """Returns how many runs are at work once none is, or after this time. It is certain that no run begins later."""
    from ticker.read import overview

    began, pause = clock.monotonic(), threading.Event()
    while True:
        waited = clock.monotonic() - began
        with database() as db:
            active = overview.running(db)
        if (not active and waited >= LATEST_START) or waited >= max(seconds, LATEST_START):
            return active
        pause.wait(EVERY)
