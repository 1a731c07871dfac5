"""`ticker owners`: lists owners, and counts their failing, late and paused tasks. Finds tasks whose owners are gone."""

from collections.abc import Sequence

import click

from ticker.cli import fit, options, render
from ticker.cli.connection import configured, database, user
from ticker.cli.fit import row
from ticker.read import formatting
from ticker.read import owners as read_owners
from ticker.read.explain import counted
from ticker.tasks import owner_checks


@click.command()
@click.option("--type", "type_", metavar="TYPE", callback=options.printable, help="Only owners of this type.")
@click.option("--failing", is_flag=True, help="Only owners with a failing task.")
@click.option(
    "--late",
    is_flag=True,
    help="Only owners with a late task: due for longer than a tick and its tolerance, and not started.",
)
@click.option("--paused", is_flag=True, help="Only owners with a paused, disabled or inactive task.")
@click.option("--orphans", is_flag=True, help="Only owners whose row no longer exists, with their tasks.")
@click.option("--remove", is_flag=True, help="With --orphans: delete the tasks of the owners that are listed.")
@click.option(
    "--rename",
    nargs=2,
    metavar="OLD NEW",
    help="Move the tasks, default tasks, pauses and triggers of one type to another, after its table was renamed.",
)
@options.limit(100)
@options.as_json
def owners(
    type_: str | None,
    failing: bool,
    late: bool,
    paused: bool,
    orphans: bool,
    remove: bool,
    rename: tuple[str, str] | None,
    limit: int,
) -> None:
    """List owners with their task counts.

    Owners with failing or late tasks come first. --failing, --late and --paused select owners that match any of them.

    --orphans finds tasks that were left by deletions before their owner's table had triggers, and by dropped tables. It
    looks only at tables that have triggers.

    --rename is for a table that was renamed or moved to another schema. You can repeat it if it was interrupted.
    """
    if rename:
        if type_ or failing or late or paused or orphans or remove:
            raise click.UsageError("--rename can be combined with --json alone; leave out the other options")
        rename_owners(*rename)
        return
    if remove and not orphans:
        raise click.UsageError(
            "--remove needs --orphans; to delete the tasks of one owner: ticker remove --owner TYPE:ID"
        )
    if orphans:
        if failing or late or paused:
            raise click.UsageError("--orphans cannot be combined with --failing, --late and --paused; leave out either")
        print_orphans(type_, remove, limit)
        return
    with database() as db:
        statuses = read_owners.list_owners(
            db, owner_type=type_, failing=failing, late=late, paused=paused, limit=min(limit + 1, options.MOST_ROWS)
        )
    fewer = "owners; see --limit, --type, --failing, --late and --paused"
    render.print_rows(statuses, show, "no owners", limit=limit, fewer=fewer)


def rename_owners(old: str, new: str) -> None:
    from ticker.tasks import owner_rename

    moved = sum(owner_rename.rename(database, configured().schema, old, new, user()))
    belong = "belongs" if moved == 1 else "belong"
    render.answer({"moved": moved}, f"{counted(moved, 'task')} of {old} now {belong} to owners of the type {new}")


def print_orphans(type_: str | None, remove: bool, limit: int) -> None:
    """Lists owners that are gone, and deletes their tasks with `remove`."""
    schema = configured().schema
    with database() as db:
        unread = [*owner_checks.unread(db, schema, type_)]
        found = owner_checks.orphans(db, schema, type_, min(limit + 1, options.MOST_ROWS))
        removed = owner_checks.remove(db, schema, found[:limit], user()) if remove else 0
    none = "no owner is gone whose table has triggers" if unread else "no owner is gone"
    render.print_rows(found, show_orphans, none, limit=limit, fewer="owners; see --limit and --type")
    render.warn([f"not looked at: {sentence}" for sentence in unread])
    if remove and not render.is_json():
        render.say(f"removed {counted(removed, 'task')}")


def show_orphans(found: Sequence[owner_checks.Orphans]) -> None:
    render.print_table(("owner", "tasks"), [row(one.owner, one.tasks) for one in found])


def show(statuses: Sequence[read_owners.OwnerStatus]) -> None:
    names = (
        fit.SUBJECT,
        "owner",
        "tasks",
        "failing",
        "late",
        "paused",
        "inactive",
        "last success (UTC)",
        "next run (UTC)",
    )
    rows = []
    for one in statuses:
        counts = one.tasks, one.failing or "", one.late or "", one.paused or "", one.inactive or ""
        times = formatting.moment(one.last_success), formatting.moment(one.next_run)
        colour = "red" if one.failing else "yellow" if one.late or one.paused else ""
        rows.append(row(one.subject or "", one.owner, *counts, *times, style=colour))
    render.print_table(names, rows)
