"""`ticker runs | why | stop`: lists runs and drops, shows one in full, explains why a task ran or did not, stops a run.

`journal` has the other forms of `ticker runs`.
"""

import json
from collections.abc import Sequence
from typing import Any

import click

from ticker.cli import journal, options, render
from ticker.cli.connection import awaited, configured, database, on_task, user
from ticker.cli.exits import NOT_SO
from ticker.errors import UnknownTask, escaped
from ticker.model import GOOD, LARGEST_ID, Outcome, Reason
from ticker.read import explain, formatting, overview, tasks
from ticker.read import journal as read_journal
from ticker.read import why as read_why
from ticker.read.forecast import START_ONE, is_of_now
from ticker.read.tasks import FullRun, RunRecord
from ticker.tasks import operations

FEW, MANY = 20, 100  # rows
PATIENCE = 5.0  # seconds for which `stop` waits for the end of the run


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
    type=click.Choice(read_journal.GROUPS),
    help="Count the drops by this property, largest groups first, each with its newest drop.",
)
@click.option(
    "--limit", type=options.Integer(1, options.MOST_ROWS), help="Maximum number of rows: 20, and 100 of the journal."
)
@options.as_json
def runs(
    run_id: int | None, as_journal: bool, follow: bool, drops_by: str | None, limit: int | None,
    **filters: Any,
) -> None:  # fmt: skip
    """List runs, drops and events, or show one run in full.

    Lists runs and drops of TASK, or of all tasks, newest first. Records outlive their task: those of a deleted task are
    found by its id. --owner without TASK, --owner-type, --reason, --since and --until list only runs that have ended.
    --id also shows the run's output, its traceback, its other attempts and its pieces of work.

    --journal lists ended runs, drops and events. Events are changes to a task, such as a pause or a first failure;
    --outcome and --reason exclude them. With --json, each entry is one document on its own line.
    """
    if run_id is not None:
        if any(filters.values()) or as_journal or follow or drops_by:
            raise click.UsageError("--id names one run; leave out TASK and all filters")
        show(run_id)
    elif drops_by:
        if as_journal or follow or any(value for name, value in filters.items() if name not in ("since", "until")):
            raise click.UsageError(
                "--drops-by counts all drops; leave out all options but --since, --until and --limit"
            )
        journal.count_drops(drops_by, filters["since"], filters["until"], limit or FEW)
    elif as_journal or follow:
        journal.print_journal(**filters, limit=limit or MANY, follow=follow)
    else:
        list_all(**filters, limit=limit or FEW)


def list_all(*, task: str | None, owner: str | None, outcome: str | None, limit: int, **filters: Any) -> None:
    with on_task(task, owner if task is not None else None) as (db, named):
        task_id = tasks.get(db, named, owner=owner).id if isinstance(named, str) else named
        records = read_journal.list_runs(
            db,
            task=task_id,
            owner=owner if task_id is None else None,
            outcome=Outcome(outcome) if outcome else None,
            limit=limit,
            **filters,
        )
        if task_id is not None and not records:
            tasks.get(db, task_id)  # raises UnknownTask if there is neither a task nor a record
    render.print_rows(records, render.print_runs, "no runs")


def show(run_id: int) -> None:
    with database() as db:
        full = tasks.get_run(db, run_id)
    if render.is_json():
        render.print_json(formatting.full_data(full))
    else:
        print_full(full)


def print_full(full: FullRun) -> None:
    """Prints one run in full: its fields, its other attempts and its pieces, then its output line by line."""
    run = full.run
    render.print_fields(run_details(run) | {"pieces": pieces(full)})
    for title, others in (("attempts", full.attempts if len(full.attempts) > 1 else ()), ("pieces", full.pieces)):
        if others:
            click.echo(f"\n{title}:")
            render.print_runs(others, items=title == "pieces")
    for title, text in (("output", full.output), ("error output", full.error_output), ("traceback", run.traceback)):
        if text:
            click.echo(f"\n{title}:")
            click.echo("\n".join(escaped(line.expandtabs()) for line in text.splitlines()))


def pieces(full: FullRun) -> str:
    """Returns how many of the listed pieces are done, failed or still to come, judged by the last attempt of each."""
    if full.run.pieces is None:
        return ""
    last = [piece for piece in full.pieces if not piece.retried]
    done, opened = sum(piece.outcome in GOOD for piece in last), sum(piece.outcome is None for piece in last)
    return explain.pieces(explain.Pieces(done, len(last) - done - opened, opened))


