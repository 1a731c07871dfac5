"""S6 to S8: what a start obeys, what it reads, and that a run without its hold changes nothing."""

from itertools import pairwise

from tests.faults.checks import excuses
from tests.faults.checks.findings import Findings
from tests.faults.checks.wide import obeys_wide_pauses
from tests.faults.facts import Begin, History, Moment, Operation, Run, Version, Witnessed

# ------------------------------------------------------------------------------------------------------------ S6


def obeys_people(history: History) -> Findings:
    """Twice: by the row that the start judged, and by what the client was answered before the function began."""
    found = Findings(history)
    for run in history.runs.values():
        if run.started:
            _start_by_the_row(history, run, found)
    obeys_wide_pauses(history, found)
    bans = _operations_by_task(history)
    for one in history.witnessed.values():
        for begin in one.begins if one.task in bans else ():
            _begin_by_the_client(history, one, begin, bans[one.task], found)
    return found


def _start_by_the_row(history: History, run: Run, found: Findings) -> None:
    assert run.started is not None
    against = _against(history, run)
    if found.judge(against is None):
        found.blame(
            run.task,
            run.started.at,
            f"task {run.task}: run {run.id} ({run.kind}) started at {history.seconds(run.started.at)} s, although {against}",
        )


def _against(history: History, run: Run) -> str | None:
    """What in the task's row forbids this start."""
    assert run.started is not None
    row, task = history.at_start(run), history.tasks.get(run.task)
    if row is None:
        gone = task and task.deleted and task.deleted.moment.seq < run.started.seq
        return (
            f"the task was deleted at {history.seconds(task.deleted.at)} s" if task and task.deleted and gone else None
        )
    if not row.enabled:
        return "its row was disabled"
    if not row.owner_active:
        return "its owner was inactive"
    paused = row.paused_by is not None and (row.paused_until is None or row.paused_until > (run.started_at or 0.0))
    return f"it was paused by {row.paused_by!r}" if paused and run.kind != "manual" else None


def _operations_by_task(history: History) -> dict[int, list[Operation]]:
    by_task: dict[int, list[Operation]] = {}
    for operation in history.operations:
        for task in operation.tasks:
            by_task.setdefault(task, []).append(operation)
    return by_task


def _begin_by_the_client(
    history: History, one: Witnessed, begin: Begin, operations: list[Operation], found: Findings
) -> None:
    run = history.runs.get(one.run)
    for ban in operations:
        if excuses.prohibition(ban) not in excuses.LIFTED_BY or ban.acked is None or ban.acked >= begin.at:
            continue
        if excuses.is_no_ban(run, ban) or excuses.may_be_lifted(ban, operations, begin.at):
            continue
        if found.judge(excuses.had_started_before(run, ban)):
            found.blame(
                one.task,
                begin.at,
                f"task {one.task}: run {one.run} began at {history.seconds(begin.at)} s, after its {ban.op}"
                f" was acknowledged at {history.seconds(ban.acked)} s",
            )


# ------------------------------------------------------------------------------------------------------------ S7


def reads_its_row(history: History) -> Findings:
    """The record, and what the function itself was handed, against the row that the start locked."""
    found = Findings(history)
    for run in history.runs.values():
        if run.started is None or run.kind == "piece":  # the start of a piece changes no row of its task
            continue
        row = history.at_start(run)
        if row is None:
            if found.judge(_is_gone(history, run)):
                found.blame(
                    run.task,
                    run.started.at,
                    f"task {run.task}: run {run.id} started, and its transaction changed no row of a task",
                )
            continue
        _same(
            found,
            run,
            row,
            "record",
            {"function": run.function, "every_ms": run.every_ms, "tolerance_ms": run.tolerance_ms},
        )
        for begin in history.witnessed[run.id].begins if run.id in history.witnessed else ():
            _same(found, run, row, "function", {"function": begin.function, "kwargs": begin.kwargs})
    return found


def _is_gone(history: History, run: Run) -> bool:
    """Then S6 has said so."""
    return run.task in history.tasks and history.tasks[run.task].deleted is not None


def _same(found: Findings, run: Run, row: Version, whose: str, values: dict[str, object]) -> None:
    assert run.started is not None
    for name, value in values.items():
        if found.judge(value == getattr(row, name)):
            found.blame(
                run.task,
                run.started.at,
                f"task {run.task}: run {run.id} started at {found.history.seconds(run.started.at)} s with {name}"
                f" {value!r} by its {whose}, where its row said {getattr(row, name)!r}",
            )


