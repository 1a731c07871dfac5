"""S9, S13: each occurrence that was pushed has one record, which is true, and nothing starts that its row did not ask for."""

from collections.abc import Iterator, Mapping, Sequence

from tests.faults.checks import excuses
from tests.faults.checks.causes import true_causes
from tests.faults.checks.findings import Findings
from tests.faults.checks.held import certainly_given_back, certainly_held
from tests.faults.checks.jobs import PLANNED, SCHEDULED
from tests.faults.checks.wide import loses_no_single_time
from tests.faults.facts import Event, History, Push, Run, Task, Version, installation

LEAST_EXPIRY = 600.0  # seconds
NO_JOB_BEFORE = frozenset({"missed"})  # dropped by a tick that pushed nothing

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
        _one_record(history, task, occurrence or 0, runs, found)
    for run in history.runs.values():
        _is_true_of_redis(history, run, found)
        if run.started:
            _one_outcome(history, run, found)
    for task in history.tasks.values():
        _recorded_with_its_deletion(history, task, records, found)
    _true_events(history, found)
    true_causes(history, found)
    loses_no_single_time(history, found)
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
    return excuses.is_still_open(row, occurrence) or excuses.was_never_noted(history, row, occurrence, stored)


def _why_still_planned(history: History, run: Run | None, stored: Push) -> str | None:
    if run is None or run.task not in history.tasks:
        return None
    if why := excuses.went_with_its_task(history, history.tasks[run.task], stored):
        return why
    return "planned, end of the run" if excuses.near_the_end(history, stored.at) else None


def _one_record(history: History, task: int, occurrence: int, runs: Sequence[Run], found: Findings) -> None:
    """Whatever was pushed how often. A duplicate is what a newer start has overtaken, and nothing else."""
    if found.judge(len(runs) == 1):
        told = ", ".join(f"run {run.id} {run.reason or run.outcome or run.state}" for run in runs)
        found.blame(task, runs[-1].created.at, f"task {task}: occurrence {occurrence} has {len(runs)} records: {told}")
    for run in runs:
        if run.reason == "duplicate" and found.judge(_was_overtaken(history, run)):
            found.blame(
                task,
                run.created.at,
                f"task {task}: occurrence {occurrence} was dropped as a duplicate at {history.seconds(run.created.at)} s,"
                " and no newer one had started",
            )


def _was_overtaken(history: History, duplicate: Run) -> bool:
    return any(
        run.kind == "scheduled"
        and (run.occurrence or 0) > (duplicate.occurrence or 0)
        and run.started < duplicate.created
        for run in history.starts.get(duplicate.task, ())
        if run.started
    )


def _is_true_of_redis(history: History, run: Run, found: Findings) -> None:
    """What a ticker recorded because of the job's state in Redis."""
    claim = _claim(history, run)
    if claim is None:
        return
    facts = [(certainly_held, "Redis held it")]
    if run.reason == "expired":
        facts.append((certainly_given_back, "a worker had taken it, which lived on and gave it back"))
    for contradicts, fact in facts:
        if found.judge(not contradicts(history, run.task, run.occurrence or 0, run.created.at)):
            found.blame(
                run.task,
                run.created.at,
                f"task {run.task}: run {run.id} says at {history.seconds(run.created.at)} s of occurrence {run.occurrence}"
                f" that {claim}, and {fact}",
            )


def _claim(history: History, run: Run) -> str | None:
    """A worker's drop says nothing of Redis, and one by age does not either."""
    if run.kind != "scheduled" or run.started or run.job or run.occurrence is None:
        return None
    if run.outcome == "lost":
        return "its job ended before its start"
    age = history.clocks.wall(run.created.at) - run.occurrence / 1_000_000
    is_old = age >= max(2 * run.every_ms / 1000, LEAST_EXPIRY) - excuses.SLACK
    return "its job was gone" if run.reason == "expired" and not is_old else None


def _one_outcome(history: History, run: Run, found: Findings) -> None:
    """Or lost, and then another one by an end that came late, which an event says."""
    assert run.started is not None
    late = [event for event in history.events_of.get("end_recorded_late", ()) if event.run == run.id]
    outcomes = [outcome for outcome, _ in run.ends]
    is_late = len(outcomes) == 2 and outcomes[0] == "lost" and outcomes[1] != "lost"
    if found.judge(len(late) == 1 if is_late else len(outcomes) == 1 and not late):
        if not run.ends and excuses.hold_outlives_the_history(history, run):
            found.excuse("running at the end")
            return
        if not run.ends and excuses.pieces_outlive_the_history(history, run):
            found.excuse("waiting for its pieces at the end")
            return
        told = ", ".join(f"{outcome} at {history.seconds(moment.at)} s" for outcome, moment in run.ends) or "none"
        found.blame(
            run.task,
            run.started.at,
            f"task {run.task}: run {run.id}, started at {history.seconds(run.started.at)} s, has {len(run.ends)} outcomes"
            f" and {len(late)} events of a late end: {told}",
        )


