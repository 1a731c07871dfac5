"""L4, L5: after the faults everything is covered again, and no run is left without its outcome."""

from tests.faults.checks import excuses
from tests.faults.checks.epochs import epochs
from tests.faults.checks.findings import Findings
from tests.faults.checks.jobs import job_of
from tests.faults.checks.keys import has_keys
from tests.faults.checks.liveness import healthy
from tests.faults.facts import Calm, History, Run, Task, Version

# ------------------------------------------------------------------------------------------------------------ L4


def covered_again(history: History) -> Findings:
    """At 3 D + restart after the faults, of each task that nobody touched meanwhile: what was due has been pushed, and
    what waits has a job that was pushed since Redis was last emptied."""
    found = Findings(history)
    allowed = 3 * history.setup.tick + history.setup.restart
    for calm in history.calms:
        if calm.end - calm.begin >= allowed:
            for task in healthy(history):
                _is_covered(history, task, Calm(calm.begin, calm.begin + allowed), found)
    return found


def _is_covered(history: History, task: Task, calm: Calm, found: Findings) -> None:
    before, after = task.version_at(calm.begin), task.version_at(calm.end)
    if before is None or after is None or not before.pushable or not _untouched(history, task, calm):
        return
    still_due = (
        None if has_keys(task) or task.id in history.setup.crowd else _still_due(history, task, before, after, calm)
    )
    if still_due and (why := excuses.waited_for_its_turn(history, task, _due(history, before, calm), calm.end)):
        found.excuse(why)
        return
    wrong = still_due or _still_wiped(history, task, after, calm)
    if found.judge(wrong is None):
        found.blame(
            task.id,
            calm.end,
            f"task {task.id}: at {history.seconds(calm.end)} s, {calm.end - calm.begin:g} s after the faults, {wrong}",
        )


def _untouched(history: History, task: Task, calm: Calm) -> bool:
    return any(epoch.begin <= calm.begin and calm.end <= epoch.end for epoch in epochs(history)[task.id])


def _still_due(history: History, task: Task, before: Version, after: Version, calm: Calm) -> str | None:
    if before.next_run is None or (due := _due(history, before, calm)) > calm.begin:
        return None
    if after.next_run != before.next_run or _pushed_since(history, task, before.next_run * 1_000_000, calm):
        return None
    return f"it is still due since {history.seconds(due)} s, and was not pushed"


def _due(history: History, row: Version, calm: Calm) -> float:
    assert row.next_run is not None
    return history.clocks.at(row.next_run, near=calm.begin)


def _still_wiped(history: History, task: Task, after: Version, calm: Calm) -> str | None:
    """A copy that the queue still holds counts as pushed: `held` is an answer of that Redis. A job that a worker took later was
    not wiped, and one that it took before may have outlived an eviction: RQ leaves it to that worker, also where it died, or
    never got the answer."""
    wipes = [wipe for wipe in history.wipes if wipe <= calm.begin]
    if not wipes:
        return None
    wiped, since = wipes[-1], Calm(wipes[-1], calm.end)
    emptied = Calm(max((wipe for wipe in wipes if not _is_eviction(history, wipe)), default=0.0), calm.end)
    for occurrence in after.waiting:
        if not _pushed_since(history, task, occurrence, since) and not _taken_since(history, task, occurrence, emptied):
            return f"occurrence {occurrence} waits, Redis was emptied, or the database restored, at {history.seconds(wiped)} s, and it was not pushed again"
    return None


def _is_eviction(history: History, wipe: float) -> bool:
    return any(fault.kind == "redis_evicts" and fault.begin <= wipe <= fault.end for fault in history.faults)


def _pushed_since(history: History, task: Task, occurrence: float, calm: Calm) -> bool:
    pushes = history.pushes.get(job_of(task.id, round(occurrence)), ())
    return any(push.taken and calm.begin <= push.at <= calm.end for push in pushes)


def _taken_since(history: History, task: Task, occurrence: float, calm: Calm) -> bool:
    pushes = history.pushes.get(job_of(task.id, round(occurrence)), ())
    return any(calm.begin <= take <= calm.end for push in pushes for take in history.takes.get(push.carrier, ()))


# ------------------------------------------------------------------------------------------------------------ L5


def ends_in_time(history: History) -> Findings:
    found = Findings(history)
    for run in history.runs.values():
        if run.started:
            _ends_in_time(history, run, found)
    return found


def _ends_in_time(history: History, run: Run, found: Findings) -> None:
    assert run.started is not None
    more = 2 * history.setup.tick + excuses.SLACK
    limit = run.started.at + run.hold + more
    ended = run.frees[0].at if run.frees else max(history.last or history.end, history.end)
    if found.judge(ended <= limit and bool(run.frees)):
        if not run.ends and excuses.hold_outlives_the_history(history, run):
            found.excuse("running at the end")
            return
        over = excuses.kept_from_the_end(history, run, ended)
        if over is not None and ended <= over + more:
            found.excuse("PostgreSQL, its row or all tickers were away")
            return
        _late(history, run, ended, limit, found)


def _late(history: History, run: Run, ended: float, limit: float, found: Findings) -> None:
    assert run.started is not None
    what = f"got its outcome at {history.seconds(ended)} s" if run.ends else "never got an outcome"
    found.blame(
        run.task,
        run.started.at,
        f"task {run.task}: run {run.id}, started at {history.seconds(run.started.at)} s, {what};"
        f" the limit was {history.seconds(limit)} s, B + g + 2 D + 2 s after its start",
    )
