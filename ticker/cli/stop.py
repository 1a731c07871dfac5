"""`ticker stop`: stops a run, and says what was observed of that."""

import threading
from typing import TYPE_CHECKING

import click

from ticker import clock
from ticker.cli import options, render
from ticker.cli.connection import database
from ticker.cli.exits import NOT_SO
from ticker.cli.options import as_json
from ticker.cli.tasks.commands import user
from ticker.model import LARGEST_ID
from ticker.read import formatting

if TYPE_CHECKING:
    from ticker.read.tasks import RunRecord

PATIENCE = 5.0  # seconds for which the command waits for the end of the run
EVERY = 0.2


@click.command()
@click.argument("run", type=options.Integer(1, LARGEST_ID))
@click.option(
    "--by", metavar="NAME", help="The name of the person who stops the run. Defaults to the user of this process."
)
@as_json
def stop(run: int, by: str | None, as_json: bool) -> None:
    """Stop RUN, and wait up to 5 s for its end.

    An active run ends as interrupted. This is not a failure, and the run is not retried. A run that has not started is
    dropped. If a run waits for its pieces, these are stopped. A tick carries out the request, so a ticker must run. If
    the run has not ended after 5 s, the exit code is 1.
    """
    from ticker.registration import stops

    with database() as db:
        stops.stop(db, run, by=user() if by is None else by)
    record = awaited(run)
    if as_json:
        render.print_json(formatting.run_data(record))
    else:
        render.say(observed(record))
    if record.outcome is None:
        raise click.exceptions.Exit(NOT_SO)


def awaited(run: int) -> "RunRecord":
    """Returns the run when it has ended, or after a while as it is then."""
    from ticker.read import tasks

    give_up_at, pause = clock.monotonic() + PATIENCE, threading.Event()
    while True:
        with database() as db:
            record = tasks.get_run(db, run, pieces=1).run
        if record.outcome is not None or clock.monotonic() > give_up_at:
            return record
        pause.wait(EVERY)


def observed(run: "RunRecord") -> str:
    """Says how the run ended, or what has not happened yet."""
    if run.outcome is not None:
        return f"run {run.id} has ended: {run.outcome}" + (f": {run.reason}" if run.reason else "")
    requested = f"run {run.id} was asked to stop"
    match run.state:
        case "running":
            ends = f"; it is dead by {formatting.at(run.until)} at the latest" if run.until else ""
            return f"{requested}; worker {run.worker} has not answered in {PATIENCE:g} s{ends}"
        case "processing":
            return f"{requested}; some of its pieces have not ended in {PATIENCE:g} s"
    return f"{requested}; no tick has dropped it in {PATIENCE:g} s"
