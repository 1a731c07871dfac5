"""`ticker run | tick | worker | demo`: starts the processes, or makes a single pass."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from ticker.cli import options, render
from ticker.cli.connection import configured, database, store
from ticker.errors import BadInput, ConfigurationError
from ticker.read import formatting, overview, tasks
from ticker.read.explain import counted

if TYPE_CHECKING:
    from ticker.daemon.tick_job import Observer
    from ticker.engine.passes import Report
    from ticker.settings import Settings

# -P keeps the current folder off the front of sys.path, where its modules could shadow our packages
LAUNCHER = ("-P", "-m", "wrappers")


@click.command()
@click.option("--tick", metavar="DURATION", help="Time between two ticks. Defaults to TICKER_TICK, or 30s.")
@click.option("--batch", metavar="N", help="Rows locked and pushed at a time. Defaults to TICKER_BATCH, or 1000.")
@click.option("--metrics-port", metavar="PORT", type=options.Integer(0, 65535),
              help="Serve Prometheus metrics on this port; 0 picks a free port, which the log names.")  # fmt: skip
@click.option(
    "--metrics-host", metavar="ADDRESS", help="The address on which to serve the metrics. Defaults to 127.0.0.1."
)
@click.option("--health-port", metavar="PORT", type=options.Integer(0, 65535),
              help="Answer /livez and /readyz on this port; 0 picks a free port, which the log names.")  # fmt: skip
@click.option("--health-host", metavar="ADDRESS", help="The address on which to answer them. Defaults to 127.0.0.1.")
def run(
    tick: str | None,
    batch: str | None,
    metrics_port: int | None,
    metrics_host: str | None,
    health_port: int | None,
    health_host: str | None,
) -> None:
    """Run the ticker until SIGTERM or SIGINT.

    Any number of tickers may run, on any hosts. Under systemd, the ticker reports its state (Type=notify,
    WatchdogSec=).
    """
    settings = configured(tick=tick, batch=batch)
    from ticker import logs
    from ticker.daemon import loop, signs
    from ticker.queue import inspect
    from wrappers import shadowing

    try:
        here = inspect.check(settings)
    except ConfigurationError as error:
        signs.show_refusal(settings, error)
        raise
    if sentence := shadowing.shadowing(Path()):
        render.warn([sentence])  # the ticker itself imports nothing from there
    render.warn([*scheduled_again(here.taken_from)])
    logs.to_stdout(settings.log)
    with observed(settings, metrics_host, metrics_port) as observer:
        loop.run(settings, observer, (health_host, health_port))


def scheduled_again(sources: Sequence[str]) -> "Iterator[str]":
    """Yields warnings about entries that were taken over, and that are scheduled there again."""
    if sources:
        from ticker.importing import take_over

        yield from take_over.warnings(sources)


@contextmanager
def observed(settings: "Settings", host: str | None, port: int | None) -> "Iterator[Observer | None]":
    """Serves the metrics within the block if a port is given. Otherwise, their library is not needed."""
    if port is None:
        if host is not None:
            raise BadInput("--metrics-host", host, "needs a port; add --metrics-port")
        yield None
        return
    from ticker.metrics import exposition

    with exposition.serving(settings, host, port) as ticks:
        yield ticks


@click.command()
@click.option("--dry-run", is_flag=True, help="List the tasks that are due, without changing anything.")
@options.as_json
def tick(dry_run: bool) -> None:
    """Run one tick and report it.

    It is the same as a tick of `ticker run`, but without look-ahead.
    """
    if dry_run:
        print_due()
        return
    report, took_ms = one_pass(configured())
    totals = {"enqueued": report.enqueued, "errors": report.errors, "took_ms": took_ms}
    line = f"tick {formatting.at(report.now)} {report.in_words(took_ms / 1000)}"
    render.answer({**formatting.plain_data(report), **totals}, line)
    if report.errors:
        raise click.ClickException(
            f"{counted(report.errors, 'job')} could not be pushed and will be tried again; ticker list says why"
        )


def print_due() -> None:
    with database() as db:
        due = tasks.due_tasks(db)
        ends = overview.last_ends(db, due)
    render.print_rows(due, render.print_tasks, "nothing is due", lambda task: formatting.task_data(task, ends))


def one_pass(settings: "Settings") -> "tuple[Report, int]":
    """Runs one tick on its own connections. Returns the report and the duration in milliseconds."""
    from ticker import clock
    from ticker.engine.passes import TickOptions
    from ticker.engine.tick import tick
    from ticker.queue import inspect
    from ticker.queue.rq import RedisQueue

    inspect.check(settings)
    chosen = TickOptions(batch=settings.batch, depths=settings.queue_depth, waiting_jobs=settings.waiting_jobs)
    with store(settings) as opened, closing(RedisQueue.from_settings(settings)) as queue:
        began = clock.monotonic()
        report = tick(opened, queue, clock.now(), chosen)
        queue.lease(opened.installation, opened.queues())
    return report, round((clock.monotonic() - began) * 1000)


@click.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def worker(arguments: tuple[str, ...]) -> NoReturn:
    """Run a worker. Accepts every option of `rq worker`."""
    # The worker's supervisor has to stay small, so this process becomes the launcher instead of importing it.
    os.execv(sys.executable, [sys.executable, *LAUNCHER, *arguments])


@click.command()
@click.option("--web", is_flag=True, help="Also serve the page, and continue until interrupted.")
@click.pass_context
def demo(context: click.Context, web: bool) -> None:
    """Poll simulated mailboxes and show what happens.

    Starts its own PostgreSQL, Valkey and workers. Everything it creates is removed at the end.
    """
    try:
        from ticker.demo.main import demo as show
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'the demo needs {error.name}: pip install "rq-ticker[demo]"') from error
    context.exit(show(web))
