"""Checks the demo: what was delivered, retrieved, stored and run must agree, and each promise must be seen.

Duplicates stay visible: the server counts retrievals, and the table accepts a message any number of times. A finding is
True, False (contradicted) or None (not seen). A promise that was not seen fails, unless the machine was too slow.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import attrgetter

from ticker.engine import timing
from ticker.model import Outcome, Reason, RunKind
from ticker.read.entries import JournalEntry
from ticker.read.explain import span
from ticker.read.tasks import FullRun, RunRecord
from ticker.read.why import Why
from ticker.tasks.fields import Task

LATEST_KILL = timedelta(seconds=3)  # a kill that is recorded later than this after the limit had another cause
ROUNDING = 0.01  # seconds: the error of three figures that are rounded to a millisecond
STYLES = {"ok": "green", "FAILED": "bold red", "not judged": "yellow"}
Key = tuple[str, int]  # a message: its mailbox and its UID there
Deletion = tuple[str, datetime, int]  # mailbox, time by the database's clock, and how many of its tasks are left
Finding = tuple[bool | None, str]
start = attrgetter("started_at")  # of a run that has started


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was recorded, oldest first. `stored` has an item for each row; `tasks` includes those of deleted owners."""

    tasks: Mapping[int, Task] = field(default_factory=dict)
    runs: Sequence[RunRecord] = ()
    deletion: Deletion | None = None
    victim: int | None = None  # the run in which a worker was killed
    delivered: Sequence[Key] = ()
    retrieved: Sequence[Key] = ()  # in full
    stored: Sequence[Key] = ()
    failed: Sequence[FullRun] = ()
    whys: Sequence[Why] = ()  # the answers of `ticker why`

    def next_run(self, run: RunRecord) -> RunRecord | None:
        """Returns the task's next run if it has ended, else None."""
        later = [r for r in self.runs if r.task_id == run.task_id and r.started_at and r.started_at > start(run)]
        following = min(later, key=start, default=None)
        return following if following and following.ended_at else None


def judge(evidence: Evidence, too_slow: bool) -> Iterator[tuple[str, str]]:
    """Yields the status of each promise (`ok`, `FAILED` or `not judged`) and its sentence."""
    for claim, check in PROMISES.items():
        ok, detail = check(evidence)
        status = "ok" if ok else "not judged" if ok is None and too_slow else "FAILED"
        yield status, f"{claim}: {'the machine was too slow; ' * (status == 'not judged')}{detail}"


def seen(evidence: Evidence) -> bool:
    """Returns whether every expected event has been seen; mail may still be on its way."""
    return all(check(evidence)[0] for check in PROMISES.values() if check is not stored_once)


def resumed(evidence: Evidence) -> Finding:
    partial = [run for run in evidence.runs if run.outcome == Outcome.PARTIAL]
    for run in partial:
        if (following := evidence.next_run(run)) and following.result:
            stop, after, last = run.result["up_to"], following.result["after"], following.result["up_to"]
            detail = f"{evidence.tasks[run.task_id].subject}, up to message {stop}, then {after + 1} to {last}"
            return after == stop < last, detail
    return None, f"not seen; {len(partial)} runs stopped at their quota"


def killed(evidence: Evidence) -> Finding:
    kills = [run for run in evidence.runs if run.outcome == Outcome.KILLED]
    for run in kills:
        assert run.started_at and run.ended_at
        task, lasted = evidence.tasks[run.task_id], run.ended_at - run.started_at
        limit = timing.span(task.box_ms + task.grace_ms)
        if timing.span(task.box_ms) < lasted < limit + LATEST_KILL:
            return True, f"{task.subject}, {span(lasted)} after its start; its limit is {span(limit)}"
    return None, f"not seen; {len(kills)} runs were killed"


def survived(evidence: Evidence) -> Finding:
    run = next((run for run in evidence.runs if run.id == evidence.victim and run.ended_at), None)
    if run is None or (following := evidence.next_run(run)) is None:
        return None, "not seen"
    subject = evidence.tasks[run.task_id].subject
    if not run.result or not following.result:
        return True, f"{subject}; that run ended as {run.outcome}, the next one as {following.outcome}"
    stop, after = run.result["up_to"], following.result["after"]
    if stop != after:
        return False, f"{subject}; that run stopped after message {stop}, the next one started after message {after}"
    return True, f"{subject}; the next run continued where that one had stopped"


def cascaded(evidence: Evidence) -> Finding:
    if evidence.deletion is None:
        return None, "no channel was deleted"
    mailbox, deleted_at, left = evidence.deletion
    own = [run for run in evidence.runs if evidence.tasks[run.task_id].subject == mailbox]
    gone = [run for run in own if run.reason == Reason.GONE]
    late = [run for run in own if run.started_at and run.started_at > deleted_at]
    detail = f"tasks left: {left}, runs started later: {len(late)}, waiting jobs that ended as gone: {len(gone)}"
    return False if left or late else bool(gone) or None, f"{mailbox}, {detail}"