def _recorded_with_its_deletion(history: History, task: Task, records: Records, found: Findings) -> None:
    """What waited when the task was deleted, by whomever, has a record of that very transaction."""
    if task.deleted is None or len(task.versions) < 2:
        return
    for occurrence in task.versions[-2].waiting:
        of_it = records.get((task.id, occurrence), ())
        same = [run for run in of_it if run.created.xid == task.deleted.moment.xid and run.reason == "gone"]
        if found.judge(len(same) == 1):
            found.blame(
                task.id,
                task.deleted.at,
                f"task {task.id}: occurrence {occurrence} waited when the task was deleted at"
                f" {history.seconds(task.deleted.at)} s, and its deletion left {len(same)} records of it",
            )


# -------------------------------------------------------------------------------------------------- S9: the events


def _true_events(history: History, found: Findings) -> None:
    for event in history.events_of.get("redelivered", ()):
        run = history.runs.get(event.run or 0)
        if event.run and found.judge(run is not None and run.task == event.task and run.created.at <= _latest(event)):
            _false(history, event, f"names run {event.run}, which is no record of that task at that time", found)
    for event in history.events_of.get("stale", ()):
        if found.judge(event.task == 0):
            _false(history, event, f"stands in the history of task {event.task}", found)
        for task, occurrence in _refused(history, event):
            if found.judge(not _is_expected(history, task, occurrence, event)):
                _false(history, event, f"refused occurrence {occurrence} of task {task}, which was waited for", found)


def _latest(event: Event) -> float:
    return event.at + excuses.CLOCK_ERROR


def _refused(history: History, event: Event) -> Iterator[tuple[int, int]]:
    """What a single job stood for; of a batch the event does not say which occurrence it means."""
    for word in event.words.split():
        if match := SCHEDULED.fullmatch(word.strip(".,:;()")):
            yield int(match[1]), int(match[2])


def _is_expected(history: History, task: int, occurrence: int, event: Event) -> bool:
    """Before and after: an instant is not placed so exactly that it tells which of two neighbours was meant."""
    row = history.tasks.get(task)
    if row is None:
        return False
    around = (row.version_at(event.at - 4 * excuses.CLOCK_ERROR), row.version_at(event.at + 4 * excuses.CLOCK_ERROR))
    return all(version is not None and version.op != "D" and _expects(version, occurrence) for version in around)


def _expects(version: Version, occurrence: int) -> bool:
    due = None if version.next_run is None else round(version.next_run * 1_000_000)
    return occurrence in version.waiting or occurrence == due


def _false(history: History, event: Event, what: str, found: Findings) -> None:
    found.blame(
        event.task or None, event.at, f"event {event.id} ({event.what}) at {history.seconds(event.at)} s {what}"
    )


# ----------------------------------------------------------------------------------------------------------- S13


def asked_for(history: History) -> Findings:
    """By the row as it was before the start; and after a restore, by a job that this installation pushed."""
    found = Findings(history)
    began = max((fault.end for fault in history.faults if fault.kind == "gap"), default=None)
    prefixes = {installation(push.carrier) for push in _pushes(history) if began is not None and push.at >= began}
    for run in history.runs.values():
        if run.started is None:
            continue
        written = history.written_by(run.task, run.started.xid)
        before = written[0] if written else None
        if run.kind == "scheduled" and before and found.judge(_expects(before, run.occurrence or 0)):
            _strange(history, run, f"of occurrence {run.occurrence}, for which its row did not wait", found)
        if began is not None and run.started.at >= began and found.judge(installation(run.job) in prefixes):
            _strange(history, run, f"by job {run.job}, which another installation pushed", found)
    return found


def _pushes(history: History) -> Iterator[Push]:
    return (push for pushes in history.pushes.values() for push in pushes)


def _strange(history: History, run: Run, what: str, found: Findings) -> None:
    assert run.started is not None
    at = run.started.at
    found.blame(run.task, at, f"task {run.task}: run {run.id} started at {history.seconds(at)} s {what}")
