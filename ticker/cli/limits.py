"""`ticker limit`: limits of runs that share a key, and their use."""

from collections.abc import Sequence
from typing import Any

import click

from ticker.cli import options, render
from ticker.cli.connection import database, user
from ticker.cli.fit import row
from ticker.read import formatting, gates
from ticker.read.explain import counted
from ticker.tasks import gates as declared


@click.command()
@click.argument("key", required=False)
@click.option(
    "--concurrency", metavar="N", type=options.Integer(), help="How many runs of the key may be active at once."
)
@click.option("--rate", metavar="N/DURATION", help="How many runs of the key may start in a period, such as 300/1m.")
@click.option(
    "--burst",
    metavar="N",
    type=options.Integer(),
    help="How many of these may start at once; by default, those of one second.",
)
@click.option("--remove", is_flag=True, help="Remove the limit.")
@click.option("--release", is_flag=True, help="Open the key that SlowDown closed. One run starts first.")
@options.limit(100)
@options.as_json
def limit(
    key: str | None,
    concurrency: int | None,
    rate: str | None,
    burst: int | None,
    remove: bool,
    release: bool,
    limit: int,
) -> None:
    """List limited keys, or limit the runs of tasks that have KEY.

    Without KEY, lists the keys and their use, those with most due tasks first. A limit applies to all workers together,
    and replaces the former one of KEY. A KEY that ends with an asterisk limits each key with that beginning separately.
    """
    given = (concurrency, rate, burst) != (None, None, None)
    if key is None:
        if given or remove or release:
            raise click.UsageError("missing argument 'KEY'; without options, ticker limit lists all keys")
        list_all(limit)
        return
    if given + remove + release != 1:
        raise click.UsageError("give --concurrency, --rate or both; or else --remove or --release")
    answer: Any
    with database() as db:
        if release:
            answer = {"key": key, "released": declared.release(db, key)}
            text = f"{key} is released" if answer["released"] else f"{key} is not closed"
        elif remove:
            answer = declared.unlimit(db, key)
            text = f"removed the limit of {key}" if answer else f"{key} had no limit"
        else:
            answer = declared.limit(db, key, concurrency=concurrency, rate=rate, burst=burst, by=user())
            text = f"{key}: {in_words(answer)}"
    render.answer(answer, text)


def list_all(limit: int) -> None:
    with database() as db:
        statuses = gates.list_limits(db, limit=min(limit + 1, options.MOST_ROWS))
    render.print_rows(statuses, show, "no limits", limit=limit, fewer="limits; see --limit")


def show(statuses: Sequence[gates.LimitStatus]) -> None:
    rows = []
    for one in statuses:
        free = "" if one.tokens is None else f"{one.tokens} of {one.burst}"
        active = "" if one.concurrency is None else f"{one.active} of {one.concurrency}"
        if one.allowed is not None:
            active += f" ({one.allowed} allowed)"
        held, waiting = formatting.moment(one.closed_until), one.waiting or ""
        cells = one.key, one.limited_by or "", active.strip(), formatting.rate(one), free, held, waiting
        rows.append(row(*cells, style="yellow" if held else ""))
    render.print_table(("key", "limited by", "active", "rate", "free", "closed until (UTC)", "due"), rows)


def in_words(one: declared.Limit) -> str:
    active = [f"at most {counted(one.concurrency, 'active run')}"] if one.concurrency else []
    starts = [f"{formatting.rate(one)} with bursts of {one.burst}"] if one.rate else []
    return ", ".join(active + starts)
