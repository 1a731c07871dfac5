"""`ticker top`: shows on one screen what is late, failing, running, next and dropped, and why."""

from typing import TYPE_CHECKING, Any

import click

from ticker.cli import watching
from ticker.cli.connection import configured, database

if TYPE_CHECKING:
    from ticker.cli.records.screen import View

ON_A_SCREEN = 100  # maximum number of rows of a section; a screen has fewer
AT_ONCE = 10


@click.command()
@watching.interval
@click.option("--once", is_flag=True, help="Print once as plain text. This is the default in a pipe.")
def top(interval: str, once: bool) -> None:
    """Show late, failing, running and coming tasks, and drops.

    Redraws the screen every two seconds, until you press q or Ctrl-C.
    """
    every_ms = watching.interval_ms(interval)
    is_screen = watching.is_screen() and not once
    limit = ON_A_SCREEN if is_screen else AT_ONCE
    with database() as db:
        first = look(db, limit)
    from ticker.cli.records import screen

    if is_screen:
        watching.watch(first, lambda db: look(db, limit), screen.top, every_ms)
    else:
        print_once(first)


def look(db: Any, limit: int) -> "View":
    """Queries both servers."""
    from ticker.cli.records.screen import View
    from ticker.read import health, overview

    snapshot = overview.overview(db, limit=limit)
    return View(snapshot, overview.last_failures(db, snapshot.failing), health.look(configured()))


def print_once(view: "View") -> None:
    """Prints all lines uncut."""
    from ticker.cli import render
    from ticker.cli.records import screen

    for line in screen.top(view, render.WIDE, render.WIDE):
        click.echo(line.plain.rstrip())
