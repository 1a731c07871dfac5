"""Writes the ends of runs: those that a horse left, those of dead horses, and those that a horse writes itself."""

import logging
import time
from itertools import chain, repeat

from ticker.errors import DatabaseUnavailable
from ticker.model import Outcome
from wrappers.pipeline import output
from wrappers.pipeline.database import Database
from wrappers.pipeline.waiting_ends import WaitingEnds, record
from wrappers.sandbox import handoff, limits, shared_state
from wrappers.sandbox.handoff import End, PendingEnd

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
        for text in texts:
            waiting.take(database, text)
            handoff.clear()


def close_record(database: Database, waiting: WaitingEnds, cause: str) -> None:
    """Writes the ends that a dead horse left, and an end for the run that it left open, if any."""
    left = [(run.task_id, run.token) for run in map(PendingEnd.unpacked, handoff.left())]
    take_left(database, waiting)
    open_run = shared_state.read()
    if open_run is not None and open_run not in left and open_run not in waiting:
        outcome, reason = (Outcome.KILLED, cause) if shared_state.run_id() else (Outcome.LOST, UNANSWERED)
        _close_open(database, waiting, outcome, reason)
    shared_state.clear()  # also if the run left an end and was killed right after


def abandon(database: Database, waiting: WaitingEnds) -> None:
    """Ends the run, if any, of a job that gets no horse."""
    _close_open(database, waiting, Outcome.LOST, NO_HORSE)


def _close_open(database: Database, waiting: WaitingEnds, outcome: Outcome, reason: str) -> None:
    open_run = shared_state.read()
    if open_run is None:
        return
    task_id, token = open_run
    printed, complained = output.texts()
    end = End(outcome, reason, output=printed, error_output=complained, pid=shared_state.horse() or None)
    log.warning("%s task=%s: %s", outcome, task_id, reason)
    waiting.take(database, PendingEnd(task_id, shared_state.run_id(), token, end).packed())
    shared_state.clear()
