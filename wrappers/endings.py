"""Writes the ends of runs: of a horse that left one, of one that could not, and a stock worker's horse its own."""

import logging
import time
from itertools import chain, repeat

import psycopg

from ticker import settings
from ticker.connections import first_line
from ticker.errors import DatabaseUnavailable, TickerError
from ticker.task import GOOD, Outcome
from wrappers import ends, limits, output, page
from wrappers.database import Database
from wrappers.ends import End

log = logging.getLogger("ticker.run")

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)  # seconds before each further attempt to write an end; the last one repeats
DIED = "its process died before the end was recorded: the hard limit, a crash or a kill"
NO_HORSE = "its function did not begin: the worker was stopped, or could not make a process for it"
UNANSWERED = "the answer to its start never came, so its function did not run"


def write(database: Database, task_id: int, token: str, end: End, *, until: float, wake: bool) -> bool:
    """Ends the run of this token; False where it does not hold its task any more, and nothing was written.

    A database that is away is asked again `until` then, an instant of `limits.now`; after that DatabaseUnavailable. With
    `wake` the tickers hear at once of an end that is more than an end.
    """
    texts = {"output": end.output, "error_output": end.error_output}
    for pause in chain(PAUSES, repeat(PAUSES[-1])):
        try:
            if end.pieces is not None:
                ended = database.hand_out(task_id, token, end.pieces, **texts)
            else:
                ended = database.finish(
                    task_id, token, end.outcome, reason=end.reason, result=end.result, traceback=end.traceback, **texts
                )
            break
        except DatabaseUnavailable as error:
            log.warning("the end of task=%s could not be written yet: %s", task_id, error)
            if limits.now() > until:
                raise
            time.sleep(pause)
    if not ended:
        log.warning("hold lost task=%s: its end (%s) changed nothing", task_id, end.outcome)
    elif wake and (end.pieces is not None or end.outcome not in GOOD):
        database.execute("wake_up", schema=database.schema)  # there is more for a tick to do
    return ended


def close_left(database: Database, patiently: bool = True) -> bool:
    """Writes the ends that a horse left; False where one could not be written, and the sweep does it later."""
    while left := ends.left():
        for task_id, token, until, end in left:
            if _tried(database, task_id, token, end, until if patiently else 0) is None:
                return False
            ends.clear()
    return True


def close_record(database: Database, patiently: bool = True) -> None:
    """Behind a dead horse: writes the ends that it left, and one for a run that it left open."""
    left, open_run = ends.left(), page.read()
    if not close_left(database, patiently) or open_run is None or any(run[:2] == open_run for run in left):
        return
    outcome, reason = (Outcome.KILLED, DIED) if page.is_answered() else (Outcome.LOST, UNANSWERED)
    _close_open(database, outcome, reason)


def abandon(database: Database) -> None:
    """For a job that gets no horse, whatever was answered to it: its run, if it has one, is over."""
    _close_open(database, Outcome.LOST, NO_HORSE)


def _close_open(database: Database, outcome: Outcome, reason: str) -> None:
    open_run = page.read()
    if open_run is None:
        return
    task_id, token = open_run
    printed, complained = output.texts()
    ended = _tried(database, task_id, token, End(outcome, reason, output=printed, error_output=complained), 0)
    if ended:
        log.warning("%s task=%s: %s", outcome, task_id, reason)
    if ended is not None:
        page.clear()


def _tried(database: Database, task_id: int, token: str, end: End, until: float) -> bool | None:
    """`write`, for a worker, which goes on whatever error there is: None."""
    try:
        wake = end.outcome not in GOOD and settings.from_environment().wake
        return write(database, task_id, token, end, until=until, wake=wake)
    except (TickerError, psycopg.Error) as error:
        log.warning("%s task=%s: %s; not recorded yet: %s", end.outcome, task_id, end.reason, first_line(error))
        return None
