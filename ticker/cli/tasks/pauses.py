"""`ticker pause | resume` of many tasks: their options, the list of such pauses, and the wait for active runs."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from ticker import clock
from ticker.cli import options, render
from ticker.cli.connection import database, now
from ticker.cli.exits import NOT_SO
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
    paused = begin(scope, by=by, reason=reason, until=until)
    print_pause(
        paused, f"paused {paused.words}" + (f" until {formatting.at(paused.until)}" if paused.until else ""), as_json
    )
    warn_if_unused(paused)


def drain(wait: str, *, by: str, reason: str, until: str | None, as_json: bool) -> None:
    """Pauses all tasks, unless they are paused and there is no new reason, and waits until no run is active."""
    from ticker.read import gates

    wait_ms = milliseconds("--wait", wait, least=SECOND, most=DAY)
    with database() as db:
        in_force = [pause for pause in gates.list_pauses(db) if pause.scope == "all" and pause.in_force]
    is_new = reason or until is not None or not in_force
    paused = begin({}, by=by, reason=reason or "drain", until=until) if is_new else in_force[0]
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


def begin(scope: Scope, *, by: str, reason: str, until: str | None) -> "Pause":
    from ticker.registration import pauses

    with database() as db:
        end = None if until is None else once.instant("until", until, lambda: now(db))
        return pauses.pause_all(db, **scope, by=by, reason=reason, until=end)


def resume_many(scope: Scope, *, by: str, as_json: bool) -> None:
    from ticker.registration import pauses

    with database() as db:
        resumed = pauses.resume_all(db, **scope, by=by)
    if resumed is None:
        print_pause(None, "no such pause is in force; ticker pause --list shows those that are", as_json)
        return
    turns = f"; {counted(resumed.waiting, 'due task')} will be pushed, oldest first" if resumed.waiting else ""
    print_pause(resumed, f"resumed {resumed.words}{turns}", as_json)


def print_pause(pause: "Pause | None", text: str, as_json: bool) -> None:
    render.print_json(formatting.plain_data(pause)) if as_json else render.say(text)


def warn_if_unused(pause: "Pause") -> None:
    """Warns if the pause is for no task, as after a misspelled name. The pause has been committed: an error does not
    matter.
    """
    from ticker.read import gates

    with suppress(DatabaseUnavailable), database() as db:
        if not gates.has_tasks(db, pause):
            render.warn([f"there are no {pause.words}; the pause is in force anyway"])


def list_all(as_json: bool) -> None:
    """Lists the pauses of many tasks, also those that are over but for which tasks still wait for their turn."""
    from ticker.read import gates

    def show(found: "Sequence[Pause]") -> None:
        for pause in found:
            render.say(gates.sentence(pause))

    with database() as db:
        found = gates.list_pauses(db)
    none = "no pauses of many tasks; ticker list shows tasks with a pause of their own"
    render.print_rows(found, as_json, formatting.plain_data, show, none)


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
