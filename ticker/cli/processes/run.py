"""`ticker run | tick | health`: the process, one pass of it by hand, and whether it lives."""

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
from ticker.schedules.duration import DAY, SECOND, milliseconds

if TYPE_CHECKING:
    from ticker.daemon.loop import Observer
    from ticker.engine.tick import Report
    from ticker.settings import Settings

HERE = "127.0.0.1"


@click.command()
@click.option("--tick", metavar="DURATION", help="From one tick to the next; TICKER_TICK, or 30s.")
@click.option("--look-ahead", metavar="DURATION", help="How early an interval is due; TICKER_LOOK_AHEAD, or 1s.")
@click.option("--batch", metavar="N", help="Rows that are locked and pushed at a time; TICKER_BATCH, or 1000.")
@click.option("--metrics-port", metavar="PORT", type=options.Whole(0, 65535),
              help="Serve metrics for Prometheus there; 0: at any free port, which the log names.")  # fmt: skip
@click.option("--metrics-host", metavar="ADDRESS", help="The address of that port; 127.0.0.1.")
def run(
    tick: str | None, look_ahead: str | None, batch: str | None, metrics_port: int | None, metrics_host: str | None
) -> None:
    """Run the ticker, until SIGTERM or SIGINT.

    Any number of them may run, on any hosts. Under systemd it tells how it is (Type=notify, WatchdogSec=).
    """
    found = configured(tick=tick, look_ahead=look_ahead, batch=batch)
    from ticker import logs
    from ticker.daemon import loop
    from ticker.queue import checks
    from wrappers import shadowing

    checks.check(found)
    if sentence := shadowing.shadowing(Path()):
        render.warn([sentence])  # the ticker itself imports nothing from there
    logs.to_stdout()
    with observed(found, metrics_host, metrics_port) as observer:
        loop.run(found, observer)


@contextmanager
def observed(found: "Settings", host: str | None, port: int | None) -> "Iterator[Observer | None]":
    """Within the block the metrics are served, where that is wanted: their library need not be there otherwise."""
    if port is None:
        if host is not None:
            raise BadInput("--metrics-host", host, "stands without a port; add --metrics-port")
        yield None
        return
    from ticker.metrics import server

    with server.serving(found, host or HERE, port) as ticks:
        yield ticks


@click.command()
@click.option("--dry-run", is_flag=True, help="List the tasks that are due, and change nothing.")
@as_json
def tick(dry_run: bool, as_json: bool) -> None:
    """Make one pass by hand, and report it.

    It works as the ticker's own, without look-ahead.
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
        raise click.ClickException(f"{report.errors} could not be pushed and stay due; ticker list says why")


@click.command()
@click.option("--max-age", metavar="DURATION", help="How old the last tick may be; three ticks, or 90s.")
@as_json
def health(max_age: str | None, as_json: bool) -> None:
    """Exit 0 if all is well, else 1.

    That is: both servers answer, a ticker has ticked lately (by the database's clock), and a worker listens to each queue
    in which jobs wait. For health checks of containers.
    """
    from ticker.read import health as looking

    most = None if max_age is None else milliseconds("--max-age", max_age, least=SECOND, most=366 * DAY)
    found = looking.look(configured(), max_age_ms=most)
    if as_json:
        render.print_json(looking.data(found))
    else:
        render.say(found.database_error or "PostgreSQL answers")
        render.say(found.redis_error or "Redis answers")
        for ticker in found.tickers:
            silent = " (silent)" if looking.silent_ms(ticker, found.max_age_ms) else ""
            render.say(f"ticker {ticker.host} pid {ticker.pid}: {looking.last_tick(ticker)}{silent}")
    if not found.ok:
        raise click.ClickException("; ".join(found.problems))


def print_due(as_json: bool) -> None:
    from ticker.read import tasks

    with database() as db:
        due = tasks.due_tasks(db)
    if as_json:
        render.print_json([formatting.task_data(task) for task in due])
    elif due:
        render.print_tasks(due)
    else:
        render.say("nothing is due")


def one_pass(found: "Settings") -> "tuple[Report, int]":
    """One tick with its own connections, and how many milliseconds it took."""
    from ticker import clock
    from ticker.db.store import PostgresStore
    from ticker.engine.tick import TickOptions, tick
    from ticker.queue import checks
    from ticker.queue.rq import RedisQueue

    checks.check(found)
    store = PostgresStore(found.require_database(), found.schema)
    queue = RedisQueue.from_settings(found)
    began = clock.monotonic()
    try:
        report = tick(store, queue, clock.now(), TickOptions(batch=found.batch, depths=found.queue_depth))
        queue.lease(store.installation, store.queues())
    finally:
        store.close()
        queue.close()
    return report, round((clock.monotonic() - began) * 1000)


def in_words(report: "Report", took_ms: int) -> str:
    """The counts of the ticker's log line."""
    pushed, swept = report.due + report.planned, report.swept
    return (
        f"tick {formatting.at(report.now)} due={pushed.due} enqueued={report.enqueued} held={pushed.held}"
        f" repushed={swept.repushed} expired={swept.expired} lost={swept.lost + swept.overdue}"
        f" retries={report.followed.retries}"
        f" errors={report.errors} took={took_ms / 1000:.3f}"
    )
