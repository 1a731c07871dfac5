"""`ticker db upgrade | sql | check`: the tables."""

import json

import click

from ticker.cli import render
from ticker.cli.connection import configured, database
from ticker.cli.options import as_json


@click.group()
def db() -> None:
    """Create, print or check the tables."""


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

    with database():
        pass
    problems = migrations.problems(found.database_url, found.schema) or orphans_to_be(found.schema)
    if as_json:
        render.print_json({"fits": not problems, "problems": problems})
    elif not problems:
        render.say(f"schema {found.schema} fits")
    else:
        for problem in problems:
            render.say(problem)
    if problems:
        raise click.ClickException(f"schema {found.schema} does not fit: {len(problems)} problem(s)")


def orphans_to_be(schema: str) -> list[str]:
    """A sentence for each table of owners whose tasks no trigger takes along."""
    from ticker import owners, sql

    with database() as db:
        tables = owners.unfollowed(sql.on(db, schema), schema)
    return [
        f"table {table} has no trigger of ours: tasks outlive the owners that are deleted from it; install it in a "
        f"migration: owners.install(op, {json.dumps(table)}), or by psql: owners.triggers (docs/owners.md)"
        for table in tables
    ]
