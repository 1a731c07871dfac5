"""`ticker runs --journal | --follow | --drops-by`: lists ended runs, drops and events, and counts drops."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any

import click

from ticker.cli import options, render
from ticker.cli.connection import configured, database, on_task
from ticker.cli.fit import row
from ticker.db.steps import run
from ticker.errors import DatabaseUnavailable
from ticker.read import formatting
from ticker.read import journal as read_journal
from ticker.read.entries import JournalEntry
from ticker.read.journal import Drops, Tail

EVERY = 1.0  # seconds between two queries of --follow


def print_journal(
    *,
    task: str | None,
    owner: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    follow: bool,
    **filters: Any,
) -> None:
    """Prints the entries, newest last. A deleted task is found by its id or its owner."""
    if follow and until is not None:
        raise click.UsageError("--follow and --until cannot be combined; leave out one of them")
    with on_task(task, owner if task is not None else None) as (db, named):
        wanted = read_journal.select(db, task=named, owner=owner, **filters)
        tail = read_journal.Tail(wanted)
        lines = run(db, tail.begin(since, until, limit))
    show(lines)
    if follow:
        with suppress(KeyboardInterrupt):
            for new in new_lines(tail):
                show(new, quiet=True)


def count_drops(by: str, since: str | None, until: str | None, limit: int) -> None:
    with database() as db:
        groups = read_journal.drops(db, by=by, since=since, until=until, limit=min(limit + 1, options.MOST_ROWS))
    fewer = "groups; see --limit, --since and --until"
    render.print_rows(groups, partial(print_drops, by), "no drops", limit=limit, fewer=fewer)


# -------------------------------------------------------------------------------------------------------- following


def new_lines(tail: Tail) -> Iterator[list[JournalEntry]]:
    """Yields new entries every second. Retries if the server goes away."""
    from ticker.db import connections

    url, pause, reported = configured().require_database(), threading.Event(), False
    while True:
        try:
            with connections.translated(), closing(connections.connect(url, name="ticker-cli")) as db:
                while True:
                    pause.wait(EVERY)
                    yield run(db, tail.more())
                    reported = False
        except DatabaseUnavailable as error:
            if not reported:
                render.say(f"{error}; retrying every second", err=True)
            reported = True
            pause.wait(EVERY)


# ----------------------------------------------------------------------------------------------------------- output


def show(lines: list[JournalEntry], *, quiet: bool = False) -> None:
    if render.is_json():
        for line in lines:
            click.echo(json.dumps(formatting.plain_data(line)))
    elif lines:
        render.print_lines(lines, whose=True, head=not quiet)
    elif not quiet:
        render.say("nothing was recorded")


def print_drops(by: str, counted: Sequence[Drops]) -> None:
    rows = []
    for one in counted:
        example = one.example
        such = f"{example.task_id} {example.task_name}: {example.words}" if example else ""
        rows.append(row(one.count, one.key or "-", formatting.moment(one.newest), such))
    render.print_table(("count", by, "newest (UTC)", "such as"), rows)
