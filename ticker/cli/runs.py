"""`ticker runs`: lists runs and drops, or shows one of them in full. `journal` has its other forms."""

import json
from typing import TYPE_CHECKING, Any

import click

from ticker.cli import options, render
from ticker.cli.connection import database
from ticker.cli.options import as_json, owner_hint, ref
from ticker.errors import escaped
from ticker.model import GOOD, LARGEST_ID, Outcome, Reason
from ticker.read import formatting
from ticker.schedules.duration import words

if TYPE_CHECKING:
    from ticker.read.tasks import FullRun, RunRecord


FEW, MANY = 20, 100  # rows


@click.command()
@click.argument("task", required=False)
@options.owner
@click.option(
    "--outcome", type=click.Choice([str(outcome) for outcome in Outcome]), help="Only runs with this outcome."
)
@options.owner_type
@click.option("--reason", type=click.Choice([*map(str, Reason)]), help="Only drops with this reason.")
@options.since
@options.until
@click.option("--id", "run_id", type=options.Integer(1, LARGEST_ID), metavar="RUN", help="Show this run in full.")
@click.option("--journal", "as_journal", is_flag=True, help="List what ended and happened, newest last, also events.")
@click.option("--follow", is_flag=True, help="As --journal, and keep printing new entries until interrupted.")
@click.option(
    "--drops-by",
    type=click.Choice(["reason", "owner", "task", "function"]),
    help="Count the drops by this property, largest groups first, each with its newest drop.",
)
@click.option(
    "--limit", type=options.Integer(1, options.MOST_ROWS), help="Maximum number of rows: 20, and 100 of the journal."
)
@as_json
def runs(
    run_id: int | None, as_journal: bool, follow: bool, drops_by: str | None, limit: int | None, as_json: bool,
    **filters: Any,
) -> None:  # fmt: skip
    """List runs, drops and events, or show one run in full.

    Lists runs and drops of TASK, or of all tasks, newest first. Records outlive their task: those of a deleted task are
    found by its id. --owner without TASK, --owner-type, --reason, --since and --until list only runs that have ended.
    --id also shows the run's output, its traceback, its other attempts and its pieces of work.

    --journal lists ended runs, drops and events. Events are changes to a task, such as a pause or a first failure;
    --outcome and --reason exclude them. With --json, each entry is one document on its own line.
    """
    from ticker.cli import journal

    if run_id is not None:
        if any(filters.values()) or as_journal or follow or drops_by:
            raise click.UsageError("--id names one run; leave out TASK and all filters")
        show(run_id, as_json)
    elif drops_by:
        if as_journal or follow or any(value for name, value in filters.items() if name not in ("since", "until")):
            raise click.UsageError(
                "--drops-by counts all drops; leave out all options but --since, --until and --limit"
            )
        journal.count_drops(drops_by, filters["since"], filters["until"], limit or FEW, as_json)
    elif as_journal or follow:
        journal.print_journal(**filters, limit=limit or MANY, follow=follow, as_json=as_json)
    else:
        list_all(**filters, limit=limit or FEW, as_json=as_json)


def list_all(
    *, task: str | None, owner: str | None, outcome: str | None, limit: int, as_json: bool, **filters: Any
) -> None:
    from ticker.read import journal, tasks

    named = ref(task, owner if task is not None else None)
    with owner_hint(named, owner), database() as db:
        task_id = tasks.get(db, named, owner=owner).id if isinstance(named, str) else named
        records = journal.list_runs(
            db,
            task=task_id,
            owner=owner if task_id is None else None,
            outcome=Outcome(outcome) if outcome else None,
            limit=limit,
            **filters,
        )
        if task_id is not None and not records:
            tasks.get(db, task_id)  # raises UnknownTask if there is neither a task nor a record
    render.print_rows(records, as_json, formatting.run_data, render.print_runs, "no runs")


def show(run_id: int, as_json: bool) -> None:
    from ticker.read import tasks

    with database() as db:
        full = tasks.get_run(db, run_id)
    if not as_json:
        print_full(full)
        return
    data = formatting.run_data(full.run) | {"output": full.output, "error_output": full.error_output}
    others = {"attempts": full.attempts, "made": full.pieces}
    render.print_json(data | {name: [formatting.run_data(run) for run in runs] for name, runs in others.items()})


def print_full(full: "FullRun") -> None:
    """Prints one run in full: its fields, its other attempts and its pieces, then its output line by line."""
    run = full.run
    table = render.columns("", "")
    for name, value in (run_details(run) | {"pieces": pieces(full)}).items():
        if value not in ("", None):
            render.add(table, name, value, style=render.colour(run.outcome) if name == "outcome" else "")
    render.print_table(table)
    for title, others in (("attempts", full.attempts if len(full.attempts) > 1 else ()), ("pieces", full.pieces)):
        if others:
            click.echo(f"\n{title}:")
            render.print_runs(others, items=title == "pieces")
    for title, text in (("output", full.output), ("error output", full.error_output), ("traceback", run.traceback)):
        if text:
            click.echo(f"\n{title}:")
            click.echo("\n".join(escaped(line.expandtabs()) for line in text.splitlines()))


def pieces(full: "FullRun") -> str:
    """Returns how many of the listed pieces are done, failed or still to come, judged by the last attempt of each."""
    from ticker.read import explain

    if full.run.pieces is None:
        return ""
    last = [piece for piece in full.pieces if not piece.retried]
    done, opened = sum(piece.outcome in GOOD for piece in last), sum(piece.outcome is None for piece in last)
    return explain.pieces(explain.Pieces(done, len(last) - done - opened, opened))


def run_details(run: "RunRecord") -> dict[str, Any]:
    lasted = formatting.took(run)
    return {
        "id": run.id, "task": f"{run.task_id} {run.task_name}", "owner": formatting.owner_of(run), "function": run.function,
        "kind": run.kind, "attempt": run.attempt if run.attempt > 1 else "",
        "of run": run.parent_id, "piece": "" if run.item is None else json.dumps(run.item, ensure_ascii=False),
        "occurrence": formatting.at(run.occurrence), "due": formatting.at(run.due_at), "pushed": formatting.at(run.pushed_at), "started": formatting.at(run.started_at),
        "declared lost" if run.outcome == Outcome.LOST else "ended": formatting.at(run.ended_at), "took": "" if lasted is None else words(lasted), "state": run.state if run.outcome is None else "",
        "outcome": run.outcome, "why": formatting.why(run), "attempted again": "yes" if run.retried else "", "pieces": "",
        "result": "" if run.result is None else json.dumps(run.result, ensure_ascii=False), "worker": run.worker,
        "host": run.host, "pid": run.pid, "job": run.job_id,
        "asked to stop": f"by {run.stop_requested_by} at {formatting.at(run.stop_requested_at)}" if run.stop_requested_at else "",
    }  # fmt: skip