def run_details(run: RunRecord) -> dict[str, Any]:
    return {
        "id": run.id, "task": f"{run.task_id} {run.task_name}", "owner": run.owner, "function": run.function,
        "kind": run.kind, "attempt": run.attempt if run.attempt > 1 else "",
        "of run": run.parent_id, "piece": "" if run.item is None else json.dumps(run.item, ensure_ascii=False),
        "occurrence": formatting.at(run.occurrence), "due": formatting.at(run.due_at), "pushed": formatting.at(run.pushed_at), "started": formatting.at(run.started_at),
        "declared lost" if run.outcome == Outcome.LOST else "ended": formatting.at(run.ended_at), "took": "" if run.took_ms is None else explain.span(run.took_ms), "state": run.state if run.outcome is None else "",
        "outcome": run.outcome, "why": formatting.why(run), "attempted again": "yes" if run.retried else "", "pieces": "",
        "result": "" if run.result is None else json.dumps(run.result, ensure_ascii=False), "worker": run.worker,
        "host": run.host, "pid": run.pid, "job": run.job_id,
        "asked to stop": f"by {run.stop_requested_by} at {formatting.at(run.stop_requested_at)}" if run.stop_requested_at else "",
    }  # fmt: skip


@click.command()
@click.argument("task")
@options.owner
@click.option(
    "--at",
    metavar="TIME",
    help="Show the occurrences around this time: 09:00 (UTC), 2h (ago), or 2026-07-01T12:00:00Z.",
)
@options.limit(20)
@options.as_json
def why(task: str, owner: str | None, at: str | None, limit: int) -> None:
    """Explain why TASK ran or did not run, and what happens next.

    Lists its last occurrences, newest last, each with the numbers that decided it. A deleted task is found by its id.
    """
    with on_task(task, owner) as (db, named):
        try:
            answer = read_why.why(db, named, owner=owner, at=at, limit=limit)
        except UnknownTask as error:
            if owner is None:
                raise
            raise UnknownTask(f"{error} now; for its history: ticker runs --journal --owner {owner}") from None
        ends = overview.last_ends(db, [answer.task] if answer.task else [])
        failures = failing_ticks(db)
    if render.is_json():
        task_data: Any = answer.task and formatting.task_data(answer.task, ends)
        render.print_json(formatting.plain_data(answer) | {"task": task_data})
    else:
        for failure in failures:
            render.say(f"problem: {failure}")
        print_why(answer, failures)


def failing_ticks(db: Any) -> list[str]:
    """Returns why the ticks of all live tickers fail. Asks Redis only if no ticker seems to live."""
    if alive := [ticker for ticker in tasks.tickers(db) if ticker.lives()]:
        return [ticker.fails for ticker in alive] if all(ticker.failure for ticker in alive) else []
    from ticker.read import health

    return [*health.look(configured()).failures]


def print_why(answer: read_why.Why, shown: Sequence[str]) -> None:
    """Prints the answer, without those sentences about the next runs that were `shown` before it: why ticks fail. Another
    ticker would not help then.
    """
    if answer.task is not None and answer.task.subject:
        owner = f" of {answer.task.owner}" if answer.task.owner else ""
        render.say(f"{answer.task.subject}: {answer.task.name}{owner}")
    if answer.lines:
        render.print_lines(answer.lines, whose=False)
    else:
        render.say("nothing was recorded for this task")
    for sentence in answer.then:
        render.say(sentence)
    for sentence in (one for one in answer.next if one not in shown and not (shown and one.endswith(START_ONE))):
        render.say(f"{'now' if answer.at or is_of_now(sentence) else 'next'}: {sentence}")


@click.command()
@click.argument("run", type=options.Integer(1, LARGEST_ID))
@click.option(
    "--by", metavar="NAME", help="The name of the person who stops the run. Defaults to the user of this process."
)
@options.as_json
def stop(run: int, by: str | None) -> None:
    """Stop RUN, and wait up to 5 s for its end.

    An active run ends as interrupted. This is not a failure, and the run is not retried. A run that has not started is
    dropped. If a run waits for its pieces, these are stopped. A tick carries out the request, so a ticker must run. If
    the run has not ended after 5 s, the exit code is 1.
    """
    with database() as db:
        operations.stop(db, run, by=user() if by is None else by)
    record = awaited(
        lambda db: tasks.get_run(db, run, pieces=1).run,
        lambda record, waited: record.outcome is not None or waited >= PATIENCE,
    )
    render.answer(record, observed(record))
    if record.outcome is None:
        raise click.exceptions.Exit(NOT_SO)


def observed(run: RunRecord) -> str:
    """Says how the run ended, or what has not happened yet."""
    if run.outcome is not None:
        return f"run {run.id} has ended: {run.outcome}" + (f": {run.reason}" if run.reason else "")
    requested = f"run {run.id} was asked to stop"
    match run.state:
        case "running":
            ends = f"; it is dead by {formatting.at(run.until)} at the latest" if run.until else ""
            return f"{requested}; worker {run.worker} has not answered in {PATIENCE:g} s{ends}"
        case "processing":
            return f"{requested}; some of its pieces have not ended in {PATIENCE:g} s"
    return f"{requested}; no tick has dropped it in {PATIENCE:g} s"