def too_early(evidence: Evidence) -> Finding:
    drops = [run for run in evidence.runs if run.reason == Reason.TOO_EARLY]
    if not drops:
        return None, "not seen"
    after, task = min(((since(drop), evidence.tasks[drop.task_id]) for drop in drops), key=lambda pair: pair[0])
    detail = f"{task.name} of {task.subject}, {span(after)} after the last start"
    return after < spacing(task), f"{detail}; the minimum is {span(spacing(task))}"


def retried(evidence: Evidence) -> Finding:
    for first in evidence.failed:
        again = [run for run in first.attempts if run.kind == RunKind.RETRY and run.outcome == Outcome.SUCCEEDED]
        if first.run.task_name == "feeds.import" and again:
            detail = f"feeds.import printed {first.error_output.strip()!r}; attempt {again[0].attempt} succeeded"
            return "503" in first.error_output, detail
    return None, f"not seen; {len(evidence.failed)} runs failed"


def in_pieces(evidence: Evidence) -> Finding:
    for parent in evidence.failed:
        outcomes = Counter(str(piece.outcome) for piece in parent.pieces)
        if outcomes == {"failed": 1, "succeeded": 4} and parent.run.reason == "1 of 5 pieces failed":
            return True, f"{parent.run.task_name}: {parent.run.reason}"
    return None, "not seen"


def explained(evidence: Evidence) -> Finding:
    lines = [line for why in evidence.whys for line in why.lines]
    drops = [line for line in lines if line.run and line.run.reason == Reason.TOO_EARLY]
    if wrong := [str(line) for line in drops if not adds_up(line)]:
        return False, "; ".join(wrong)
    expected = {"failure": "503", "retry": "attempt 2 of 3", "pieces": "5 pieces", "drop": "too_early"}
    missing = [name for name, words in expected.items() if not any(words in line.words for line in lines)]
    return (None, f"missing: {', '.join(missing)}") if missing else (True, str(drops[0]))


def adds_up(line: JournalEntry) -> bool:
    """Returns whether after + early = interval - tolerance, and whether `after` agrees with the drop's record."""
    figures = [float(figure) for figure in re.findall(r"([\d.]+) s ", line.words)]
    if line.run is None or len(figures) != 4:
        return False
    (after, early, interval, tolerance), recorded = figures, since(line.run).total_seconds()
    return abs(after + early - interval + tolerance) < ROUNDING and abs(after - recorded) < ROUNDING


def stored_once(evidence: Evidence) -> Finding:
    """Compares deliveries, retrievals and rows. Mail of the deleted channel may stay in its mailbox.

    A client stores a message before it sends its next command, so every message that counts as retrieved was stored.
    """
    retrieved, stored = Counter(evidence.retrieved), Counter(evidence.stored)
    mailbox = evidence.deletion[0] if evidence.deletion else None
    due = Counter(key for key in evidence.delivered if key[0] != mailbox or stored[key])
    missing, surplus = due - stored, (stored - due) | (retrieved - due)
    detail = f"{len(evidence.delivered)} delivered, {stored.total()} stored"
    if left := len(evidence.delivered) - due.total():
        detail += f", {left} left in the mailbox of the deleted channel"
    for words, messages in (("; missing: ", missing), ("; too often: ", surplus)):
        detail += words * bool(messages) + ", ".join(f"{user}/{uid}" for user, uid in sorted(messages)[:5])
    return False if surplus else None if missing or not due else True, detail


def kept_apart(evidence: Evidence) -> Finding:
    started = sorted((run for run in evidence.runs if run.started_at), key=start)
    wrong = []
    for task in evidence.tasks.values():
        own = [run for run in started if run.task_id == task.id and run.kind != RunKind.PIECE]  # those run in parallel
        scheduled = [start(run) for run in own if run.kind == RunKind.SCHEDULED]
        if any(over(a) > start(b) for a, b in pairwise(own)):
            wrong.append(f"{task.name} of {task.subject} at once")
        if any(b - a < spacing(task) for a, b in pairwise(scheduled)):
            wrong.append(f"{task.name} of {task.subject} too close")
    return not wrong, "; ".join([f"{len(started)} starts of {len(evidence.tasks)} tasks", *wrong])


PROMISES: Mapping[str, Callable[[Evidence], Finding]] = {
    "a run stopped at its quota, and the next one resumed at its cursor": resumed,
    "a function that ignores its quota was killed": killed,
    "a worker was killed in the middle of a run, and nothing was lost": survived,
    "a channel deleted with SQL took its tasks with it": cascaded,
    "a job was dropped as too early": too_early,
    "a failure kept its output, and its retry succeeded": retried,
    "work was done in pieces, and the failed one is named": in_pieces,
    "ticker why explains each of them, and its arithmetic is right": explained,
    "every message was retrieved and stored once": stored_once,
    "no task ran twice at once, or again before interval - tolerance": kept_apart,
}


def over(run: RunRecord) -> datetime:
    """Returns the latest time at which the run can have ended. Its end may be recorded only after its box and grace."""
    return min((end for end in (run.ended_at, run.until) if end), default=datetime.max.replace(tzinfo=UTC))


def since(drop: RunRecord) -> timedelta:
    return drop.checked_at - drop.checked_last_run if drop.checked_at and drop.checked_last_run else timedelta()


def spacing(task: Task) -> timedelta:
    return timing.span(task.every_ms - task.tolerance_ms)
