"""`ticker notify`: lists undelivered notices, and tests the channels."""

from collections.abc import Sequence
from typing import Any

import click

from ticker.cli import options, render
from ticker.cli.connection import configured, database
from ticker.cli.fit import row
from ticker.read import formatting


@click.command()
@click.option("--test", is_flag=True, help="Send one test notice through each channel, and print the answers.")
@options.limit(100)
@options.as_json
def notify(test: bool, limit: int) -> None:
    """List undelivered notices, or send a test notice.

    Lists the oldest first, each with the reason. `ticker run` sends notices about tasks that fail, recover, are paused
    by the ticker, or have had no success for too long. With --test, exits with 1 if a channel did not accept the
    notice.
    """
    from ticker import notify

    if test:
        send_test()
        return
    with database() as db:
        rows = notify.waiting(db, configured().schema, limit)
    render.print_rows(rows, print_notices, "no notice is waiting")


def send_test() -> None:
    from ticker import notify

    settings = configured()
    answers: list[dict[str, Any]] = []
    sentences = []
    for channel in notify.channels(settings):
        delivered, words = notify.try_out(channel, settings)
        answer, error = (words, None) if delivered else (None, words)
        answers.append({"channel": channel.name, "delivered": delivered, "answer": answer, "error": error})
        sentences.append(f"{channel.name}: {'' if delivered else 'not delivered: '}{words}")
    none = "TICKER_NOTIFY names no channel, so no notice is sent"
    render.answer({"channels": answers}, *(sentences or [none]))
    if failing := [one["channel"] for one in answers if not one["delivered"]]:
        raise click.ClickException(f"not delivered through {', '.join(failing)}")


def print_notices(notices: Sequence[dict[str, Any]]) -> None:
    names = ("event", "what", "task", "name", "owner", "when (UTC)", "channel", "tries", "next try (UTC)", "why")
    rows = []
    for one in notices:
        owner = f"{one['owner_type']}:{one['owner_id']}" if one["owner_type"] else ""
        event = one["event_id"], one["what"], one["task_id"], one["task_name"], owner, formatting.moment(one["at"])
        tries = one["channel"], one["tries"], formatting.moment(one["due_at"]), one["error"]
        rows.append(row(*event, *tries))
    render.print_table(names, rows)
