"""`ticker db upgrade | adopt`: creates, prints, checks and takes over the tables."""

from contextlib import closing
from typing import TYPE_CHECKING

import click

from ticker.cli import render
from ticker.cli.connection import configured, database
from ticker.errors import TickerError
from ticker.read.explain import counted

if TYPE_CHECKING:
    from ticker.db.installation import Adopted
    from ticker.settings import Settings


@click.group()
def db() -> None:
    """Create, upgrade, check or adopt the tables."""


@db.command(short_help="Upgrade, check or print the tables.")
@click.option("--check", "only_check", is_flag=True, help="Change nothing; list the problems.")
@click.option(
    "--sql", "only_sql", is_flag=True, help="Print the SQL for an empty database, without connecting to a server."
)
@click.option("--json", "as_json", is_flag=True, help="With --check: print one JSON document.")
def upgrade(only_check: bool, only_sql: bool, as_json: bool) -> None:
    """Upgrade the tables to the newest revision.

    Several processes may run this at the same time. With --check, lists the problems of the tables, of this
    installation, and of the triggers of owner tables, and exits with 0 if there are none, otherwise with 1.
    """
    if only_check + only_sql > 1 or as_json > only_check:
        raise click.UsageError("give --check, with or without --json; or --sql; or none of them")
    settings = configured()
    from ticker import migrations

    if only_check:
        check(settings, as_json)
        return
    if only_sql:
        click.echo(migrations.ddl(settings.schema).rstrip("\n"))
        return
    with database():
        pass  # raises ConfigurationError if the server does not answer
    migrations.upgrade(settings.database_url, settings.schema)
    render.say(f"schema {settings.schema} is at revision {migrations.newest(settings.schema)}")


def check(settings: "Settings", as_json: bool) -> None:
    from ticker import migrations
    from ticker.db import installation, sql
    from ticker.registration import owner_checks

    with database():
        pass
    if not (problems := migrations.problems(settings.database_url, settings.schema)):
        with database() as db:
            here = installation.read(sql.on(db, settings.schema))
            problems = [
                *filter(None, [installation.foreign(here, settings.environment)]),
                *owner_checks.problems(db, settings.schema),
                *owner_checks.outlived(db, settings.schema, partitioned=True),
            ]
            render.warn([*owner_checks.external(db, settings.schema)])
    if as_json:
        render.print_json({"fits": not problems, "problems": problems})
    elif not problems:
        render.say(f"schema {settings.schema} fits")
    else:
        for problem in problems:
            render.say(problem)
    if problems:
        raise click.ClickException(f"schema {settings.schema} does not fit: {counted(len(problems), 'problem')}")


@db.command(short_help="Take over the tables of another installation.")
@click.option(
    "--resume", is_flag=True, help="Do not pause tasks. Use this for a restored backup of the same production system."
)
@click.option("--force", is_flag=True, help="Do not check whether a ticker or a worker was at work in the last 90 s.")
def adopt(resume: bool, force: bool) -> None:
    """Take over the tables of another installation, such as a restored or copied database.

    The tables get a new installation id. All tasks are paused unless --resume is given; `ticker resume --all` ends the
    pause. Stop tickers and workers first.
    """
    settings = configured()
    from ticker.db import connections, installation

    with database():
        pass
    url = settings.require_database()
    with connections.translated(), closing(connections.connect(url, name="ticker-cli")) as connection:
        adopted = installation.adopt(connection, settings.schema, settings.environment, resume=resume, force=force)
    render.say(
        f"installation {adopted.former or 'unknown'} is now {adopted.id}: {counted(adopted.lost, 'run')} lost,"
        f" {counted(adopted.dropped, 'waiting occurrence')} dropped"
    )
    if resume:
        take_over_leases(settings, adopted)
    else:
        render.say("all tasks are paused; to resume them: ticker resume --all")


def take_over_leases(settings: "Settings", adopted: "Adopted") -> None:
    """Takes over the leases of the queues, so that a ticker can start at once. If this fails, the leases expire later."""
    from ticker.db.store import PostgresStore
    from ticker.queue.rq import RedisQueue

    try:
        with (
            closing(RedisQueue.from_settings(settings)) as queue,
            closing(PostgresStore(settings.require_database(), settings.schema)) as store,
        ):
            queue.lease(adopted.id, store.queues(), formerly=adopted.former)
    except TickerError as error:
        render.say(f"no ticker can start until the leases of the queues expire, within 5 minutes: {error}")
