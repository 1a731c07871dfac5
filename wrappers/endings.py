"""Writes the ends of runs: of a horse that left one, of one that could not, and a stock worker's horse its own."""

import logging
import time
from itertools import chain, repeat

import psycopg

from ticker import settings
from ticker.connections import first_line
from ticker.errors import DatabaseUnavailable, RowLocked, TickerError
from ticker.task import GOOD, Outcome
from wrappers import ends, limits, output, page
from wrappers.database import Database
from wrappers.ends import End, Left

log = logging.getLogger("ticker.run")

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)  # seconds before each further attempt to write an end; the last one repeats
DIED = "its process died before the end was recorded: the hard limit, a crash or a kill"
NO_HORSE = "its function did not begin: the worker was stopped, or could not make a process for it"
UNANSWERED = "the answer to its start never came, so its function did not run"


_locked: list[Left] = []
"""Ends of runs whose tasks somebody else held: they come behind the others."""


def write(
    database: Database, task_id: int, token: str, end: End, *, until: float, wake: bool, waits_for_row: bool = True
) -> bool:
    """Ends the run of this token; False where it does not hold its task any more, and nothing was written.

    A database that is away is asked again `until` then, an instant of `limits.now`; after that DatabaseUnavailable. So is a
    locked row, or else RowLocked comes at once. With `wake` the tickers hear at once of an end that is more than an end.
    """
    texts = {"output": end.output, "error_output": end.error_output}
    for pause in chain(PAUSES, repeat(PAUSES[-1])):
        try:
            if end.pieces is not None:
                ended = database.hand_out(task_id, token, end.pieces, end.made, **texts)
            else:
                ended = database.finish(
                    task_id, token, end.outcome, reason=end.reason, result=end.result, traceback=end.traceback, **texts
                )
            break
        except DatabaseUnavailable as error:
            log.warning("the end of task=%s could not be written yet: %s", task_id, error)
            if limits.now() > until or (isinstance(error, RowLocked) and not waits_for_row):
                raise
            time.sleep(pause)
    if not ended:
        log.warning("hold lost task=%s: its end (%s) changed nothing", task_id, end.outcome)
    elif wake and _is_news(end):
        database.execute("wake_up", schema=database.schema)
    return ended


def close_left(database: Database, patiently: bool = True) -> bool:
    """Writes the ends that a horse left, those of locked tasks behind the others; False where the database is away, and the
    sweep does it later."""
    while left := ends.left():
        for run in left:
            if not _passed(database, run, patiently):
                return False
            ends.clear()
    late, _locked[:] = [*_locked], []
    return all(_passed(database, run, patiently) for run in late)


def _passed(database: Database, run: Left, patiently: bool) -> bool:
    """Writes one end, and puts it off where its row is locked while the run might live; False where the database is away."""
    task_id, token, until, end = run
    try:
        write(database, task_id, token, end, until=until if patiently else 0, wake=_wakes(end), waits_for_row=False)
    except RowLocked:
        if patiently and limits.now() < until:
            _locked.append(run)
    except DatabaseUnavailable as error:
        _warn(task_id, end, error)
        return False
    except (TickerError, psycopg.Error) as error:
        _warn(task_id, end, error)
    return True


def close_record(database: Database, patiently: bool = True) -> None:
    """Behind a dead horse: writes the ends that it left, and one for a run that it left open."""
    left, open_run = [*_locked, *ends.left()], page.read()
    is_closed = close_left(database, patiently)
    while _locked and is_closed:
        is_closed = close_left(database, patiently)
    if not is_closed or open_run is None or any(run[:2] == open_run for run in left):
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
    end = End(outcome, reason, output=printed, error_output=complained)
    try:
        if write(database, task_id, token, end, until=0, wake=_wakes(end)):
            log.warning("%s task=%s: %s", outcome, task_id, reason)
    except (TickerError, psycopg.Error) as error:
        _warn(task_id, end, error)
    else:
        page.clear()


def _warn(task_id: int, end: End, error: Exception) -> None:
    log.warning("%s task=%s: %s; not recorded yet: %s", end.outcome, task_id, end.reason, first_line(error))


def _is_news(end: End) -> bool:
    """Whether it gives a tick more to do."""
    return end.pieces is not None or end.outcome not in GOOD


def _wakes(end: End) -> bool:
    return _is_news(end) and settings.from_environment().wake