# ------------------------------------------------------------------------------------------------------------ S8


def fenced(history: History) -> Findings:
    found = Findings(history)
    for id_, task in history.tasks.items():
        for before, after in pairwise(task.versions):
            if after.op == "U":
                _hold_changed(history, id_, before, after, found)
                _cursor_changed(history, id_, before, after, found)
    for run in history.runs.values():
        _ended_with_its_hold(history, run, found)
    for write in history.stale_writes:
        if found.judge(write.result == "refused"):
            found.blame(
                write.task, write.at, f"task {write.task}: run {write.run} wrote at {history.seconds(write.at)} s after it"
                f" had lost its hold, and was {write.result}",
            )  # fmt: skip
    return found


def _hold_changed(history: History, task: int, before: Version, after: Version, found: Findings) -> None:
    """Taken by a start that finds no living hold; given back by the end of the run that has it."""
    if before.run_token == after.run_token:
        run = history.runs.get(after.last_run_id or 0)
        is_late = excuses.was_adopted(history, after.at) or (run is not None and run.handed_out is not None)
        if after.last_run_id != before.last_run_id and not is_late and found.judge(False):
            _blame(history, task, after, "an end was written, and the hold was not given back", found)
        return
    wrong = _wrong_start(history, before, after) if after.run_token else _wrong_end(history, before, after)
    if wrong and not after.run_token and excuses.was_adopted(history, after.at):
        found.excuse("given back by adopt")
        return
    if found.judge(wrong is None):
        _blame(history, task, after, str(wrong), found)


def _wrong_start(history: History, before: Version, after: Version) -> str | None:
    run = history.by_token.get(after.run_token or "")
    if run is None or run.started is None or run.started.xid != after.moment.xid:
        return "the hold was taken by no start"
    if before.run_token and before.running_until is not None and before.running_until > (run.started_at or 0.0):
        left = before.running_until - (run.started_at or 0.0)
        return f"run {run.id} took the hold {left:.3f} s before the one of another run was over"
    return None


def _wrong_end(history: History, before: Version, after: Version) -> str | None:
    run = history.by_token.get(before.run_token or "")
    if run and run.handed_out and run.handed_out.xid == after.moment.xid:
        return None
    if run is None or all(moment.xid != after.moment.xid for _, moment in run.ends):
        return f"the hold of run {run.id if run else '?'} was given back by nobody's end"
    if after.last_run_id != run.id:
        return f"the hold of run {run.id} was given back by the end of run {after.last_run_id}"
    return None


def _cursor_changed(history: History, task: int, before: Version, after: Version, found: Findings) -> None:
    if before.cursor == after.cursor:
        return
    run = history.by_token.get(before.run_token or "")
    if found.judge(run is not None and not (run.ended and run.ended.seq < after.moment.seq)):
        _blame(history, task, after, f"the cursor was written ({after.cursor!r}) while no run had the hold", found)


def _ended_with_its_hold(history: History, run: Run, found: Findings) -> None:
    """An outcome that the run, or its worker, wrote. `lost` is written by the sweep, for whoever has the hold now. A piece has no
    hold, and a run that waits for its pieces has none any more."""
    for outcome, moment in run.ends if run.started and run.kind != "piece" and not run.handed_out else ():
        if outcome in {None, "lost", "dropped"}:
            continue
        written = history.written_by(run.task, moment.xid)
        held = written is not None and written[0] is not None and written[0].run_token == run.token
        task = history.tasks.get(run.task)
        gone = task is not None and task.deleted is not None and task.deleted.moment.seq < moment.seq
        if found.judge(held or gone or _is_late(history, run, moment)):
            found.blame(
                run.task,
                moment.at,
                f"task {run.task}: run {run.id} ended as {outcome} at {history.seconds(moment.at)} s, and had lost its hold",
            )


def _is_late(history: History, run: Run, moment: Moment) -> bool:
    """A lost run's own end: fenced by any later start of its task."""
    was_lost = len(run.ends) == 2 and run.ends[0][0] == "lost" and run.ends[1][1] == moment
    starts = [other.started for other in history.starts.get(run.task, ()) if other.started and other.kind != "piece"]
    return was_lost and not any(run.started < start < moment for start in starts if run.started)


def _blame(history: History, task: int, after: Version, what: str, found: Findings) -> None:
    found.blame(task, after.at, f"task {task}: at {history.seconds(after.at)} s {what}")
