"""`ticker next | spread`: explains a schedule and shows its next times; spreads out tasks that are due together."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from zoneinfo import ZoneInfo

import click

from ticker.cli import options, render
from ticker.cli.connection import connected, on_task
from ticker.cli.fit import row
from ticker.errors import BadInput, ConfigurationError, UnknownTask, quoted
from ticker.read import entries, forecast, formatting, tasks
from ticker.tasks import preview, spreading
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
@options.as_json
def next_(expression: str, count: int, zone: str | None, during: str | None, owner: str | None) -> None:
    """Explain EXPRESSION or TASK, and show its next times.

    An EXPRESSION is an interval (1m), cron (0 9 * * 1-5), a systemd calendar event (Mon..Fri 09:00), or a single time.
    A number of at most 8 digits is a task's id. Any other valid schedule is an EXPRESSION, unless --owner is given.
    A schedule is checked without a server. If it is invalid and DATABASE_URL is not set, the exit code is 2.
    """
    show(read(expression, count, {"zone": zone, "during": during}, owner))


def read(expression: str, count: int, said: Mapping[str, str | None], owner: str | None) -> Preview:
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
            raise UnknownTask(f"{unknown}; and {quoted(expression)} {error.problem}") from None


def of_task(task: str, count: int, said: Mapping[str, str | None], owner: str | None) -> Preview:
    """Returns the next times of a task, beginning with the time at which it is due, or the reason why it has none."""
    for name, value in said.items():
        if value is not None:
            raise BadInput(name, value, "cannot be combined with a task, which has its own schedule")
    with on_task(task, owner) as (db, named):
        one, instant, tick = tasks.get(db, named, owner=owner), entries.instant(db), tasks.tick_ms(db)
    if one.next_run is None:
        raise BadInput("task", task, "has ended: it has no next time")
    return forecast.next_times(one, instant, count, tick)


def show(preview: Preview) -> None:
    if render.is_json():
        render.print_json(data(preview))
        return
    words = {"kind": preview.kind, "written": preview.normalized, "in words": preview.words, "zone": preview.zone}
    render.print_fields(words)
    if preview.times:
        head = ["UTC"] if preview.zone == "UTC" else [preview.zone, "UTC"]
        rows = [row(number, *moments(instant, preview.zone)) for number, instant in enumerate(preview.times, 1)]
        render.print_table(("next", *head), rows)
    render.warn(preview.warnings)


def moments(instant: datetime, zone: str) -> list[str]:
    utc = formatting.moment(instant)
    return [utc] if zone == "UTC" else [f"{instant.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M:%S %Z}", utc]


def data(preview: Preview) -> dict[str, object]:
    return {
        "kind": str(preview.kind),
        "normalized": preview.normalized,
        "zone": preview.zone,
        "words": preview.words,
        "times": [f"{instant.astimezone(ZoneInfo('UTC')):%Y-%m-%dT%H:%M:%SZ}" for instant in preview.times],
        "warnings": list(preview.warnings),
    }


@click.command()
@options.owner_type
@options.function
@click.option("--plan", "only_plan", is_flag=True, help="Show what would change, and change nothing.")
@options.as_json
def spread(owner_type: str | None, function: str | None, only_plan: bool) -> None:
    """Give each interval task its own phase within its interval.

    Each task keeps its phase from then on, even after an outage. Spreads all interval tasks, or only those that
    --owner-type and --function select. The command may be interrupted and repeated while tickers run.
    """
    with connected() as db:
        plan = spreading.spread_plan(db, owner_type, function)
        done = 0 if only_plan else spreading.spread(db, owner_type, function)
    changed = [] if only_plan else [f"{done} tasks got a phase"]
    render.answer({"plan": only_plan, **asdict(plan), "changed": done}, formatting.spread_in_words(plan), *changed)
