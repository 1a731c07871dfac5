"""`ticker owners`: whose tasks fail, are late, or rest."""

from typing import TYPE_CHECKING, Any

import click

from ticker.cli import options, render
from ticker.cli.connection import database
from ticker.cli.options import as_json
from ticker.read import formatting

if TYPE_CHECKING:
    from ticker.read.owners import OwnerStatus


@click.command()
@click.option("--type", "type_", metavar="TYPE", callback=options.printable, help="Owners of this type.")
@click.option("--failing", is_flag=True, help="Only those with a task that are failing.")
@click.option("--late", is_flag=True, help="Only those with a task that has been due for two ticks.")
@click.option("--paused", is_flag=True, help="Only those with a task that is paused, disabled or inactive.")
@options.limit(100)
@as_json
def owners(type_: str | None, failing: bool, late: bool, paused: bool, limit: int, as_json: bool) -> None:
    """List owners with the counts of their tasks.

    Those in trouble (failing, late) come first. Of --failing, --late and --paused, any one is enough.
    """
    from ticker.read import owners as read_owners

    with database() as db:
        found = read_owners.list_owners(
            db, owner_type=type_, failing=failing, late=late, paused=paused, limit=min(limit + 1, options.MOST_ROWS)
        )
    if as_json:
        render.print_json([data(owner) for owner in found[:limit]])
    elif found:
        show(found[:limit])
    else:
        render.say("no owners")
    if len(found) > limit:
        render.warn([f"there are more than {limit} owners; see --limit, --type, --failing, --late and --paused"])


def show(found: "list[OwnerStatus]") -> None:
    table = render.columns(
        "owner", "tasks", "failing", "late", "paused", "inactive", "last success (UTC)", "next run (UTC)"
    )
    for one in found:
        render.add(
            table, one.owner, one.tasks, one.failing or "", one.late or "", one.paused or "", one.inactive or "",
            formatting.moment(one.last_success), formatting.moment(one.next_run), style=colour(one),
        )  # fmt: skip
    render.print_table(table)


def colour(one: "OwnerStatus") -> str:
    return "red" if one.failing else "yellow" if one.late or one.paused else ""


def data(one: "OwnerStatus") -> dict[str, Any]:
    return {"owner": one.owner, **formatting.plain_data(one)}
