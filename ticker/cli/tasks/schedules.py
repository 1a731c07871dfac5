"""`ticker next`: explains a schedule before it is used, or that of a task, and shows its next times."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import click

from ticker.cli import options, render
from ticker.cli.connection import database, now
from ticker.cli.options import as_json, owner_hint, ref
from ticker.errors import BadInput, ConfigurationError, UnknownTask
from ticker.read import formatting
from ticker.tasks.preview import MOST_TIMES, Preview

ID_AT_MOST = 8  # digits; longer numbers are seconds since 1970


@click.command("next")
@click.argument("expression", metavar="EXPRESSION|TASK")
@click.option(
    "-n",
    "count",
    type=options.Integer(1, MOST_TIMES),
    default=10,
    show_default=True,
    help="The number of times to show.",
)
@click.option("--zone", metavar="ZONE", help="Time zone of EXPRESSION, such as Europe/Berlin. Defaults to UTC.")
@click.option("--during", metavar="HOURS", help="The hours of an interval, such as '9-17 mon-fri'.")
@options.owner
@as_json
def next_(expression: str, count: int, zone: str | None, during: str | None, owner: str | None, as_json: bool) -> None:
    """Explain EXPRESSION or TASK, and show its next times.

    An EXPRESSION is an interval (1m), cron (0 9 * * 1-5), a systemd calendar event (Mon..Fri 09:00), or a single time.
    A number of at most 8 digits is a task's id. Any other valid schedule is an EXPRESSION, unless --owner is given.
    A schedule is checked without a server. If it is invalid and DATABASE_URL is not set, the exit code is 2.
    """
    show(read(expression, count, {"zone": zone, "during": during}, owner), as_json)


def read(expression: str, count: int, said: Mapping[str, str | None], owner: str | None) -> Preview:
    from ticker.tasks import preview

    is_id = expression.isascii() and expression.isdigit() and len(expression) <= ID_AT_MOST
    if is_id or owner is not None:
        return of_task(expression, count, said, owner)
    try:
        return preview.validate(expression, count=count, zone=said["zone"], during=said["during"])
    except BadInput as error:
        if any(said.values()) or any(sign in expression for sign in " *:/@"):
            raise
        try:
            return of_task(expression, count, said, owner)
        except ConfigurationError:
            raise error from None
        except UnknownTask as unknown:
            raise UnknownTask(f"{unknown}, and as a schedule: {error.problem}") from None


def of_task(task: str, count: int, said: Mapping[str, str | None], owner: str | None) -> Preview:
    """Returns the next times of a task, beginning with the time at which it is due, or the reason why it has none."""
    from ticker.read import forecast, tasks

    for name, value in said.items():
        if value is not None:
            raise BadInput(name, value, "cannot be combined with a task, which has its own schedule")
    named = ref(task, owner)
    assert named is not None
    with owner_hint(named, owner), database() as db:
        one, instant, tick = tasks.get(db, named, owner=owner), now(db), tasks.tick_ms(db)
    if one.next_run is None:
        raise BadInput("task", task, "has ended: it has no next time")
    return forecast.next_times(one, instant, count, tick)


def show(preview: Preview, as_json: bool) -> None:
    if as_json:
        render.print_json(data(preview))
        return
    table = render.columns("", "")
    for name, value in (
        ("kind", preview.kind),
        ("written", preview.normalized),
        ("in words", preview.words),
        ("zone", preview.zone),
    ):
        render.add(table, name, value)
    render.print_table(table)
    if preview.times:
        head = ["UTC"] if preview.zone == "UTC" else [preview.zone, "UTC"]
        table = render.columns("next", *head)
        for number, instant in enumerate(preview.times, 1):
            render.add(table, number, *moments(instant, preview.zone))
        render.print_table(table)
    render.warn(preview.warnings)


def moments(instant: datetime, zone: str) -> list[str]:
    utc = formatting.moment(instant)
    return [utc] if zone == "UTC" else [f"{instant.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M:%S %Z}", utc]


def data(preview: Preview) -> dict[str, Any]:
    return {
        "kind": str(preview.kind), "normalized": preview.normalized, "zone": preview.zone, "words": preview.words,
        "times": [f"{instant.astimezone(ZoneInfo('UTC')):%Y-%m-%dT%H:%M:%SZ}" for instant in preview.times],
        "warnings": list(preview.warnings),
    }  # fmt: skip
