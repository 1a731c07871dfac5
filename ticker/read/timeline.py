"""Draws a task over a span of time as SVG: when it was due, waited, ran and was dropped, and its next times.

    timeline.svg(timeline.of(db, task, now, since=timedelta(hours=1)))

`db` is any connection that `register` accepts. Nothing is written or locked.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ticker.db.steps import Steps, reads
from ticker.errors import BadInput
from ticker.model import NO_FAILURE, Outcome, Reason, RunKind
from ticker.read import explain, formatting, journal, tasks
from ticker.read import why as read_why
from ticker.read.entries import JournalEntry
from ticker.read.explain import time_of_day
from ticker.read.svg import Chart, Mark, Paint, label, marked, packed, picture, step
from ticker.read.tasks import RunRecord
from ticker.tasks import preview
from ticker.tasks.fields import Task

RUNS_AT_MOST = 500  # the newest; earlier runs are not drawn
NEXT_AT_MOST = 100
ROWS_AT_MOST = 6  # of one track; marks that need more rows share the last one
AHEAD = 4  # after now, the axis continues for a quarter of the span that it shows before now


@dataclass(frozen=True, slots=True)
class Timeline:
    """A task from `begin` to `end`, with `now` in between.

    `lines` are its runs, drops and waiting occurrences, oldest first, and `next` its next times before `end`. If there
    were more runs than are drawn, `begin` is where the drawn runs begin.
    """

    task: Task
    begin: datetime
    now: datetime
    end: datetime
    lines: tuple[JournalEntry, ...]
    next: tuple[datetime, ...]


# ---------------------------------------------------------------------------------------------------- what is drawn


@reads
def of(task: Task, now: datetime, *, since: timedelta) -> Steps[Timeline]:
    """Returns what became of the task's occurrences in the last `since`, and when it is due next."""
    runs, is_cut = yield from _runs(task, now - since)
    lines = yield from _lines(task, runs, now)
    begin, end = _begin(lines, now - since) if is_cut else now - since, now + since / AHEAD
    return Timeline(task, begin, now, end, tuple(lines), tuple(_ahead(task, now, end)))


def tracks(shown: Timeline) -> dict[str, list[tuple[int, Mark]]]:
    """Returns the marks of each track, by the track's name, each mark with its row. A mark's `words` are its whole
    line.

    Kinds: due, next, wait, run, bad, drop. `bad` is a run that failed or was killed.
    """
    due = [*_dues(shown), *(Mark("next", at, at, _words_ahead(at, shown.now)) for at in shown.next)]
    waits = [mark for line in shown.lines for mark in _wait(line, shown)]
    runs = [mark for line in shown.lines for mark in _outcome(line, shown)]
    return {"due": [(0, mark) for mark in due], "queue": _rows(waits), "worker": _rows(runs)}


def _runs(task: Task, since: datetime) -> Steps[tuple[list[RunRecord], bool]]:
    """Returns the runs that ended after `since` or have not ended, by id, and whether there were more."""
    keys = yield from journal.keys(journal.Wanted(task_id=task.id, events=False), since, RUNS_AT_MOST + 1)
    ended = yield from tasks.runs_by_id({"id": id_} for _, _, id_ in keys[-RUNS_AT_MOST:])
    newest = yield from read_why.last_occurrences(task.id, read_why.LOOKED_AT)
    by_id = {run.id: run for run in [*ended, *(yield from read_why.open_runs(newest))]}
    return [by_id[id_] for id_ in sorted(by_id)], len(keys) > RUNS_AT_MOST


def _lines(task: Task, runs: Sequence[RunRecord], now: datetime) -> Steps[list[JournalEntry]]:
    lines = yield from read_why.run_lines(task, runs, (yield from read_why.last_events(task.id)), now)
    return sorted([*lines, *read_why.waiting(task, now)], key=lambda line: line.at)


def _ahead(task: Task, now: datetime, end: datetime) -> list[datetime]:
    """Returns the task's next times, or none if something keeps it from being pushed."""
    if task.runs_next is None:
        return []
    try:
        times = preview.of_task(task, now, NEXT_AT_MOST).times
    except BadInput:  # a row edited by hand: the push reports the error
        times = (task.runs_next,)
    return [at for at in times if at <= end]


def _begin(lines: Sequence[JournalEntry], since: datetime) -> datetime:
    """Returns where the drawn runs begin: at the first line of an ended run, or at `since` if that is later."""
    return max(since, min(line.at for line in lines if line.run and line.run.ended_at))


# ------------------------------------------------------------------------------------------------------- the tracks


