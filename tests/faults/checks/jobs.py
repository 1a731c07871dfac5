"""S5, S9, S10: no advance without a push, no push without an end, and a bound on what waits."""

import re
from collections.abc import Mapping, Sequence

from tests.faults.checks import excuses
from tests.faults.checks.advances import advances
from tests.faults.checks.findings import Findings
from tests.faults.facts import History, Push, Run, Task

SCHEDULED = re.compile(r"t(\d+)-(\d+)")
PLANNED = re.compile(r"r(\d+)")
LEAST_EXPIRY = 600.0  # seconds
MORE = 3  # occurrences that may wait beyond the expiry: one due, one being pushed, one being dropped


def job_of(task: int, occurrence: int) -> str:
    return f"t{task}-{occurrence}"


# ------------------------------------------------------------------------------------------------------------ S5


def pushed_before(history: History) -> Findings:
    """The answer must have reached the ticker: one that was swallowed is none."""
    found = Findings(history)
    for id_, task in history.tasks.items():
        for version, occurrence in advances(task):
            pushes = history.pushes.get(job_of(id_, occurrence), ())
            latest = version.at + excuses.CLOCK_ERROR
            if found.judge(any(push.taken and push.delivered and push.at <= latest for push in pushes)):
                found.blame(
                    id_,
                    version.at,
                    f"task {id_}: the row moved on past occurrence {occurrence} at {history.seconds(version.at)} s, and Redis"
                    f" had taken no job for it: {_told(history, pushes)}",
                )
    return found


def _told(history: History, pushes: Sequence[Push]) -> str:
    told = [
        f"{push.answer or 'no answer'}{'' if push.delivered else ' (not delivered)'} at {history.seconds(push.at)} s"
        for push in pushes[:5]
    ]
    return ", ".join(told) or "there was no push"


# ------------------------------------------------------------------------------------------------------------ S9

Records = Mapping[tuple[int, int | None], Sequence[Run]]


def accounted_for(history: History) -> Findings:
    found = Findings(history)
    records = _records(history)
    for job, pushes in history.pushes.items():
        stored = [push for push in pushes if push.answer == "stored"]
        if stored:
            _job_ends(history, job, stored[-1], records, found)
    for (task, occurrence), runs in records.items():
        _one_record_per_push(history, task, occurrence or 0, runs, found)
    for run in history.runs.values():
        if run.started:
            _one_outcome(history, run, found)
    return found


def _records(history: History) -> Records:
    """Of the scheduled kind: runs, drops and losses of each occurrence."""
    records: dict[tuple[int, int | None], list[Run]] = {}
    for run in history.runs.values():
        if run.kind == "scheduled":
            records.setdefault((run.task, run.occurrence), []).append(run)
    return records


def _job_ends(history: History, job: str, stored: Push, records: Records, found: Findings) -> None:
    if match := SCHEDULED.fullmatch(job):
        task, occurrence = int(match[1]), int(match[2])
        if found.judge((task, occurrence) in records):
            _missing(found, task, stored, _why_no_record(history, task, occurrence, stored), "there is no record of it")
    elif match := PLANNED.fullmatch(job):
        run = history.runs.get(int(match[1]))
        if found.judge(run is not None and (run.state == "ended" or run.started is not None)):
            why = _why_still_planned(history, run, stored)
            _missing(found, run.task if run else None, stored, why, f"its row is {run.state if run else 'not there'}")


def _missing(found: Findings, task: int | None, stored: Push, why: str | None, what: str) -> None:
    if why:
        found.excuse(why)
        return
    found.blame(
        task, stored.at, f"task {task}: job {stored.job} was stored at {found.history.seconds(stored.at)} s, and {what}"
    )


def _why_no_record(history: History, task: int, occurrence: int, stored: Push) -> str | None:
    row = history.tasks.get(task)
    if row is None:
        return None
    return (
        excuses.went_with_its_task(history, row, stored)
        or excuses.is_still_open(row, occurrence)
        or excuses.was_never_noted(history, row, occurrence, stored)
    )


def _why_still_planned(history: History, run: Run | None, stored: Push) -> str | None:
    if run is None or run.task not in history.tasks:
        return None
    if why := excuses.went_with_its_task(history, history.tasks[run.task], stored):
        return why
    return "planned, end of the run" if excuses.near_the_end(history, stored.at) else None


def _one_record_per_push(history: History, task: int, occurrence: int, runs: Sequence[Run], found: Findings) -> None:
    """A copy of a job is a duplicate. A job that was dropped and pushed again, since its tick had died, has a record for
    each time that Redis may have stored it. And a duplicate there is only where this occurrence, or a later one, ran."""
    real = [run for run in runs if not (run.outcome == "dropped" and run.reason == "duplicate")]
    pushes = history.pushes.get(job_of(task, occurrence), ())
    stored = max(sum(1 for push in pushes if push.answer in {"stored", None}), 1)
    if found.judge(len(real) <= stored):
        told = ", ".join(f"run {run.id} {run.reason or run.outcome or run.state}" for run in real)
        found.blame(
            task,
            real[-1].created.at,
            f"task {task}: occurrence {occurrence} was stored {stored} times and has {len(real)} records: {told}",
        )
    if not real and found.judge(_has_run_since(history, task, occurrence)):
        found.blame(
            task,
            runs[0].created.at,
            f"task {task}: occurrence {occurrence} was dropped as a duplicate at {history.seconds(runs[0].created.at)} s,"
            " and neither it nor a later one ever ran",
        )


def _has_run_since(history: History, task: int, occurrence: int) -> bool:
    return any(
        run.kind == "scheduled" and run.occurrence is not None and run.occurrence >= occurrence
        for run in history.starts.get(task, ())
    )


def _one_outcome(history: History, run: Run, found: Findings) -> None:
    assert run.started is not None
    if found.judge(len(run.ends) == 1):
        if not run.ends and excuses.hold_outlives_the_history(history, run):
            found.excuse("running at the end")
            return
        told = ", ".join(f"{outcome} at {history.seconds(moment.at)} s" for outcome, moment in run.ends) or "none"
        found.blame(
            run.task,
            run.started.at,
            f"task {run.task}: run {run.id}, started at {history.seconds(run.started.at)} s, has {len(run.ends)} outcomes: {told}",
        )


# ----------------------------------------------------------------------------------------------------------- S10


def bounded(history: History) -> Findings:
    """max(2 I, 600 s) / I + 3, with the shortest interval so far: what waits was pushed by that one."""
    found = Findings(history)
    for task in history.tasks.values():
        _waits_bounded(history, task, found)
    return found


def _waits_bounded(history: History, task: Task, found: Findings) -> None:
    shortest, worst = float("inf"), None
    for version in task.versions:
        if version.kind != "interval" or not version.every_ms:
            continue
        shortest = min(shortest, version.every_ms / 1000)
        limit = max(2 * shortest, LEAST_EXPIRY) / shortest + MORE
        if version.waiting and found.judge(len(version.waiting) <= limit):
            worst = max(worst or (0, 0.0, 0.0), (len(version.waiting), version.at, limit))
    if worst:
        found.blame(
            task.id,
            worst[1],
            f"task {task.id}: {worst[0]} occurrences waited at {history.seconds(worst[1])} s; the limit is {worst[2]:.0f}",
        )
