"""`ticker runs`: what ran, what was dropped, and by which arithmetic."""

import click

from ticker.cli import options, render
from ticker.cli.connection import database
from ticker.cli.options import as_json, found, ref
from ticker.task import Outcome


@click.command()
@click.argument("task", required=False)
@options.owner
@click.option("--outcome", type=click.Choice([str(outcome) for outcome in Outcome]), help="Only those that ended so.")
@options.limit(20)
@as_json
def runs(task: str | None, owner: str | None, outcome: str | None, limit: int, as_json: bool) -> None:
    """List runs and drops, the newest first.

    Of TASK, or of all tasks. The records outlive their task: those of a deleted one are found by its id.
    """
    from ticker import status

    named = ref(task, owner)
    if named is None and owner is not None:
        raise click.UsageError("--owner says whose TASK is meant; give its name, too")
    with found(named, owner), database() as db:
        task_id = status.get(db, named, owner=owner).id if isinstance(named, str) else named
        records = status.list_runs(db, task=task_id, outcome=Outcome(outcome) if outcome else None, limit=limit)
        if task_id is not None and not records:
            status.get(db, task_id)  # neither a task nor a record of one: UnknownTask
    if as_json:
        render.print_json([render.run_data(record) for record in records])
    elif records:
        render.print_runs(records)
    else:
        render.say("no runs")
