"""`ticker why`: explains why a task ran or did not run, and what happens next."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ticker.cli import options, render
from ticker.cli.connection import database
from ticker.cli.options import as_json, owner_hint, ref
from ticker.errors import UnknownTask
from ticker.read import formatting

if TYPE_CHECKING:
    from ticker.read.tasks import RunRecord
    from ticker.read.why import Why


@click.command()
@click.argument("task")
@options.owner
@click.option(
    "--at",
    metavar="TIME",
    help="Show the occurrences around this time: 09:00 (UTC), 2h (ago), or 2026-07-01T12:00:00Z.",
)
@options.limit(20)
@as_json
def why(task: str, owner: str | None, at: str | None, limit: int, as_json: bool) -> None:
    """Explain why TASK ran or did not run, and what happens next.

    Lists its last occurrences, newest last, each with the numbers that decided it. A deleted task is found by its id.
    """
    from ticker.read import overview
    from ticker.read import why as read_why

    named = ref(task, owner)
    assert named is not None
    with owner_hint(named, owner), database() as db:
        try:
            answer = read_why.why(db, named, owner=owner, at=at, limit=limit)
        except UnknownTask as error:
            if owner is None:
                raise
            raise UnknownTask(f"{error} now; for its history: ticker runs --journal --owner {owner}") from None
        ends = overview.last_ends(db, [answer.task] if as_json and answer.task else [])
    if as_json:
        render.print_json(why_data(answer, ends))
    else:
        print_why(answer)


def why_data(answer: "Why", ends: Mapping[int, "RunRecord"]) -> dict[str, Any]:
    return {
        **formatting.plain_data(answer),
        "task": None if answer.task is None else formatting.task_data(answer.task, ends),
        "lines": [formatting.line_data(line) for line in answer.lines],
    }


def print_why(answer: "Why") -> None:
    if answer.lines:
        render.print_lines(answer.lines, whose=False)
    else:
        render.say("nothing was recorded for this task")
    for sentence in answer.then:
        render.say(sentence)
    for sentence in answer.next:
        render.say(f"now: {sentence}" if answer.at else f"next: {sentence}")
