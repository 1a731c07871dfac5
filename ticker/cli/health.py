"""`ticker health | workers`: whether all is well, and how many workers the queues need, for people and for programs."""

from collections.abc import Sequence

import click

from ticker.cli import options, render
from ticker.cli.connection import configured, database
from ticker.cli.exits import NOT_SO
from ticker.cli.fit import row
from ticker.read import gates
from ticker.read import workers as read_workers
from ticker.read.explain import span
from ticker.read.workers import Need
from ticker.schedules.duration import DAY, SECOND, milliseconds


@click.command()
@click.option(
    "--max-age",
    metavar="DURATION",
    help="Maximum age of the last sign of a ticker. Defaults to three of its ticks, but at least 15s.",
)
@options.as_json
def health(max_age: str | None) -> None:
    """Exit with 0 if all is well, otherwise with 1.

    All is well if both servers answer, a ticker has ticked recently, and each queue with waiting jobs has a worker.
    Ages are measured by the database's clock. The command is suitable for container health checks: failing and late
    tasks are not a problem here, because a restart would not help. `ticker doctor` judges them.
    """
    from ticker.read import health as health_check

    most = None if max_age is None else milliseconds("--max-age", max_age, least=SECOND, most=366 * DAY)
    status = health_check.look(configured(), max_age_ms=most)
    if render.is_json():
        render.print_json(health_check.data(status))
    if not status.ok:  # before the rest
        render.say(f"error: {'; '.join(status.problems)}", err=True)
    if not render.is_json():
        for server, error in ("PostgreSQL", status.database_error), ("Redis", status.redis_error):
            if not error:
                render.say(f"{server} answers")
        for ticker in status.tickers:
            silent = " (silent)" if ticker.silent_ms(status.max_age_ms) else ""
            render.say(f"ticker {ticker.host} pid {ticker.pid}: {health_check.last_tick(ticker)}{silent}")
        render.warn(status.warnings)
        for pause in status.pauses:
            render.say(gates.told(pause))
        for sentence in status.lateness:
            render.say(sentence)
    if not status.ok:
        click.get_current_context().exit(NOT_SO)


@click.command()
@options.text("--queue", "NAME", "Print only how many workers this queue needs now, as one integer.")
@options.as_json
def workers(queue: str | None) -> None:
    """Show how many workers each queue needs, and why.

    `ticker run` measures that every two minutes, from the tasks, from what waits, and from the starts and durations of
    the last hour. Work that a limit or a pause holds back does not count.

    With --queue, prints how many workers the queue needs now, as one integer. This many are busy for at most 70% of the
    time, and start within two ticks what is due at once. For autoscalers: if the number is unknown, prints nothing on
    standard output, and exits with 1.
    """
    if queue is not None and render.is_json():
        raise click.UsageError("--queue prints one integer; leave out --json")
    with database() as db:
        needs = read_workers.needs(db)
    if queue is not None:
        click.echo(enough(queue, needs))
        return
    render.print_rows(
        needs, show, "no ticker has measured any need yet; ticker run does so a few minutes after its start"
    )


def enough(queue: str, needs: Sequence[Need]) -> int | None:
    found = [need for need in needs if need.queue == queue]
    if not found:
        raise click.ClickException(
            f"no ticker has measured the need of queue {queue}: no task that may run uses it, or ticker run has just started"
        )
    if found[0].why_unknown:
        raise click.ClickException(found[0].why_unknown)
    return found[0].enough


def show(needs: Sequence[Need]) -> None:
    rows = []
    for need in needs:
        render.say(need.sentence)
        for one in need.functions:
            mean, p95 = ("unknown" if ms is None else span(ms) for ms in (one.mean_ms, one.p95_ms))
            starts = f"{one.starts_per_minute:g}"
            rows.append(row(need.queue, one.name, starts, mean, p95, one.concurrency))
    render.warn([need.why_unknown for need in needs if need.why_unknown])
    render.print_table(("queue", "function", "starts per minute", "mean", "p95", "at the same time"), rows)
