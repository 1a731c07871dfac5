"""`ticker db upgrade | adopt | sql` and `ticker prune`: creates, prints, checks, takes over and prunes the tables."""

from contextlib import closing
from threading import Event

import click

from ticker.cli import options, render
from ticker.cli.connection import configured, connected, database, require_answer, store
from ticker.cli.fit import row
from ticker.db import installation, sql
from ticker.errors import BadInput, TickerError, did_you_mean
from ticker.read import formatting
from ticker.read.explain import counted
from ticker.settings import Settings
from ticker.tasks import owner_checks
from ticker.tasks.rows import LISTS


@click.group()
def db() -> None:
    """Create, upgrade, check or adopt the tables, or print SQL."""


@db.command(short_help="Upgrade, check or print the tables.")
@click.option("--check", "only_check", is_flag=True, help="Change nothing; list the problems.")
@click.option("--plan", "only_plan", is_flag=True, help="Change nothing; list the locks that the upgrade would take.")
@click.option(
    "--sql", "only_sql", is_flag=True, help="Print the SQL for an empty database, without connecting to a server."
)
@options.json_flag("With --check or --plan: print one JSON document.")
def upgrade(only_check: bool, only_plan: bool, only_sql: bool) -> None:
    """Upgrade the tables to the newest revision.

    Several processes may run this at the same time, while tickers and workers keep running. With --check, lists the
    problems of the tables, of this installation, and of the triggers of owner tables, and exits with 0 if there are
    none, otherwise with 1. With --plan, lists the pending revisions, the tables that each of them locks, and for how
    long it is expected to lock them.
    """
    if only_check + only_plan + only_sql > 1 or render.is_json() > only_check + only_plan:
        raise click.UsageError("give --check or --plan, with or without --json; or --sql; or none of them")
    settings = configured()
    from ticker import migrations

    if only_check:
        check(settings)
        return
    if only_plan:
        plan(settings)
        return
    if only_sql:
        click.echo(migrations.ddl(settings.schema).rstrip("\n"))
        return
    require_answer()
    revision = migrations.upgrade(settings.database_url, settings.schema)
    render.say(f"schema {settings.schema} is at revision {revision}")


def plan(settings: Settings) -> None:
    from ticker.migrations import plan

    revision, pending, locks = plan.plan(settings.require_database(), settings.schema)
    render.answer(
        {"revision": revision, "pending": pending, "locks": [one._asdict() for one in locks]},
        f"schema {settings.schema} is at revision {revision or 'none'}; pending: {', '.join(pending) or 'nothing'}",
    )
    rows = [
        row(one.revision, one.table, f"{one.rows:,}", one.lock, one.blocks or "nothing", f"{max(one.seconds, 0.1):g} s")
        for one in locks
    ]
    if rows and not render.is_json():
        render.print_table(("revision", "table", "rows", "lock", "blocks", "for about"), rows)


def check(settings: Settings) -> None:
    from ticker import migrations

    require_answer()
    if not (problems := migrations.problems(settings.database_url, settings.schema)):
        with database() as db:
            here = installation.read(sql.on(db, settings.schema))
            problems = [
                *filter(None, [installation.foreign(here, settings.environment)]),
                *owner_checks.problems(db, settings.schema),
                *owner_checks.outlived(db, settings.schema, partitioned=True),
            ]
            render.warn([*owner_checks.external(db, settings.schema)])
    sentences = problems or [f"schema {settings.schema} fits"]
    render.answer({"fits": not problems, "problems": problems}, *sentences)
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
    with connected() as connection:
        adopted = installation.adopt(connection, settings.schema, settings.environment, resume=resume, force=force)
    render.say(
        f"installation {adopted.former or 'unknown'} is now {adopted.id}: {counted(adopted.lost, 'run')} lost,"
        f" {counted(adopted.dropped, 'waiting occurrence')} dropped"
    )
    if resume:
        take_over_leases(settings, adopted)
    else:
        render.say("all tasks are paused; to resume them: ticker resume --all")


@db.command("sql", short_help="Print an SQL statement as it is sent, or list them.")
@options.text("--statement", "NAME", "Print this statement, with the schema and its rules filled in.")
def print_sql(statement: str | None) -> None:
    """List the names of the SQL statements, or print one as tickers, workers and operations send it.

    Parameters are written as psycopg takes them, such as %(now)s. No server is asked.
    """
    statements = sql.statements(configured().schema, LISTS)
    if statement is None:
        click.echo("\n".join(sorted(statements)))
    elif statement in statements:
        click.echo(statements[statement])
    else:
        near = did_you_mean(statement, statements)
        raise BadInput("statement", statement, f"is not a statement{near}; ticker db sql lists the names")


def take_over_leases(settings: Settings, adopted: installation.Adopted) -> None:
    """Takes over the leases of the queues, so that a ticker can start at once. If this fails, the leases expire later."""
    from ticker.queue.rq import RedisQueue

    try:
        with closing(RedisQueue.from_settings(settings)) as queue, store(settings) as opened:
            queue.lease(adopted.id, opened.queues(), formerly=adopted.former)
    except TickerError as error:
        render.say(f"no ticker can start until the leases of the queues expire, within 5 minutes: {error}")


@click.command()
@click.option("--dry-run", is_flag=True, help="Count what would be deleted, and delete nothing.")
@options.as_json
def prune(dry_run: bool) -> None:
    """Delete old records of runs, drops and events.

    TICKER_KEEP_SUCCESSES, TICKER_KEEP_FAILURES and the `keep` of each task set how long records are kept. Tickers may
    keep running, and the command can safely be interrupted at any time. `ticker run` also prunes.
    """
    from ticker.daemon.prune import Pruned, lap

    settings = configured()
    require_answer()
    total = Pruned()
    with store(settings) as opened, render.progress("looking for old records") as show:
        for pruned in lap(opened, settings, dry=dry_run):
            total += pruned
            show(f"{total}")
            Event().wait(
                pruned.seconds
            )  # a pause after each batch for as long as it took, so that ticks are not delayed
    counts = {name: count for name, count in formatting.plain_data(total).items() if name != "seconds"}
    took = {"took_ms": round(1000 * total.seconds)}
    render.answer({"dry_run": dry_run, **counts, **took}, f"{'would prune' if dry_run else 'pruned'} {total}")
