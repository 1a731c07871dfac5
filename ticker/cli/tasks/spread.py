"""`ticker spread`: spreads out tasks that are due at the same time."""

from contextlib import closing

import click

from ticker.cli import options, render
from ticker.cli.connection import configured, database
from ticker.cli.options import as_json
from ticker.read import formatting


@click.command()
@options.owner_type
@options.function
@click.option("--plan", "only_plan", is_flag=True, help="Show what would change, and change nothing.")
@as_json
def spread(owner_type: str | None, function: str | None, only_plan: bool, as_json: bool) -> None:
    """Give each interval task its own phase within its interval.

    Each task keeps its phase from then on, even after an outage. Spreads all interval tasks, or only those that
    --owner-type and --function select. The command may be interrupted and repeated while tickers run.
    """
    from ticker.db.store import PostgresStore
    from ticker.registration.spread import Chosen, plan
    from ticker.registration.spread import spread as assign_phases

    settings = configured()
    with database():
        pass  # raises ConfigurationError if the server does not answer
    chosen = Chosen(owner_type, function)
    with closing(PostgresStore(settings.require_database(), settings.schema)) as store:
        planned = plan(store, chosen, settings.tick_ms)
        done = 0 if only_plan else sum(assign_phases(store, chosen))
    if as_json:
        render.print_json({"plan": only_plan, **formatting.plain_data(planned), "changed": done})
        return
    render.say(
        f"{planned.tasks} interval tasks, {planned.placed} with a phase; maximum due within one tick: "
        f"{planned.most_now} now, {planned.most_then} once all have a phase"
    )
    if not only_plan:
        render.say(f"{done} tasks got a phase")
