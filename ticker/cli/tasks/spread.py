"""`ticker spread`: tasks that are due all at once get places of their own."""

from contextlib import closing

import click

from ticker.cli import options, render
from ticker.cli.connection import configured, database
from ticker.cli.options import as_json
from ticker.read import formatting


@click.command()
@options.owner_type
@options.function
@click.option("--plan", "only_plan", is_flag=True, help="Say what would change, and change nothing.")
@as_json
def spread(owner_type: str | None, function: str | None, only_plan: bool, as_json: bool) -> None:
    """Give interval tasks places of their own in their interval.

    Each keeps its place from then on, also behind an outage. All tasks, or those of an --owner-type or a --function.
    It may be interrupted and repeated; tickers go on meanwhile.
    """
    from ticker.db.store import PostgresStore
    from ticker.registration.spread import Chosen, plan
    from ticker.registration.spread import spread as place

    settings = configured()
    with database():
        pass  # a server that is absent is a matter of configuration
    chosen = Chosen(owner_type, function)
    with closing(PostgresStore(settings.require_database(), settings.schema)) as store:
        planned = plan(store, chosen, settings.tick_ms)
        done = 0 if only_plan else sum(place(store, chosen))
    if as_json:
        render.print_json({"plan": only_plan, **formatting.plain_data(planned), "changed": done})
        return
    render.say(
        f"{planned.tasks} interval tasks, {planned.placed} with a place; due within one tick at most: "
        f"{planned.most_now} now, {planned.most_then} once all have places"
    )
    if not only_plan:
        render.say(f"{done} tasks got their places")
