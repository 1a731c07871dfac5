"""Writes the ends of runs: those that a horse left, those of dead horses, and those that a horse writes itself."""

import logging
import time
from collections.abc import Sequence
from itertools import chain, repeat

from ticker.errors import DatabaseUnavailable
from ticker.model import Outcome
from wrappers.pipeline import output
from wrappers.pipeline.database import Database
from wrappers.pipeline.waiting_ends import WaitingEnds, record
from wrappers.sandbox import handoff, limits, shared_state
from wrappers.sandbox.handoff import End, PendingEnd
from wrappers.sandbox.shared_state import OpenRun

log = logging.getLogger("ticker.run")

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)  # seconds before each further attempt to write an end; the last one repeats
NO_HORSE = "its function did not start: the worker was stopped, or could not fork a process for it"
UNANSWERED = "the answer to its start never came, so its function did not run"


def write(database: Database, left: PendingEnd, *, until: float, wake: bool) -> bool:
    """Ends a run from its own process. Returns False if its end changes nothing.

    Tries again while the database is unavailable or the row is locked, until our worker takes the end. After the instant
    `until` of `limits.now`, raises DatabaseUnavailable, or RowLocked.
    """
    for pause in chain(PAUSES, repeat(PAUSES[-1])):
        try:
            return record(database, left, wake=wake)
        except DatabaseUnavailable as error:
            if handoff.leave(left):
                break
            log.warning("the end of task=%s could not be written yet: %s", left.task_id, error)
            if limits.now() > until:
                raise
            time.sleep(pause)
    return True


def take_left(database: Database, waiting: WaitingEnds) -> None:
    """Writes the ends that a horse left. Those that cannot be written yet are kept in `waiting`."""
    while texts := handoff.left():
        waiting.take(database, *texts)
        for text in texts:
            handoff.clear(text)


def close_record(database: Database, waiting: WaitingEnds, cause: str) -> None:
    """Writes the ends that a dead horse left, and an end for each run that it left open."""
    left = {(run.task_id, run.token) for run in map(PendingEnd.unpacked, handoff.left())}
    take_left(database, waiting)
    opened = shared_state.open_runs()
    for run in opened:
        if (run.task_id, run.token) not in left and (run.task_id, run.token) not in waiting:
            _close(database, waiting, run, *verdict(run, opened, cause))
    shared_state.clear_all()  # also if a run left an end and was killed right after


def verdict(run: OpenRun, opened: Sequence[OpenRun], cause: str) -> tuple[Outcome, str]:
    """Returns the outcome and the reason of a run that a dead horse left open.

    If several runs were at work, the one that blocked the event loop is the cause, or else the one that reached its hard limit
    first. The others were interrupted.
    """
    if not run.run_id:
        return Outcome.LOST, UNANSWERED
    begun = [other for other in opened if other.run_id]
    if len(begun) == 1:
        return Outcome.KILLED, cause
    overdue = min(begun, key=lambda other: other.deadline)
    if limits.now() < overdue.deadline:
        return Outcome.INTERRUPTED, f"its process, in which {len(begun)} runs were at work, ended: {cause}"
    guilty = next((other for other in begun if other.slot == blocking_slot()), overdue)
    if run == guilty:
        return (
            Outcome.KILLED,
            cause if guilty == overdue else f"it blocked the event loop, and was {cause} of task {overdue.task_id}",
        )
    return Outcome.INTERRUPTED, f"its process was killed because of task {guilty.task_id}"


def blocking_slot() -> int | None:
    """Returns the slot of the run that blocked the event loop when the process died."""
    step = shared_state.on_loop()
    return step[0] if step and limits.now() - step[1] > shared_state.BLOCKED else None


def abandon(database: Database, waiting: WaitingEnds) -> None:
    """Ends the run, if any, of a job that gets no horse."""
    for run in shared_state.open_runs():
        _close(database, waiting, run, Outcome.LOST, NO_HORSE)
    shared_state.clear_all()


def _close(database: Database, waiting: WaitingEnds, run: OpenRun, outcome: Outcome, reason: str) -> None:
    printed, complained = output.texts(run.slot if run.deadline else None)
    end = End(outcome, reason, output=printed, error_output=complained, pid=shared_state.horse() or None)
    log.warning("%s task=%s: %s", outcome, run.task_id, reason)
    waiting.take(database, PendingEnd(run.task_id, run.run_id, run.token, end).packed())
