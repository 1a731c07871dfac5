"""`ticker workers`: how many workers the queues need, for people and for autoscalers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ticker.cli import options, render
from ticker.cli.connection import database
from ticker.cli.options import as_json
from ticker.read import formatting
from ticker.read.explain import span

if TYPE_CHECKING:
    from ticker.read.workers import Need


@click.command()
@click.option(
    "--queue",
    metavar="NAME",
    callback=options.printable,
    help="Print only how many workers this queue needs now, as one integer.",
)
@as_json
def workers(queue: str | None, as_json: bool) -> None:
    """Show how many workers each queue needs, and why.

    `ticker run` measures that every two minutes, from the tasks, from what waits, and from the starts and durations of
    the last hour. Work that a limit or a pause holds back does not count.

    With --queue, prints how many workers the queue needs now, as one integer. This many are busy for at most 70% of the
    time, and start within two ticks what is due at once. For autoscalers: if the number is unknown, prints nothing on
    standard output, and exits with 1.
    """
    if queue is not None and as_json:
        raise click.UsageError("--queue prints one integer; leave out --json")
    needs = read()
    if queue is not None:
        click.echo(enough(queue, needs))
        return
    if as_json:
        render.print_json([formatting.plain_data(need) for need in needs])
        return
    for need in needs:
        render.say(need.sentence)
    render.warn([need.why_unknown for need in needs if need.why_unknown])
    if needs:
        show(needs)
    else:
        render.say("no ticker has measured any need yet; ticker run does so a few minutes after its start")


def enough(queue: str, needs: "Sequence[Need]") -> int | None:
    found = [need for need in needs if need.queue == queue]
    if not found:
        raise click.ClickException(
            f"no ticker has measured the need of queue {queue}: no task that may run uses it, or ticker run has just started"
        )
    if found[0].why_unknown:
        raise click.ClickException(found[0].why_unknown)
    return found[0].enough


def read() -> "list[Need]":
    from ticker.read import workers as read_workers

    with database() as db:
        return read_workers.needs(db)


def show(needs: "Sequence[Need]") -> None:
    table = render.columns("queue", "function", "starts per minute", "mean", "p95", "at the same time")
    for need in needs:
        for one in need.functions:
            mean, p95 = ("unknown" if ms is None else span(ms) for ms in (one.mean_ms, one.p95_ms))
            render.add(table, need.queue, one.name, f"{one.starts_per_minute:g}", mean, p95, one.concurrency)
    render.print_table(table)
