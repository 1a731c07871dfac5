"""A task's history as a timing table, in the manner of the tables that the rules were specified with, and as lanes."""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from ticker.demo.watch import Push
from ticker.engine import timing
from ticker.model import Outcome, Task
from ticker.read.tasks import RunRecord

CELLS_AT_MOST = 66
LEGEND = "- waits in the queue   = runs   q stops at its quota   ! is killed   x is dropped"
MARKS = {Outcome.PARTIAL: "q", Outcome.KILLED: "!", Outcome.DROPPED: "x"}
ENDINGS = {Outcome.PARTIAL: "stops at its quota", Outcome.KILLED: "is killed", Outcome.TIMED_OUT: "is interrupted",
           Outcome.FAILED: "fails", Outcome.LOST: "is lost"}  # fmt: skip


class Row(NamedTuple):
    """One event; next_run and last_run as they are after it."""

    at: datetime
    event: str
    next_run: datetime | None
    last_run: datetime | None


def history(registered: Task, pushes: Iterable[Push], runs: Iterable[RunRecord]) -> list[Row]:
    """All that happened to the task. Its occurrences are called A1, A2 and so on, its planned runs "a manual run"."""
    own_pushes = [push for push in pushes if push.task_id == registered.id]
    own_runs = [run for run in runs if run.task_id == registered.id]
    occurrences = sorted({p.occurrence for p in own_pushes} | {r.occurrence for r in own_runs if r.occurrence})
    names = {occurrence: f"A{number}" for number, occurrence in enumerate(occurrences, start=1)}
    events = [Row(push.at, f"tick enqueues {names[push.occurrence]}", push.next_run, None) for push in own_pushes]
    for run in own_runs:
        events += _of_run(run, names[run.occurrence] if run.occurrence else f"a {run.kind} run")
    rows = [Row(registered.created_at, "initial state", registered.next_run, registered.last_run)]
    for at, event, next_run, last_run in sorted(events, key=lambda row: row.at):
        rows.append(Row(at, event, next_run or rows[-1].next_run, last_run or rows[-1].last_run))
    return rows


def table(rows: Sequence[Row], zero: datetime) -> list[str]:
    """The rows as text; all times are minutes and seconds since `zero`."""
    cells = [["MM:SS", "event", "next_run", "last_run"]]
    cells += [[clock(row.at, zero), row.event, clock(row.next_run, zero), clock(row.last_run, zero)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return [lines[0], "-|-".join("-" * width for width in widths), *lines[1:]]


def clock(at: datetime | None, zero: datetime) -> str:
    """MM:SS since `zero`, `-` for never."""
    if at is None:
        return "-"
    seconds = int((at - zero).total_seconds())
    return f"{seconds // 60:02}:{seconds % 60:02}"


def lanes(
    tasks: Iterable[Task], pushes: Sequence[Push], runs: Sequence[RunRecord], zero: datetime, end: datetime
) -> list[str]:
    """One line per task, from `zero` to `end`; a cell is half a second, or more if there are too many."""
    total = (end - zero) / timedelta(milliseconds=1)
    cell = timing.span(500 * math.ceil(total / 500 / CELLS_AT_MOST))
    count = math.ceil((end - zero) / cell)
    names = {task.id: f"{task.subject} {task.name}" for task in tasks}
    width = max(map(len, names.values()))
    scale = "".join(f"{clock(zero + number * cell, zero):10}" for number in range(0, count, 10))
    lines = [f"{'':{width}}  {scale.rstrip()}"]
    for task_id, name in names.items():
        pieces = _pieces(task_id, pushes, runs, end)
        drawn = [(int((begin - zero) / cell), int((until - zero) / cell), marks) for begin, until, marks in pieces]
        lines.append(f"{name:{width}}  {_lane(drawn, count)}")
    return [*lines, LEGEND]


def _lane(pieces: Iterable[tuple[int, int, str]], count: int) -> str:
    """Each piece from its first to its last cell; one that is all in a cell where another ended stands behind it."""
    cells = ["."] * count
    for begin, until, marks in pieces:
        first, last = max(begin, 0), min(until, count - 1)
        if first == last < count - 1 and cells[first] not in ".-":
            first = last = first + 1
        cells[first : last + 1] = marks[0] * (last - first) + marks[1]
    return "".join(cells)


def _of_run(run: RunRecord, name: str) -> list[Row]:
    rows = []
    if run.started_at:
        rows.append(Row(run.started_at, f"{name} begins", None, run.started_at if run.occurrence else None))
    if run.ended_at:
        rows.append(Row(run.ended_at, f"{name} {_ending(run)}", None, None))
    return rows


def _ending(run: RunRecord) -> str:
    if run.outcome == Outcome.DROPPED:
        return f"is dropped: {run.reason}"
    return ENDINGS.get(run.outcome, "ends") if run.outcome else "runs"


def _pieces(
    task_id: int, pushes: Sequence[Push], runs: Sequence[RunRecord], end: datetime
) -> list[tuple[datetime, datetime, str]]:
    """From, until, and the two marks of a lane's pieces in the order of drawing: all cells but the last, the last."""
    own = [run for run in runs if run.task_id == task_id]
    left = {run.occurrence: run.started_at or run.ended_at or end for run in own}
    waits = [(push.at, left.get(push.occurrence, end), "--") for push in pushes if push.task_id == task_id]
    ran = [(run.started_at or run.ended_at or end, run.ended_at or end, "=" + _mark(run)) for run in own]
    return [*waits, *ran]


def _mark(run: RunRecord) -> str:
    return MARKS.get(run.outcome, "=") if run.outcome else "="
