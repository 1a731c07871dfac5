"""Draws what the demo recorded, and checks each promise.

A finding is True, False (contradicted) or None (not seen yet).
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from operator import attrgetter

from rich.text import Text

from ticker import JournalEntry, Outcome, Reason, RunRecord, Task
from ticker.engine import timing
from ticker.model import RunKind
from ticker.read.explain import span

LEGEND = "- waits   = runs   q stops at its quota   ! fails or is killed   x is dropped"
SIGNS = {"partial": "q", "dropped": "x", "killed": "!", "failed": "!", "lost": "!"}  # other outcomes have none
STYLES = {"-": "yellow", ".": "dim", "=": "green", "q": "bold cyan", "!": "bold red", "x": "bold magenta"}
ROUNDING = 0.01  # seconds: the error of four figures that are rounded to a millisecond
Finding = tuple[bool | None, str]
start = attrgetter("started_at")  # of a run that has started


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was recorded, oldest first. `stored` has an item for each row; `tasks` includes deleted ones."""

    tasks: Mapping[int, Task] = field(default_factory=dict)
    runs: Sequence[RunRecord] = ()
    deletion: tuple[str, int] | None = None  # the mailbox, and how many of its tasks were left
    victim: int | None = None  # the run in which a worker was killed
    delivered: Sequence[tuple[str, int]] = ()  # mailbox and UID, of the mailboxes that are polled to the end
    stored: Sequence[tuple[str, int]] = ()
    why: Sequence[JournalEntry] = ()  # the lines of `ticker why`


def chart(seen: Evidence, zero: datetime, end: datetime, width: int) -> list[Text]:
    """Returns the scale, a track for each task, and the legend. A cell is half a second, or longer to fit the width."""
    margin = max(len(task.subject) for task in seen.tasks.values()) + 2
    cell = timedelta(seconds=0.5)
    cell *= max(math.ceil((end - zero) / cell / (width - margin)), 1)
    count = max(math.ceil((end - zero) / cell), 1)
    scale = "".join(f"{clock(zero + number * cell, zero):10}" for number in range(0, count, 10))
    lines = [Text(f"{'':{margin}}{scale}"[:width].rstrip())]
    for task in seen.tasks.values():
        cells = ["."] * count
        runs = [run for run in seen.runs if run.task_id == task.id]
        taken = {run.id: run.started_at or run.ended_at or end for run in runs}
        pieces = [(at, end, "--") for at in task.waiting]
        pieces += [(run.occurrence, taken[run.id], "--") for run in runs if run.occurrence]
        pieces += [(taken[run.id], run.ended_at or end, "=" + SIGNS.get(run.outcome or "", "=")) for run in runs]
        for begin, until, signs in pieces:
            moments = (begin, max(begin, until))  # a run within the tolerance may start before it is due
            first, last = (min(max(int((moment - zero) / cell), 0), count - 1) for moment in moments)
            if first == last < count - 1 and cells[first] not in ".-":  # the cell is taken, so the next one is used
                first = last = first + 1
            cells[first : last + 1] = signs[0] * (last - first) + signs[1]
        lines.append(Text.assemble(f"{task.subject:{margin}}", *((sign, STYLES[sign]) for sign in cells)))
    return [*lines, Text(" ").join(Text(word, STYLES.get(word, "dim")) for word in LEGEND.split(" "))]


def clock(at: datetime, zero: datetime) -> str:
    """Returns MM:SS since `zero`."""
    seconds = int((at - zero).total_seconds())
    return f"{seconds // 60:02}:{seconds % 60:02}"


def resumed(seen: Evidence) -> Finding:
    return continued(seen, [run for run in seen.runs if run.outcome == Outcome.PARTIAL])


def survived(seen: Evidence) -> Finding:
    return continued(seen, [run for run in seen.runs if run.id == seen.victim])


def continued(seen: Evidence, runs: Sequence[RunRecord]) -> Finding:
    """Returns whether the next run with a result began where the run had stopped, or later if others came between."""
    for run in runs:
        later = [each for each in seen.runs if each.task_id == run.task_id and each.result and each.id > run.id]
        if following := min(later, key=start, default=None):
            after = following.result["after"]
            stop = run.result["up_to"] if run.result else after  # the record of a lost run does not show it
            subject = seen.tasks[run.task_id].subject
            return stop <= after, f"{subject}, up to message {stop}, then from message {after + 1}"
    return None, "not seen"


def killed(seen: Evidence) -> Finding:
    for run in seen.runs:
        box, grace = (timing.span(ms) for ms in (seen.tasks[run.task_id].box_ms, seen.tasks[run.task_id].grace_ms))
        if run.outcome == Outcome.KILLED and run.ended_at and (lasted := run.ended_at - start(run)) > box:
            subject = seen.tasks[run.task_id].subject
            return True, f"{subject}, {span(lasted)} after its start; its limit is {span(box + grace)}"
    return None, "not seen"


def cascaded(seen: Evidence) -> Finding:
    if seen.deletion is None:
        return None, "not seen"
    mailbox, left = seen.deletion
    gone = sum(run.reason == Reason.GONE and seen.tasks[run.task_id].subject == mailbox for run in seen.runs)
    detail = f"{mailbox}, tasks left: {left}, waiting jobs that ended as gone: {gone}"
    return False if left else gone > 0 or None, detail


def too_early(seen: Evidence) -> Finding:
    for line in seen.why:
        if line.run and line.run.reason == Reason.TOO_EARLY:
            after, early, every, tolerance = map(float, re.findall(r"([\d.]+) s ", line.words))
            detail = f"{after} s after the last start; the minimum is {every - tolerance} s"
            return abs(after + early - every + tolerance) < ROUNDING, detail
    return None, "not seen"


def stored_once(seen: Evidence) -> Finding:
    delivered, stored = Counter(seen.delivered), Counter(seen.stored)
    missing, surplus = (delivered - stored).total(), (stored - delivered).total()
    detail = f"{delivered.total()} delivered, {missing} missing, {surplus} stored too often"
    return False if surplus else None if missing or not delivered else True, detail


def kept_apart(seen: Evidence) -> Finding:
    """Compares the starts. As box + grace <= interval - tolerance, a run has ended when the next one may start."""
    started = sorted((run for run in seen.runs if run.started_at and run.kind == RunKind.SCHEDULED), key=start)
    wrong = []
    for task in seen.tasks.values():
        spacing = timing.span(task.every_ms - task.tolerance_ms)
        for one, other in pairwise(run for run in started if run.task_id == task.id):
            if start(other) < start(one) + spacing:
                wrong.append(f"{task.subject}: {start(other) - start(one)} after the last start")
    return not wrong, "; ".join([f"{len(started)} starts of {len(seen.tasks)} tasks", *wrong])


PROMISES: Mapping[str, Callable[[Evidence], Finding]] = {
    "a run stopped at its quota, and the next one resumed at its cursor": resumed,
    "a function that ignores its quota was killed": killed,
    "a worker was killed in the middle of a run, and nothing was lost": survived,
    "a channel deleted with SQL took its task with it": cascaded,
    "a job was dropped as too early, and ticker why shows the numbers": too_early,
    "every message was stored once": stored_once,
    "no task ran twice at once, or again before interval - tolerance": kept_apart,
}
