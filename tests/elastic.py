"""Elastic intervals in Python: the rules `pace`, `paced`, `longest_again`, `kept_pace` and `resumed` of ticker/db/sql.

The double, the simulation and `python -m tests.bench elastic` use them. The state machine in `tests/db/test_state_machine.py`
holds them to the statements, row by row.
"""

from datetime import datetime
from typing import Any, Protocol

from ticker.engine import timing
from ticker.model import Kind, Outcome, RunKind

WORK = (Outcome.SUCCEEDED, Outcome.PARTIAL)
LONGEST_AGAIN = 86_400_000  # of a fixed interval


class Row(Protocol):
    """What the rules read of a task's row: an interval task without a phase and without bounds."""

    @property
    def every_ms(self) -> int: ...
    @property
    def every_most_ms(self) -> int | None: ...
    @property
    def pace_ms(self) -> int | None: ...
    @property
    def tolerance_ms(self) -> int: ...
    @property
    def next_run(self) -> datetime | None: ...
    @property
    def last_run(self) -> datetime | None: ...
    @property
    def waiting(self) -> tuple[datetime, ...]: ...
    @property
    def again_at(self) -> datetime | None: ...
    @property
    def last_occurrence(self) -> datetime | None: ...


def pace(row: Row, outcome: Outcome, kind: RunKind = RunKind.SCHEDULED) -> int | None:
    """Returns the interval in force after a run, or None for the lower bound."""
    if row.every_most_ms is None or outcome in WORK:
        return None
    if outcome is Outcome.NOTHING_TO_DO and kind is not RunKind.MANUAL:
        return min(2 * (row.pace_ms or row.every_ms), row.every_most_ms)
    return row.pace_ms


def paced(row: Row, new: int | None, now: datetime) -> datetime | None:
    """Returns when the task is due after its interval in force has become `new`, at the end of a run or at a call."""
    if row.every_most_ms is None or row.next_run is None or is_asked(row):
        return row.next_run
    until = (row.next_run - now) // timing.span(1)
    longer = max((new or row.every_ms) - (row.pace_ms or row.every_ms), min(0, -until))
    if not longer:
        return row.next_run
    moved = row.next_run + timing.span(longer)
    return moved if row.last_run is None else max(moved, soonest_due(row.last_run, row.every_ms, row.tolerance_ms))


def next_is_pushed(row: Row) -> bool:
    """Returns whether an occurrence between the last one that started and the next one is in the queue."""
    waiting = [waits for waits in row.waiting if row.next_run is not None and waits < row.next_run]
    return any(row.last_occurrence is None or waits > row.last_occurrence for waits in waiting)


def is_asked(row: Row) -> bool:
    """Returns whether a run asked for this due time."""
    return row.again_at is not None and row.next_run == row.again_at


def longest_again(row: Row) -> int:
    return row.every_most_ms or LONGEST_AGAIN


def kept_pace(now: int | None, every: int, most: int | None) -> int | None:
    """Returns the interval in force within new bounds."""
    return min(now, most) if most is not None and now is not None and now > every else None


def due_when_resumed(row: Any, now: datetime) -> datetime | None:
    """As the rule `resumed`: a time that has passed is kept. Otherwise, an interval task is due as soon as it may run."""
    if row.kind is not Kind.INTERVAL or row.next_run is None:
        return row.next_run  # type: ignore[no-any-return]
    spaced = row.last_run and soonest_due(row.last_run, row.every_ms, row.tolerance_ms)
    soonest = max(now, spaced or now)
    if max(row.next_run, soonest) <= now:
        return row.next_run  # type: ignore[no-any-return]
    return min(row.next_run, soonest) if row.next_run > now else soonest


def soonest_due(last_run: datetime, every: int, tolerance: int) -> datetime:
    """Returns the first time at which an interval task is due after its last start, as the rule of that name."""
    ahead = timing.horizon(timing.LOOK_AHEAD, tolerance)
    return timing.earliest_start(last_run, every, tolerance) + timing.span(ahead)
