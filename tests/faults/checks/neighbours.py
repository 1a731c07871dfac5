"""S16: checks the runs that were active in a process when it died, and those that had not begun."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from tests.faults.checks import excuses
from tests.faults.checks.causes import BECAUSE_OF, HARD_LIMIT, NOT_CALLED
from tests.faults.checks.crews import DEAD, Crew, crew_of, crews, last_activity
from tests.faults.checks.findings import Findings
from tests.faults.checks.jobs import SCHEDULED, job_of
from tests.faults.checks.keys import keys_of
from tests.faults.checks.liveness import windows
from tests.faults.facts import History, Moment, Push, Run, Version
from tests.faults.groups import GROUPED, LOOP
from tests.faults.polls import BEAT
from tests.faults.trail import micros

BLOCKED = "it blocked the event loop"
BY_WORKER = "killed by its worker"  # a second signal to stop: no run caused it
AT_WORK = re.compile(r"while ([0-9]+) runs were active in it")
SAME_TIME = 1.0  # seconds within which two ends say nothing of their order
MARGIN = 0.5  # seconds from what a tick reads of a row to its push
UNTIL_IT_ENDED = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
UNSEEN = frozenset({"horse_frozen", "worker_frozen", "lost"})  # `lost`: a failover lost what was said meanwhile


def spares_neighbours(history: History) -> Findings:
    found = Findings(history)
    for crew in crews(history):
        _is_guilty(history, crew, found)
        _began_later(history, crew, found)
    for run in history.runs.values():
        if run.started and run.outcome == "interrupted":
            _had_a_neighbour(history, run, found)
            _counts_for_nothing(history, run, found)
        if run.started and run.kind == "retry":
            _was_allowed(history, run, found)
        if run.started and run.ends and run.function in GROUPED:
            _is_over(history, run, found)
            _runs_alone(history, run, found)
    return found


# ------------------------------------------------------------------------------------------------- who is killed


def _is_guilty(history: History, crew: Crew, found: Findings) -> None:
    """Checks that a killed run had no neighbours, or that it is the only killed run and caused the death. A run that was not
    called does not count (S9 checks that it was not active)."""
    dead = [run for run in crew.dead if not NOT_CALLED.search(run.reason)]
    killed = [run for run in dead if run.outcome == "killed"]
    if len(dead) < 2 or not killed:
        return
    guilty = killed[0]
    if found.judge(len(killed) == 1):
        told = ", ".join(str(run.id) for run in killed)
        _blame(history, guilty, f"is not the only one that was killed in process {crew.pid}: {told}", found)
    limit = HARD_LIMIT.search(guilty.reason)
    if found.judge(limit is not None and limit[1] == "at"):
        _blame(history, guilty, f"had neighbours, and was killed without a cause: {guilty.reason!r}", found)
    elif guilty.function == LOOP and not _was_unseen(history, guilty) and found.judge(_took_its_time(history, guilty)):
        _blame(history, guilty, f"was killed for what a neighbour did: {guilty.reason!r}", found)


def _took_its_time(history: History, run: Run) -> bool:
    """By a deed, or as it went on until the end of its box."""
    one = history.witnessed.get(run.id)
    return one is None or bool(one.deed) or one.last_own >= one.begins[0].at + one.begins[0].box - 2 * BEAT


def _was_unseen(history: History, run: Run) -> bool:
    """Of a frozen process, whoever has the least time left has used it up first. A deed may lie in what a failover lost."""
    assert run.started and run.ended
    return any(
        fault.kind in UNSEEN and fault.begin <= run.ended.at and fault.end >= run.started.at for fault in history.faults
    )


# ---------------------------------------------------------------------------------------------- who is interrupted


def _had_a_neighbour(history: History, run: Run, found: Findings) -> None:
    assert run.ended
    crew = crew_of(history, run)
    others = [other for other in crew.runs if other is not run and _was_at_work(history, other, run, run.ended)]
    if found.judge(bool(others)):
        _blame(history, run, f"was interrupted, and was alone in process {crew.pid}: {run.reason!r}", found)
    if (match := AT_WORK.search(run.reason)) and found.judge(int(match[1]) <= len(others) + 1):
        _blame(history, run, f"had {len(others)} neighbours, and says {run.reason!r}", found)
    named = BECAUSE_OF.search(run.reason)
    if named and found.judge(any(other.task == int(named[1]) and other.outcome != "interrupted" for other in others)):
        _blame(history, run, f"names a neighbour that was not killed: {run.reason!r}", found)


def _was_at_work(history: History, other: Run, run: Run, ended: Moment) -> bool:
    assert other.started and run.started
    one = history.witnessed.get(run.id)
    died = one.last_own if one else run.started.at
    is_open = other.outcome in DEAD or other.ended is None or other.ended.at >= died - SAME_TIME
    return other.started < ended and is_open


def _counts_for_nothing(history: History, run: Run, found: Findings) -> None:
    assert run.ended
    written = history.written_by(run.task, run.ended.xid)
    if written and written[0] and found.judge(written[0].failures == written[1].failures):
        told = f"{written[0].failures} to {written[1].failures}"
        _blame(history, run, f"was interrupted, and the failures of its task went from {told}", found)
    has_no_culprit = AT_WORK.search(run.reason) and BY_WORKER not in run.reason and len(run.ends) == 1
    if written and has_no_culprit and found.judge(written[1].alone_until is not None):
        _blame(
            history, run, f"was interrupted without a culprit, and its task need not run alone: {run.reason!r}", found
        )


def _was_allowed(history: History, run: Run, found: Findings) -> None:
    """Checks a second attempt of an interrupted run. A repeatable function has one, as if its task had one retry."""
    assert run.started
    before = next((other for other in _attempts(history, run) if other.attempt == run.attempt - 1), None)
    row = history.at_start(run)
    if not (before and before.outcome == "interrupted" and row):
        return
    allowed = max(row.retries, run.function in history.setup.repeatable)
    if found.judge(allowed >= run.attempt - 1):
        _blame(
            history,
            run,
            f"is attempt {run.attempt} of interrupted run {before.id}; {allowed} retries are allowed",
            found,
        )


def _attempts(history: History, run: Run) -> Iterator[Run]:
    first = run.parent or run.id
    return (other for other in history.by_task[run.task] if first in {other.id, other.parent})


def _is_over(history: History, run: Run, found: Findings) -> None:
    """Checks that a run is not active after its end was recorded, which frees its task. A `lost` run may still be active."""
    outcome, moment = run.ends[0]
    one = history.witnessed.get(run.id)
    if one and outcome != "lost" and found.judge(one.last_own <= moment.at + excuses.CLOCK_ERROR):
        told = f"{history.seconds(one.last_own)} s, and its record says {outcome} at {history.seconds(moment.at)} s"
        _blame(history, run, f"was active until {told}", found)


def _runs_alone(history: History, run: Run, found: Findings) -> None:
    """Checks that a task has no neighbours if it was guilty, and only suspects if it was a suspect, both when its job was pushed
    and when it started."""
    pushed = _pushed(history, run)
    one, row = history.witnessed.get(run.id), history.at_start(run)
    if not (one and row and pushed and run.task in history.tasks):
        return
    read = [history.tasks[run.task].version_at(at) for at in (pushed - MARGIN, pushed)]
    if not all(version is not None and _is_alone(version, run) for version in (*read, row)):
        return
    active = [history.witnessed[other.id] for other in crew_of(history, run).runs if other.id in history.witnessed]
    others = [other.run for other in active if other is not one and other.first < one.last and other.last > one.first]
    if any(map(_is_suspect, (*read, row))):  # an earlier job may find a suspect guilty in between
        others = [id_ for id_ in others if not _was_suspect(history, history.runs[id_])]
    if found.judge(not others):
        _blame(history, run, f"had to run alone, and runs {others} were active in its process", found)


def _pushed(history: History, run: Run) -> float | None:
    """Returns when the job with which it started was pushed."""
    assert run.started
    pushes = history.pushes.get(job_of(run.task, run.occurrence or 0), ())
    return max((push.at for push in pushes if push.taken and push.at <= run.started.at), default=None)


def _was_suspect(history: History, run: Run) -> bool:
    """When its job was pushed or when it started. An earlier job of its task may clear it in between."""
    pushed = _pushed(history, run)
    at_push = history.tasks[run.task].version_at(pushed) if pushed and run.task in history.tasks else None
    return _is_suspect(history.at_start(run)) or _is_suspect(at_push)


def _is_suspect(row: Version | None) -> bool:
    """Until a run of its task has ended. Guilty tasks run alone for an hour."""
    return row is not None and (row.alone_until or 0.0) > UNTIL_IT_ENDED


def _is_alone(row: Version, run: Run) -> bool:
    return row.alone_until is not None and row.alone_until > (run.started_at or 0.0)


# ------------------------------------------------------------------------------------------------ who had not begun


def _began_later(history: History, crew: Crew, found: Findings) -> None:
    """Checks jobs of a process that died in a calm: what had not started is pushed again in that calm, or has a record."""
    if not crew.dead:
        return
    died = min(run.ended.at for run in crew.dead if run.ended)
    until = died + 3 * history.setup.tick + excuses.SLACK
    if not any(calm.begin <= last_activity(history, crew) and until <= calm.end for calm in windows(history)):
        return
    for push in _unstarted(history, crew, died, until):
        later = [other.at for other in history.pushes[push.job] if other.taken and other.at > push.at]
        if found.judge(any(at <= until for at in later)):
            found.blame(
                None,
                died,
                f"job {push.job} was in process {crew.pid}, which died at {history.seconds(died)} s, had not begun, and was"
                f" not pushed again until {history.seconds(until)} s",
            )


def _unstarted(history: History, crew: Crew, died: float, until: float) -> Iterator[Push]:
    """Returns the occurrences that had not begun and whose task has not been deleted, disabled or paused since."""
    for carrier in {run.job for run in crew.runs}:
        for push in _carried(history).get(carrier, ()):
            match = SCHEDULED.fullmatch(push.job)
            if match is None or push.at >= died:
                continue
            task, occurrence = int(match[1]), int(match[2])
            row = history.tasks[task].version_at(until) if task in history.tasks else None
            records = [run for run in history.by_task.get(task, ()) if run.occurrence == occurrence]
            if (
                row
                and row.pushable
                and not _is_given_back(row, occurrence)
                and not any(run.created.at <= until for run in records)
            ):
                yield push


def _is_given_back(row: Version, occurrence: int) -> bool:
    """It waits for room, or met a pause."""
    return occurrence not in row.waiting and (bool(keys_of(row)) or micros(row.waits_again) == occurrence)


@lru_cache(maxsize=1)
def _carried(history: History) -> Mapping[str, Sequence[Push]]:
    """Returns what was pushed, by the job that carried it."""
    by_carrier: dict[str, list[Push]] = {}
    for pushes in history.pushes.values():
        for push in pushes:
            by_carrier.setdefault(push.carrier, []).append(push)
    return by_carrier


def _blame(history: History, run: Run, what: str, found: Findings) -> None:
    assert run.started
    found.blame(
        run.task,
        run.started.at,
        f"task {run.task}: run {run.id}, started at {history.seconds(run.started.at)} s, {what}",
    )
