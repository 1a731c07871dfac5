"""`ticker run | tick | health`: the ticker process, a single pass, and the health check."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ticker.cli import options, render
from ticker.cli.connection import configured, database
from ticker.cli.options import as_json
from ticker.errors import BadInput
from ticker.read import formatting
from ticker.read.explain import counted
from ticker.schedules.duration import DAY, SECOND, milliseconds

if TYPE_CHECKING:
    from ticker.daemon.loop import Observer
    from ticker.engine.tick import Report
    from ticker.settings import Settings


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
    from ticker.daemon import loop
    from ticker.queue import checks
    from wrappers import shadowing

    checks.check(settings)
    if sentence := shadowing.shadowing(Path()):
        render.warn([sentence])  # the ticker itself imports nothing from there
    logs.to_stdout(settings.log)
    with observed(settings, metrics_host, metrics_port) as observer:
        loop.run(settings, observer, (health_host, health_port))


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
@as_json
def tick(dry_run: bool, as_json: bool) -> None:
    """Run one tick and report it.

    It is the same as a tick of `ticker run`, but without look-ahead.
    """
    if dry_run:
        print_due(as_json)
        return
    report, took_ms = one_pass(configured())
    if as_json:
        totals = {"enqueued": report.enqueued, "errors": report.errors, "took_ms": took_ms}
        render.print_json({**formatting.plain_data(report), **totals})
    else:
        render.say(in_words(report, took_ms))
    if report.errors:
        raise click.ClickException(
            f"{counted(report.errors, 'job')} could not be pushed and will be tried again; ticker list says why"
        )


@click.command()
@click.option(
    "--max-age", metavar="DURATION", help="Maximum age of the last tick. Defaults to three ticks, but at least 90s."
)
@as_json
def health(max_age: str | None, as_json: bool) -> None:
    """Exit with 0 if all is well, otherwise with 1.

    All is well if both servers answer, a ticker has ticked recently, and each queue with waiting jobs has a worker.
    Ages are measured by the database's clock. The command is suitable for container health checks.
    """
    from ticker.read import gates
    from ticker.read import health as health_check

    most = None if max_age is None else milliseconds("--max-age", max_age, least=SECOND, most=366 * DAY)
    status = health_check.look(configured(), max_age_ms=most)
    if as_json:
        render.print_json(health_check.data(status))
    else:
        render.say(status.database_error or "PostgreSQL answers")
        render.say(status.redis_error or "Redis answers")
        for ticker in status.tickers:
            silent = " (silent)" if health_check.silent_ms(ticker, status.max_age_ms) else ""
            render.say(f"ticker {ticker.host} pid {ticker.pid}: {health_check.last_tick(ticker)}{silent}")
        render.warn(status.warnings)
        for pause in status.pauses:
            render.say(gates.sentence(pause))
        if status.late:
            render.say(f"late: {counted(status.late, 'task')}; ticker top says why")
    if not status.ok:
        raise click.ClickException("; ".join(status.problems))


def print_due(as_json: bool) -> None:
    from ticker.read import overview, tasks

    with database() as db:
        due = tasks.due_tasks(db)
        ends = overview.last_ends(db, due if as_json else [])
    if as_json:
        render.print_json([formatting.task_data(task, ends) for task in due])
    elif due:
        render.print_tasks(due)
    else:
        render.say("nothing is due")


def one_pass(settings: "Settings") -> "tuple[Report, int]":
    """Runs one tick on its own connections. Returns the report and the duration in milliseconds."""
    from ticker import clock
    from ticker.db.store import PostgresStore
    from ticker.engine.tick import TickOptions, tick
    from ticker.queue import checks
    from ticker.queue.rq import RedisQueue

    checks.check(settings)
    store = PostgresStore(settings.require_database(), settings.schema)
    queue = RedisQueue.from_settings(settings)
    began = clock.monotonic()
    try:
        report = tick(
            store,
            queue,
            clock.now(),
            TickOptions(batch=settings.batch, depths=settings.queue_depth, waiting_jobs=settings.waiting_jobs),
        )
        queue.lease(store.installation, store.queues())
    finally:
        store.close()
        queue.close()
    return report, round((clock.monotonic() - began) * 1000)


def in_words(report: "Report", took_ms: int) -> str:
    """Returns the counts as the ticker logs them."""
    pushed, swept = report.due + report.planned, report.swept
    return (
        f"tick {formatting.at(report.now)} due={pushed.due} enqueued={report.enqueued} held={pushed.held}"
        f" repushed={swept.repushed} expired={swept.expired} lost={swept.lost + swept.overdue}"
        f" retries={report.followed.retries}"
        f" errors={report.errors} took={took_ms / 1000:.3f}"
    )
