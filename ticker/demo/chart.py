"""Draws the chart of the demo: one track per task, in colour on a terminal."""

import math
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from rich.text import Text

from ticker.model import Outcome
from ticker.read.tasks import RunRecord
from ticker.tasks.fields import Task

LEGEND = "- waits   = runs   q stops at its quota   ! fails or is killed   x is dropped"
WRONG = (Outcome.KILLED, Outcome.FAILED, Outcome.LOST, Outcome.TIMED_OUT)
MARKS = {Outcome.PARTIAL: "q", Outcome.DROPPED: "x"} | dict.fromkeys(WRONG, "!")
STYLES = {"-": "yellow", ".": "dim", "=": "green", "q": "bold cyan", "!": "bold red", "x": "bold magenta"}


def tracks(tasks: Collection[Task], runs: Sequence[RunRecord], zero: datetime, end: datetime, width: int) -> list[Text]:
    """Returns the scale, a line for each task from `zero` to `end`, and the legend.

    A cell is half a second, or longer if `width` is too small.
    """
    names = {task.id: f"{task.subject} {task.name.rpartition('.')[2]}" for task in tasks}
    margin = max(map(len, names.values())) + 2
    cell = timedelta(seconds=0.5)
    cell *= max(math.ceil((end - zero) / cell / (width - margin)), 1)
    count = max(math.ceil((end - zero) / cell), 1)
    scale = "".join(f"{clock(zero + number * cell, zero):10}" for number in range(0, count, 10))
    lines = [Text(f"{'':{margin}}{scale}"[:width].rstrip())]
    for task in tasks:
        cells = ["."] * count
        for begin, until, marks in _pieces(task, [run for run in runs if run.task_id == task.id], end):
            span = (begin, max(begin, until))  # a run within the tolerance may start before it is due
            first, last = (min(max(int((moment - zero) / cell), 0), count - 1) for moment in span)
            if first == last < count - 1 and cells[first] not in ".-":  # the cell is taken, so the next one is used
                first = last = first + 1
            cells[first : last + 1] = marks[0] * (last - first) + marks[1]
        lines.append(Text.assemble(f"{names[task.id]:{margin}}", *((sign, STYLES[sign]) for sign in cells)))
    return [*lines, Text(" ").join(Text(word, STYLES.get(word, "dim")) for word in LEGEND.split(" "))]


def _pieces(task: Task, runs: Sequence[RunRecord], end: datetime) -> list[tuple[datetime, datetime, str]]:
    """Returns the start, the end and two marks of each piece, in drawing order. The second mark is for its last cell."""
    pieces = [(at, end, "--") for at in task.waiting]
    pieces += [(run.occurrence, run.started_at or run.ended_at or end, "--") for run in runs if run.occurrence]
    for run in (run for run in runs if run.outcome or run.started_at):
        mark = MARKS.get(run.outcome, "=") if run.outcome else "="
        pieces.append((run.started_at or run.ended_at or end, run.ended_at or end, f"={mark}"))
    return pieces


def clock(at: datetime, zero: datetime) -> str:
    """Returns MM:SS since `zero`."""
    seconds = int((at - zero).total_seconds())
    return f"{seconds // 60:02}:{seconds % 60:02}"
