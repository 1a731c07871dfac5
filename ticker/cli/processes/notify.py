"""`ticker notify`: lists undelivered notices, and tests the channels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ticker.cli import options, render
from ticker.cli.connection import configured, database
from ticker.cli.options import as_json
from ticker.read import formatting

if TYPE_CHECKING:
    from ticker.settings import Settings


@click.command()
@click.option("--test", is_flag=True, help="Send one test notice through each channel, and print the answers.")
@options.limit(100)
@as_json
def notify(test: bool, limit: int, as_json: bool) -> None:
    """List undelivered notices, or send a test notice.

    Lists the oldest first, each with the reason. `ticker run` sends notices about tasks that fail, recover, are paused
    by the ticker, or have had no success for too long. With --test, exits with 1 if a channel did not accept the
    notice.
    """
    if test:
        send_test(as_json)
    else:
        list_waiting(limit, as_json)


def send_test(as_json: bool) -> None:
    answers = tried(configured())
    if as_json:
        render.print_json({"channels": answers})
    else:
        for one in answers:
            render.say(f"{one['channel']}: {one['answer'] or 'not delivered: ' + one['error']}")
        if not answers:
            render.say("TICKER_NOTIFY names no channel, so no notice is sent")
    if failing := [one["channel"] for one in answers if not one["delivered"]]:
        raise click.ClickException(f"not delivered through {', '.join(failing)}")


def list_waiting(limit: int, as_json: bool) -> None:
    from ticker import notify

    with database() as db:
        rows = notify.waiting(db, configured().schema, limit)
    render.print_rows(rows, as_json, formatting.plain_data, print_notices, "no notice is waiting")


def tried(settings: "Settings") -> list[dict[str, Any]]:
    """Returns each channel's answer, or its error."""
    from ticker import notify

    answers = []
    for channel in notify.channels(settings):
        delivered, words = notify.try_out(channel, settings)
        answers.append(
            {"channel": channel.name, "delivered": delivered, "answer": words if delivered else None,
             "error": None if delivered else words}
        )  # fmt: skip
    return answers


def print_notices(rows: Sequence[dict[str, Any]]) -> None:
    table = render.columns(
        "event", "what", "task", "name", "owner", "when (UTC)", "channel", "tries", "next try (UTC)", "why"
    )
    for row in rows:
        owner = f"{row['owner_type']}:{row['owner_id']}" if row["owner_type"] else ""
        render.add(table, row["event_id"], row["what"], row["task_id"], row["task_name"], owner, formatting.moment(row["at"]),
                   row["channel"], row["tries"], formatting.moment(row["due_at"]), row["error"])  # fmt: skip
    render.print_table(table)
