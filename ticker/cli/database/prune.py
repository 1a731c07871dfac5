"""`ticker prune`: deletes old records immediately. The ticker also deletes them, once an hour."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Event
from typing import TYPE_CHECKING

import click

from ticker.cli import render
from ticker.cli.connection import configured, database
from ticker.cli.options import as_json
from ticker.read import formatting

if TYPE_CHECKING:
    from ticker.daemon.prune import Pruned
    from ticker.settings import Settings


@click.command()
@click.option("--dry-run", is_flag=True, help="Count what would be deleted, and delete nothing.")
@as_json
def prune(dry_run: bool, as_json: bool) -> None:
    """Delete old records of runs, drops and events.

    TICKER_KEEP_SUCCESSES, TICKER_KEEP_FAILURES and the `keep` of each task set how long records are kept. Tickers may
    keep running, and the command can safely be interrupted at any time. `ticker run` also prunes.
    """
    total = at_once(configured(), dry_run)
    if as_json:
        counts = {name: count for name, count in formatting.plain_data(total).items() if name != "seconds"}
        render.print_json({"dry_run": dry_run, **counts, "took_ms": round(1000 * total.seconds)})
    else:
        render.say(f"{'would prune' if dry_run else 'pruned'} {total}")


def at_once(settings: "Settings", dry: bool) -> "Pruned":
    """Makes one lap, and pauses after each batch for as long as it took, so that ticks are not delayed.

    Shows the counts on a terminal.
    """
    from ticker.daemon.prune import Pruned, lap
    from ticker.db.store import PostgresStore

    with database():
        pass  # raises ConfigurationError if the server does not answer
    total = Pruned()
    store = PostgresStore(settings.require_database(), settings.schema)
    with closing(store), progress() as show:
        for pruned in lap(store, settings, dry=dry):
            total += pruned
            show(f"{total}")
            Event().wait(pruned.seconds)
    return total


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Shows each sentence on the same line of the terminal. Shows nothing if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda sentence: None
        return
    from rich.console import Console

    with Console(stderr=True).status("looking for old records") as status:
        yield status.update
