"""`ticker run | tick | health`: the process, one pass of it by hand, and whether it lives."""

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from ticker.cli import render
from ticker.cli.connection import configured, database
from ticker.cli.options import as_json
from ticker.errors import ConfigurationError, QueueUnavailable, Unavailable
from ticker.schedules.duration import DAY, SECOND, milliseconds, words

if TYPE_CHECKING:
    from ticker.settings import Settings
    from ticker.status import TickerStatus
    from ticker.tick import Report


@click.command()
@click.option("--tick", metavar="DURATION", help="From one tick to the next; TICKER_TICK, or 30s.")
@click.option("--look-ahead", metavar="DURATION", help="How early an interval is due; TICKER_LOOK_AHEAD, or 1s.")
@click.option("--batch", metavar="N", help="Rows that are locked and pushed at a time; TICKER_BATCH, or 1000.")
def run(tick: str | None, look_ahead: str | None, batch: str | None) -> None:
    """Run the ticker, until SIGTERM or SIGINT.

    Any number of them may run, on any hosts.
    """
    found = configured(tick=tick, look_ahead=look_ahead, batch=batch)
    from ticker import logs, loop, startup

    startup.check(found)
    logs.to_stdout()
    loop.run(found)


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
        render.print_json({**render.plain_data(report), **totals})
    else:
        render.say(in_words(report, took_ms))
    if report.errors:
        raise click.ClickException(f"{report.errors} could not be pushed and stay due; ticker list says why")


@click.command()
@click.option("--max-age", metavar="DURATION", default="90s", show_default=True, help="How old the last tick may be.")
@as_json
def health(max_age: str, as_json: bool) -> None:
    """Exit 0 if a ticker has ticked lately, else 1.

    Lately: by the database's clock. Says also which servers answer. For health checks of containers.
    """
    most = milliseconds("--max-age", max_age, least=SECOND, most=366 * DAY)
    found = configured()
    tickers, database_error = heartbeats(found)
    redis_error = ping(found)
    ages = [age for age in map(render.age, tickers) if age is not None]
    # an age under zero is a heartbeat from before the clock was set back: as old as it is far away
    healthy = not database_error and any(abs(age) <= most for age in ages)
    if as_json:
        servers = {"postgresql": _answer(database_error), "redis": _answer(redis_error)}
        render.print_json(
            {"healthy": healthy, "max_age_ms": most, **servers, "tickers": [*map(render.ticker_data, tickers)]}
        )
    else:
        render.say(str(database_error or "PostgreSQL answers"))
        render.say(str(redis_error or "Redis answers"))
        for ticker in tickers:
            render.say(f"ticker {ticker.host} pid {ticker.pid}: {last_tick(ticker)}")
    if not healthy:
        raise click.ClickException(database_error or unhealthy(tickers, most))


def print_due(as_json: bool) -> None:
    from ticker import status

    with database() as db:
        due = status.due_tasks(db)
    if as_json:
        render.print_json([render.task_data(task) for task in due])
    elif due:
        render.print_tasks(due)
    else:
        render.say("nothing is due")


def one_pass(found: "Settings") -> "tuple[Report, int]":
    """One tick with its own connections, and how many milliseconds it took."""
    from ticker import clock, startup
    from ticker.enqueue import RedisQueue
    from ticker.store import PostgresStore
    from ticker.tick import tick

    startup.check(found)
    store = PostgresStore(found.require_database(), found.schema)
    queue = RedisQueue.from_settings(found)
    began = clock.monotonic()
    try:
        report = tick(store, queue, clock.now(), batch=found.batch)
    finally:
        store.close()
        queue.close()
    return report, round((clock.monotonic() - began) * 1000)


def in_words(report: "Report", took_ms: int) -> str:
    """The counts of the ticker's log line."""
    pushed, swept = report.due + report.planned, report.swept
    return (
        f"tick {render.at(report.now)} due={pushed.due} enqueued={report.enqueued} held={pushed.held}"
        f" repushed={swept.repushed} expired={swept.expired} lost={swept.lost + swept.overdue}"
        f" retries={report.followed.retries}"
        f" errors={report.errors} took={took_ms / 1000:.3f}"
    )


def heartbeats(found: "Settings") -> "tuple[Sequence[TickerStatus], str]":
    """The tickers, or why PostgreSQL does not tell. An unset DATABASE_URL is no question of health (exit 78)."""
    from ticker import connections, status

    try:
        with connections.translated(), closing(connections.connect(found.require_database())) as db:
            return status.tickers(db), ""
    except Unavailable as error:
        return [], str(error)


def ping(found: "Settings") -> str:
    """What is wrong with Redis, or nothing."""
    from ticker import startup

    try:
        startup.check_redis(found)
    except (QueueUnavailable, ConfigurationError) as error:
        return str(error)
    return ""


def unhealthy(tickers: "Sequence[TickerStatus]", most: int) -> str:
    if not tickers:
        return "no ticker has ever ticked here; start one: ticker run"
    last = tickers[0]
    return f"no ticker has ticked within {words(most)}: the last one, pid {last.pid} on {last.host}, {last_tick(last)}"


def last_tick(ticker: "TickerStatus") -> str:
    age = render.age(ticker)
    if age is None:
        return "has not ticked yet"
    text = words(abs(age) // SECOND * SECOND)
    return f"ticked {text} ago" if age >= 0 else f"ticked {text} ahead of the database's clock"


def _answer(error: str) -> dict[str, Any]:
    return {"answers": not error, "error": error or None}
