"""Keeps ends that cannot be written yet in the memory of the worker, which continues with other jobs."""

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

import psycopg

from ticker.db.connections import first_line
from ticker.errors import RowLocked, TickerError
from ticker.model import GOOD, Outcome
from wrappers.pipeline.database import LOCK_PAUSE, Database
from wrappers.sandbox import limits
from wrappers.sandbox.handoff import End, PendingEnd

log = logging.getLogger("ticker.run")

AT_MOST = 64 * 2**20  # bytes of ends; above that the oldest is given up
LONGEST_PAUSE = 5.0  # seconds between two attempts
FIRST_PAUSE = 0.25
PATIENCE = 600.0  # seconds for which a worker still tries when it ends by itself
LAST_WORD = 10.0  # seconds for which it tries after a signal to stop
NOT_MADE = "its pieces of work could not be recorded in time, so they were not made"


class WaitingEnds:
    """Tries each end until it is written, known to change nothing, or given up."""

    def __init__(self) -> None:
        self._ends: dict[
            tuple[int, str], tuple[float, bytes]
        ] = {}  # by task and token: time of the end, packed `PendingEnd`
        self._size = 0
        self._pause = self._again_at = 0.0
        self._is_away = False  # whether the server is unavailable; if so, new ends are not tried at once
        self._has_failed = False  # the last attempt

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def is_delayed(self) -> bool:
        """Whether ends wait because an attempt has failed. An end that is being written for the first time is not
        delayed.
        """
        return bool(self._ends) and self._has_failed

    def __contains__(self, run: tuple[int, str]) -> bool:
        return run in self._ends

    def take(self, database: Database, *texts: bytes) -> None:
        """Tries to write each packed `PendingEnd` at once, unless the server is known to be away. Keeps those that
        fail.
        """
        taken = []
        for text in texts:
            left = PendingEnd.unpacked(text)
            run = left.task_id, left.token
            if run not in self._ends:  # if it is there, the write was interrupted and is repeated
                self._ends[run] = left.end.at, text
                self._size += len(text)
                taken.append(run)
        while self._size > AT_MOST:
            self._give_up(min(self._ends, key=lambda run: self._ends[run][0]), "64 MB of ends wait already")
        locked = set[tuple[int, str]]()
        if len(taken) > 1 and not self._waits():
            locked = self._try_together(database, [run for run in taken if run in self._ends])
        for run in taken:
            if run in self._ends and run not in locked and not self._waits():
                self._try(database, run)

    def _waits(self) -> bool:
        return self._is_away and limits.now() < self._again_at

    def _try_together(self, database: Database, runs: Sequence[tuple[int, str]]) -> set[tuple[int, str]]:
        """Writes the ends without pieces in one statement. Returns those whose rows are locked, which are tried again
        soon.
        """
        ends = [left for run in runs if (left := PendingEnd.unpacked(self._ends[run][1])).end.pieces is None]
        try:
            for left in ends:
                close_key(database, left)
            written = database.finish_all(ends)
            if any(_is_news(left.end) for left in ends):
                database.wake_tickers()
        except (TickerError, psycopg.Error) as error:
            log.warning(
                "%s ends could not be written together: %s",
                len(ends),
                first_line(error),
                extra={"event": "end_delayed"},
            )
            return set()
        locked = set[tuple[int, str]]()
        for left, is_written in zip(ends, written, strict=True):
            run = left.task_id, left.token
            if is_written:
                self._drop(run)
            elif is_written is None:
                locked.add(run)
        if locked:
            self._again_at = max(self._again_at, limits.now() + LOCK_PAUSE)
        return locked

    def server_answered(self) -> None:
        """Allows the next attempts at once if the server was unavailable. The pause after a locked row is kept."""
        if self._is_away:
            self._pause = self._again_at = 0.0
            self._is_away = False

    def write_of(self, database: Database, tasks: Collection[int]) -> None:
        """Tries the ends of these tasks despite the pause, because their next starts would fence them."""
        for run in [*self._ends]:
            if run[0] in tasks and not self._try(database, run) and self._is_away:
                return

    def write(self, database: Database, *, at_once: bool = False) -> None:
        """Tries all waiting ends until one fails. The next call, after a pause, tries that one last.

        With `at_once`, there is no pause, and a locked row does not keep other ends from being tried.
        """
        if limits.now() < self._again_at and not at_once:
            return
        for run in [*self._ends]:
            if not self._try(database, run):
                self._ends[run] = self._ends.pop(run)
                if self._is_away or not at_once:
                    return

    def drain(self, database: Database, until: float) -> None:
        """Tries all ends, at least once, until the instant `until` of `limits.now`. Gives up the rest."""
        while self._ends:
            self.write(database, at_once=True)
            if limits.now() >= until:
                break
            time.sleep(FIRST_PAUSE if self._ends else 0)
        for run in [*self._ends]:
            self._give_up(run, "the worker is ending")

    def _try(self, database: Database, run: tuple[int, str]) -> bool:
        """Tries to write an end. Returns whether it no longer waits."""
        left = PendingEnd.unpacked(self._ends[run][1])
        try:
            record(database, left)
        except TickerError as error:
            self._is_away, self._has_failed = not isinstance(error, RowLocked), True
            self._pause = min(2 * self._pause or FIRST_PAUSE, LONGEST_PAUSE)
            self._again_at = limits.now() + self._pause
            log.warning(
                "the end of task=%s (%s) is not recorded yet: %s",
                left.task_id,
                left.end.outcome,
                error,
                extra={"event": "end_delayed"},
            )
            return False
        except psycopg.Error as error:
            self._give_up(run, first_line(error))
        self._pause, self._is_away, self._has_failed = 0.0, False, False
        self._drop(run)
        return True

    def _give_up(self, run: tuple[int, str], why: str) -> None:
        end = PendingEnd.unpacked(self._ends[run][1]).end
        log.warning(
            "gave up recording the end of task=%s (%s): %s",
            run[0],
            end.outcome,
            why,
            extra={"event": "end_given_up"},
        )
        self._drop(run)

    def _drop(self, run: tuple[int, str]) -> None:
        _, text = self._ends.pop(run, (0.0, b""))
        self._size -= len(text)


