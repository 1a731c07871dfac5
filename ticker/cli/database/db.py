"""`ticker db upgrade | sql | check | adopt`: the tables."""

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from ticker.cli import render
from ticker.cli.connection import configured, database
from ticker.cli.options import as_json
from ticker.errors import TickerError

if TYPE_CHECKING:
    from ticker.db.installation import Adopted
    from ticker.settings import Settings


@click.group()
def db() -> None:
    """Create, print or check the tables, or take over those of another installation."""


@db.command()
def upgrade() -> None:
    """Bring the tables to the newest revision.

    Any number of processes may do it at once.
    """
    found = configured()
    from ticker import migrations

    with database():
        pass  # a server that is absent is a matter of configuration
    migrations.upgrade(found.database_url, found.schema)
    render.say(f"schema {found.schema} is at revision {migrations.newest(found.schema)}")


@db.command()
def sql() -> None:
    """Print what `upgrade` runs on an empty database.

    No server is asked.
    """
    found = configured()
    from ticker import migrations

    click.echo(migrations.ddl(found.schema).rstrip("\n"))


@db.command()
@as_json
def check(as_json: bool) -> None:
    """Exit 0 if the tables fit this version, and owners' tables have their triggers; else 1.

    What does not fit is listed.
    """
    found = configured()
    from ticker import migrations
    from ticker.db import installation, sql

    with database():
        pass
    if not (problems := migrations.problems(found.database_url, found.schema)):
        with database() as db:
            here = installation.read(sql.on(db, found.schema))
            problems = [
                *filter(None, [installation.foreign(here, found.environment)]),
                *orphans_to_be(db, found.schema),
            ]
    if as_json:
        render.print_json({"fits": not problems, "problems": problems})
    elif not problems:
        render.say(f"schema {found.schema} fits")
    else:
        for problem in problems:
            render.say(problem)
    if problems:
        raise click.ClickException(f"schema {found.schema} does not fit: {len(problems)} problem(s)")


@db.command()
@click.option("--resume", is_flag=True, help="Pause nothing: after a restore of the same production.")
def adopt(resume: bool) -> None:
    """Take over tables that belong to another installation: a restored or copied database.

    They get a new installation id, and every task is paused, unless --resume is given. Stop tickers and workers first.
    """
    found = configured()
    from ticker.db import connections, installation

    with database():
        pass
    url = found.require_database()
    with connections.translated(), closing(connections.connect(url, name="ticker-cli")) as connection:
        adopted = installation.adopt(connection, found.schema, found.environment, resume=resume)
    render.say(
        f"installation {adopted.former or 'unknown'} is {adopted.id} from now on: {adopted.paused} tasks paused, {adopted.lost}"
        f" runs lost, {adopted.dropped} waiting occurrences dropped"
    )
    if resume:
        take_over_leases(found, adopted)
    else:
        render.say("resume a task: ticker resume TASK; resume all of an owner: ticker resume --owner TYPE:ID")


def take_over_leases(found: "Settings", adopted: "Adopted") -> None:
    """Takes over the queues' leases, so that the ticker may start at once; if that fails, they expire by themselves."""
    from ticker.db.store import PostgresStore
    from ticker.queue.rq import RedisQueue

    try:
        with (
            closing(RedisQueue.from_settings(found)) as queue,
            closing(PostgresStore(found.require_database(), found.schema)) as store,
        ):
            queue.lease(adopted.id, store.queues(), formerly=adopted.former)
    except TickerError as error:
        render.say(f"the leases of its queues end within 5 minutes, and until then no ticker starts: {error}")


def orphans_to_be(db: Any, schema: str) -> list[str]:
    """A sentence for each table of owners whose tasks no trigger takes along."""
    from ticker import owners
    from ticker.db import sql

    return [
        f"table {table} has no trigger of ours: tasks outlive the owners that are deleted from it; install it in a "
        f"migration: owners.install(op, {json.dumps(table)}), or by psql: owners.triggers (docs/concepts/owners.md)"
        for table in owners.unfollowed(sql.on(db, schema), schema)
    ]
