"""`ticker owners`: lists owners, and counts their failing, late and paused tasks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ticker.cli import options, render
from ticker.cli.connection import database
from ticker.cli.options import as_json
from ticker.read import formatting

if TYPE_CHECKING:
    from ticker.read.owners import OwnerStatus


@click.command()
@click.option("--type", "type_", metavar="TYPE", callback=options.printable, help="Only owners of this type.")
@click.option("--failing", is_flag=True, help="Only owners with a failing task.")
@click.option(
    "--late",
    is_flag=True,
    help="Only owners with a late task: due for longer than a tick and its tolerance, and not started.",
)
@click.option("--paused", is_flag=True, help="Only owners with a paused, disabled or inactive task.")
@options.limit(100)
@as_json
def owners(type_: str | None, failing: bool, late: bool, paused: bool, limit: int, as_json: bool) -> None:
    """List owners with their task counts.

    Owners with failing or late tasks come first. --failing, --late and --paused select owners that match any of them.
    """
    from ticker.read import owners as read_owners

    with database() as db:
        statuses = read_owners.list_owners(
            db, owner_type=type_, failing=failing, late=late, paused=paused, limit=min(limit + 1, options.MOST_ROWS)
        )
    render.print_rows(statuses[:limit], as_json, data, show, "no owners")
    if len(statuses) > limit:
        render.warn([f"there are more than {limit} owners; see --limit, --type, --failing, --late and --paused"])


def show(statuses: "Sequence[OwnerStatus]") -> None:
    table = render.columns(
        "owner", "tasks", "failing", "late", "paused", "inactive", "last success (UTC)", "next run (UTC)"
    )
    for one in statuses:
        render.add(
            table, one.owner, one.tasks, one.failing or "", one.late or "", one.paused or "", one.inactive or "",
            formatting.moment(one.last_success), formatting.moment(one.next_run), style=colour(one),
        )  # fmt: skip
    render.print_table(table)


def colour(one: "OwnerStatus") -> str:
    return "red" if one.failing else "yellow" if one.late or one.paused else ""


def data(one: "OwnerStatus") -> dict[str, Any]:
    return {"owner": one.owner, **formatting.plain_data(one)}