def _dues(shown: Timeline) -> Iterator[Mark]:
    """Yields the instants for which runs were meant. Pieces have no such instant."""
    for line in shown.lines:
        if line.run is not None and line.run.kind == RunKind.PIECE:
            continue
        due = explain.planned_for(line.run) if line.run else line.due or line.at
        ahead = due > shown.now
        if due >= shown.begin:
            words = _words_ahead(due, shown.now) if ahead else f"due at {time_of_day(due, shown.now)}"
            yield Mark("next" if ahead else "due", due, due, words)


def _wait(line: JournalEntry, shown: Timeline) -> Iterator[Mark]:
    """Yields the wait from the push, or the due time, until a worker took the job. A planned run does not wait yet."""
    run = line.run
    if run is None:
        yield Mark("wait", line.at, shown.now, _words(line, shown), goes_on=True)
    elif run.state != "planned" and not (run.outcome == Outcome.DROPPED and run.reason == Reason.MISSED):
        begin = run.pushed_at or explain.planned_for(run)
        taken = run.started_at or run.checked_at or run.ended_at
        until = taken or shown.now
        if begin < until and until >= shown.begin:
            words = f"waited {explain.span(until - begin)}, from {time_of_day(begin, shown.now)}"
            yield Mark("wait", begin, until, words, goes_on=taken is None)


def _outcome(line: JournalEntry, shown: Timeline) -> Iterator[Mark]:
    run = line.run
    if run is None:
        return
    if run.outcome == Outcome.DROPPED:
        yield Mark("drop", line.at, line.at, _words(line, shown))
    elif run.started_at is not None:
        kind = "run" if run.outcome is None or run.outcome in NO_FAILURE else "bad"
        yield Mark(kind, run.started_at, run.ended_at or shown.now, _words(line, shown), goes_on=run.ended_at is None)
    elif run.ended_at is not None:
        yield Mark("bad", run.ended_at, run.ended_at, _words(line, shown))


def _words(line: JournalEntry, shown: Timeline) -> str:
    return f"{time_of_day(line.at, shown.now)} {line.what}: {line.words}"


def _words_ahead(at: datetime, now: datetime) -> str:
    if at <= now:
        return f"due since {time_of_day(at, now)}, for {explain.span(now - at)}"
    return f"due at {time_of_day(at, now)}, in {explain.span(at - now)}"


def _rows(marks: Iterable[Mark]) -> list[tuple[int, Mark]]:
    """Returns the marks with their rows. Marks that overlap in time are in different rows, up to `ROWS_AT_MOST`."""
    placed = packed((mark.begin.timestamp(), mark.end.timestamp(), mark) for mark in marks)
    return [(min(row, ROWS_AT_MOST - 1), mark) for row, mark in placed]


# ------------------------------------------------------------------------------------------------------ the picture

LABELS_AT_MOST = 10

# The contrast is at least 3:1 on white and on black, so that one picture serves both. Text and axis have the page's colour.
PAINTS = {
    "due": Paint("line", 'class="tl-due" stroke="currentColor" stroke-width="2"', "due"),
    "wait": Paint("strip", 'class="tl-wait" fill="#7b8794"', "waits"),
    "run": Paint("bar", 'class="tl-run" fill="#2f8f46"', "runs"),
    "bad": Paint("bar", 'class="tl-bad" fill="#d6403a"', "goes wrong", sign="!"),
    "drop": Paint("cross", 'class="tl-drop" fill="none" stroke="#c2660c" stroke-width="3"', "is dropped"),
    "next": Paint("ring", 'class="tl-next" fill="none" stroke="#2b7fd4" stroke-width="2"', "due next"),
}


def svg(shown: Timeline) -> str:
    """Returns a picture without styles, for a page with a strict CSP. Pointing at a mark shows its line.

    Its classes are `tl-due`, `tl-next`, `tl-wait`, `tl-run`, `tl-bad`, `tl-drop`, `tl-axis` and `tl-text`.
    """
    every = step(shown.end - shown.begin, LABELS_AT_MOST)
    labels = [(at, label(at, every)) for at in marked(shown.begin, shown.end, every)]
    drawn = {
        track: sorted(placed, key=lambda each: each[1].kind in ("bad", "drop"))  # drawn last, on top
        for track, placed in tracks(shown).items()
    }
    now = (shown.now, f"now: {time_of_day(shown.now, shown.now)} UTC")
    return picture(Chart(shown.begin, shown.end, labels, drawn, now), PAINTS, title=title(shown))


def title(shown: Timeline) -> str:
    """Returns the task and its owner, the schedule in words, and the span of time."""
    task = shown.task
    name = f"{task.name}{f' of {task.owner}' if task.owner else ''}"
    span = f"from {time_of_day(shown.begin, shown.now)} to {time_of_day(shown.end, shown.now)} UTC"
    return f"{name}, {formatting.in_words(task) or formatting.schedule(task)}, {span}"