def record(database: Database, left: PendingEnd) -> bool:
    """Writes an end, and wakes the tickers if it gives them work. Returns False if it changes nothing."""
    close_key(database, left)
    has_pieces = left.end.pieces is not None
    recorded = has_pieces and database.hand_out(left)
    if not recorded:
        if has_pieces:
            left = left._replace(end=replace(left.end, outcome=Outcome.FAILED, reason=NOT_MADE))
        recorded = database.finish(left)
    if not recorded and not left.run_id:
        log.warning(
            "no start task=%s: the start that was not answered is not in the tables; nothing ran",
            left.task_id,
            extra={"event": "start_missing"},
        )
    elif (recorded or _was_recorded(database, left)) and _is_news(left.end):
        database.wake_tickers()
    return recorded


def close_key(database: Database, left: PendingEnd) -> None:
    """Holds off the key that the run named, if any. A repetition changes nothing."""
    if left.end.closed_key:
        database.close_key(left.end.closed_key, left.run_id, left.end.closed_ms, at=left.end.at)


def _was_recorded(database: Database, left: PendingEnd) -> bool:
    """Returns whether an earlier attempt recorded this end, and logs why the end changes nothing now."""
    recorded = database.outcome_of(left.run_id, left.token)
    if recorded == left.end.outcome or (left.end.pieces is not None and recorded == "processing"):
        log.info(
            "end already recorded task=%s run=%s: %s",
            left.task_id,
            left.run_id,
            recorded,
            extra={"event": "end_repeated"},
        )
        return True
    log.warning(
        "hold lost task=%s run=%s: its end (%s) changed nothing; its record says %s",
        left.task_id, left.run_id, left.end.outcome, recorded or "nothing", extra={"event": "hold_lost"},
    )  # fmt: skip
    return False


def _is_news(end: End) -> bool:
    """Returns whether the end creates work for a tick."""
    return end.pieces is not None or end.outcome not in GOOD | {Outcome.SLOWED_DOWN}
