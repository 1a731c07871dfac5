"""`ticker notify --test | notices`: whether a channel works, and what has not arrived yet."""

from typing import TYPE_CHECKING, Any

import click

from ticker.cli import options, render
from ticker.cli.connection import configured, database
from ticker.cli.options import as_json
from ticker.read import formatting

if TYPE_CHECKING:
    from ticker.settings import Settings


@click.command()
@click.option("--test", is_flag=True, help="Send one test notice through each channel.")
@as_json
def notify(test: bool, as_json: bool) -> None:
    """Send a test notice through each channel of TICKER_NOTIFY, and print what it answered.

    Exit 1 if one of them did not take it. The ticker itself sends notices of tasks that fail, work again, were paused by
    it, or had no success for too long.
    """
    if not test:
        raise click.UsageError("give --test: notices of tasks are sent by ticker run")
    answers = tried(configured())
    if as_json:
        render.print_json({"channels": answers})
    else:
        for one in answers:
            render.say(f"{one['channel']}: {one['answer'] or 'not delivered: ' + one['error']}")
        if not answers:
            render.say("TICKER_NOTIFY names no channel: no notice is sent")
    if failing := [one["channel"] for one in answers if not one["delivered"]]:
        raise click.ClickException(f"not delivered through {', '.join(failing)}")


@click.command()
@options.limit(100)
@as_json
def notices(limit: int, as_json: bool) -> None:
    """List the notices that have not arrived yet, the oldest first, and why."""
    from ticker import notify

    with database() as db:
        rows = notify.waiting(db, configured().schema, limit)
    if as_json:
        render.print_json(formatting.plain_data(rows))
    elif rows:
        print_notices(rows)
    else:
        render.say("no notice waits")


def tried(found: "Settings") -> list[dict[str, Any]]:
    """Each channel's answer, or what went wrong."""
    from ticker import notify

    answers = []
    for channel in notify.channels(found):
        delivered, words = notify.try_out(channel, found)
        answers.append(
            {"channel": channel.name, "delivered": delivered, "answer": words if delivered else None,
             "error": None if delivered else words}
        )  # fmt: skip
    return answers


def print_notices(rows: list[dict[str, Any]]) -> None:
    table = render.columns(
        "event", "what", "task", "name", "owner", "when (UTC)", "channel", "tries", "next try (UTC)", "why"
    )
    for row in rows:
        owner = f"{row['owner_type']}:{row['owner_id']}" if row["owner_type"] else ""
        render.add(table, row["event_id"], row["what"], row["task_id"], row["task_name"], owner, formatting.moment(row["at"]),
                   row["channel"], row["tries"], formatting.moment(row["due_at"]), row["error"])  # fmt: skip
    render.print_table(table)
