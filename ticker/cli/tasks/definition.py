"""The options that say what a task is, for `ticker add` and `ticker edit`."""

from collections.abc import Callable
from typing import Any

import click

from ticker.cli import options

OPTIONS = (
    click.option("--metadata", metavar="JSON", help="An object that is kept and shown."),
    click.option("--description", metavar="TEXT"),
    click.option("--subject", metavar="TEXT"),
    click.option(
        "--priority",
        type=options.Whole(),
        metavar="N",
        help="From -1000 to 1000: which of an owner's tasks goes first in a full queue.",
    ),
    click.option("--group", metavar="NAME", help="Kept and shown."),
    click.option("--submitter", metavar="NAME", help="Kept and shown."),
    click.option("--keep", type=click.Choice(["all", "problems", "none"]), help="Of which runs the record is kept."),
    click.option(
        "--dead-man", type=options.Whole(), metavar="N", help="Tell after N intervals without a success; 0: never."
    ),
    click.option("--probe", metavar="DURATION", help="How long --pause-after pauses; an hour by default."),
    click.option("--pause-after", type=options.Whole(), metavar="N", help="Pause after N failures in a row; 0: never."),
    click.option("--stretch", metavar="DURATION", help="After failures the interval doubles, up to this; 0: it stays."),
    click.option("--backoff", metavar="DURATIONS", help="Between attempts: 10s, or 10s..5m, which doubles."),
    click.option("--retries", type=options.Whole(), metavar="N", help="Further attempts after a failure; 0: none."),
    click.option("--overlap", type=click.Choice(["queue", "skip"]), help="skip: no job while one waits or runs."),
    click.option(
        "--box",
        metavar="DURATION",
        help="How long a run may last; by default half the interval, or half the shortest gap and at most 5m.",
    ),
    click.option("--tolerance", metavar="DURATION", help="How much earlier than the interval a run may start."),
    click.option("--kwargs", metavar="JSON", help="The function's arguments, as an object."),
    click.option("--queue", metavar="NAME", help="The RQ queue; polling by default."),
    click.option("--remove/--no-remove", default=None, help="With --at: whether it is deleted after its success."),
    click.option(
        "--spread/--no-spread",
        default=None,
        help="A place of its own in the interval (or see --within), so that many tasks are not due at once.",
    ),
    click.option(
        "--within",
        metavar="DURATION",
        help="With --spread, and --cron or --calendar: how long after each time it may run; 0: none.",
    ),
    click.option("--catch-up", type=click.Choice(["one", "none"]), help="One late run after an outage, or none."),
    click.option(
        "--max-runs", type=options.Whole(), metavar="N", help="How often it starts in all; 0: without a limit."
    ),
    click.option("--ends", metavar="TIME", help="No time behind it; an empty text takes the end away."),
    click.option("--starts", metavar="TIME", help="No time before it; an empty text takes the start away."),
    click.option("--zone", metavar="ZONE", help="Where the times of cron and calendar count; UTC by default."),
    click.option("--at", metavar="TIME", help="Once, then: 2027-01-01T09:00:00+01:00, or seconds since 1970."),
    click.option("--calendar", metavar="EVENT", help="systemd's calendar events: Mon..Fri 09:00, daily, *:0/15."),
    click.option("--cron", metavar="FIELDS", help="5 fields, 6 (seconds first) or 7 (year last)."),
    click.option("--every", metavar="DURATION", help="The interval, from 1s to 366d."),
)
"""The last one is shown first: click shows the options of a command from the outermost decorator to the innermost."""


def definition(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options. One that is not given stays as it is, or is the default of a new task."""
    for option in OPTIONS:
        command = option(command)
    return command
