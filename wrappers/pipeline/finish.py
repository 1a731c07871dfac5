"""Writes the ends of runs: those that a horse left, those of dead horses, and those that a horse writes itself."""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, repeat

from ticker.errors import DatabaseUnavailable
from ticker.model import Outcome
from wrappers.pipeline import output
from wrappers.pipeline.context import log_end
from wrappers.pipeline.database import Database
from wrappers.pipeline.waiting_ends import WaitingEnds, record
from wrappers.sandbox import deaths, handoff, limits, shared_state
from wrappers.sandbox.handoff import STOPPED, End, PendingEnd
from wrappers.sandbox.shared_state import OpenRun

log = logging.getLogger("ticker.run")

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)  # seconds before each further attempt to write an end; the last one repeats
NO_HORSE = "its function did not start: the worker was stopped, or could not fork a process for it"
UNANSWERED = "the answer to its start never came, so its function did not run"


def write(database: Database, left: PendingEnd, *, until: float) -> bool:
    """Ends a run from its own process. Returns False if its end changes nothing.

    Tries again while the database is unavailable or the row is locked, until our worker takes the end. After the
    instant `until` of `limits.now`, raises DatabaseUnavailable, or RowLocked.
    """
    for pause in chain(PAUSES, repeat(PAUSES[-1])):
        try:
            return record(database, left)
        except DatabaseUnavailable as error:
            if handoff.leave(left):
                break
            log.warning(
                "the end of task=%s could not be written yet: %s", left.task_id, error, extra={"event": "end_delayed"}
            )
            if limits.now() > until:
                raise
            time.sleep(pause)
    return True


def take_left(database: Database, waiting: WaitingEnds) -> bool:
    """Writes the ends that a horse has left by now, and returns whether it left any. Those that cannot be written yet are
    kept in `waiting`.
    """
    texts = handoff.left()
    waiting.take(database, *texts)
    for text in texts:
        handoff.clear(text)
    return bool(texts)


def close_record(database: Database, waiting: WaitingEnds, cause: str, died_at: float | None = None) -> None:
    """Writes the ends that a dead horse left, and an end for each run that it left open.

    `died_at` is the instant of `limits.now` at which the death was observed; None means now.
    """
    died_at = limits.now() if died_at is None else died_at
    left = {(run.task_id, run.token) for run in map(PendingEnd.unpacked, handoff.left())}
    opened = [
        run
        for run in shared_state.open_runs()
        if (run.task_id, run.token) not in left and (run.task_id, run.token) not in waiting
    ]
    verdicts = [verdict(run, opened, cause, died_at) for run in opened]
    take_left(database, waiting)
    for run, end in zip(opened, verdicts, strict=True):
        _close(database, waiting, run, end)
    shared_state.clear_all()  # also if a run left an end and was killed right after


def verdict(run: OpenRun, opened: Sequence[OpenRun], cause: str, died_at: float) -> End:
    """Returns the end of a run that a dead horse left open, without its output.

    If several runs were active and the horse died at a hard limit, the cause is the run that blocked the event loop. If
    no run did, it is the one that reached its limit first. The others were interrupted. After any other death, all of
    them were interrupted, and their tasks are suspects. So was a start without an answer, but its task is no suspect.
    """
    begun = [other for other in opened if other.run_id]
    if not run.run_id:
        return End(Outcome.INTERRUPTED if begun else Outcome.LOST, UNANSWERED)
    if len(begun) == 1:
        return killed(run, cause)
    overdue = min(begun, key=lambda other: other.deadline)
    if died_at < overdue.deadline or not cause.startswith(deaths.AT_LIMIT):
        reason = f"its process ended while {len(begun)} runs were active in it: {cause}"
        return End(Outcome.INTERRUPTED, reason, suspect_count=0 if cause == deaths.BY_WORKER else len(begun))
    guilty = next((other for other in begun if kept_from_its_end(overdue, other)), overdue)
    if run != guilty:
        return End(Outcome.INTERRUPTED, f"its process was killed because of task {guilty.task_id}")
    if guilty == overdue:
        return killed(run, cause)
    return killed(run, f"it blocked the event loop, and was {cause}, the limit of task {overdue.task_id}")


def killed(run: OpenRun, cause: str) -> End:
    """Returns the end of a run that was killed. If somebody had stopped it, it was killed because it went on."""
    if shared_state.is_stopped(run.token, run.slot):
        return End(Outcome.INTERRUPTED, STOPPED)
    return End(Outcome.KILLED, cause)


def kept_from_its_end(overdue: OpenRun, other: OpenRun) -> bool:
    """Returns whether a step of the other run prevented the overdue run from ending in time.

    The step was still on the event loop when the process died. It had begun more than a second before the deadline, or
    before the soft limit, so that the overdue run could not be cancelled.
    """
    step = shared_state.on_loop()
    if step is None or step[0] != other.slot:
        return False
    return step[1] < max(overdue.soft_at, overdue.deadline - shared_state.BLOCKED)


def abandon(database: Database, waiting: WaitingEnds) -> None:
    """Ends the run, if any, of a job that gets no horse."""
    for run in shared_state.open_runs():
        _close(database, waiting, run, End(Outcome.LOST, NO_HORSE))
    shared_state.clear_all()


def _close(database: Database, waiting: WaitingEnds, run: OpenRun, end: End) -> None:
    printed, complained = output.texts(run.slot if run.deadline else None)
    end = replace(end, output=printed, error_output=complained, pid=shared_state.horse() or None)
    job_id, name, owner = shared_state.names_of(run)
    log_end(end.outcome, end.reason, run.task_id, (name, owner), run.run_id, job_id)
    waiting.take(database, PendingEnd(run.task_id, run.run_id, run.token, end).packed())
