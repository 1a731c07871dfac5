"""Draws what `why` says about a task as SVG: when it was due, waited, ran and was dropped, and its next times. Pure.

The picture uses attributes instead of a style sheet, so that a page with a strict Content-Security-Policy may include
it.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from xml.sax.saxutils import escape

from ticker.errors import BadInput, escaped
from ticker.model import NO_FAILURE, Outcome, Reason, RunKind
from ticker.read import explain, formatting
from ticker.read.entries import JournalEntry
from ticker.read.explain import time_of_day
from ticker.read.why import Why, due_of
from ticker.schedules.once import EPOCH
from ticker.tasks import preview
from ticker.tasks.fields import Task

NEXT_AT_MOST = 100
ROWS_AT_MOST = 6  # of one track; marks that need more rows share the last one
SHORTEST = timedelta(seconds=1)  # span before now
AHEAD = 4  # after now, the axis continues for a quarter of the span that it shows before now


class Mark(NamedTuple):
    """A mark in a track, from `begin` to `end`, which may be equal. Pointing at it shows `words`.

    `goes_on` means that it has not ended yet.
    """

    kind: str
    begin: datetime
    end: datetime
    words: str
    goes_on: bool = False


# ------------------------------------------------------------------------------------------------------- the tracks


def tracks(why: Why, begin: datetime, end: datetime) -> dict[str, Sequence[Mark]]:
    """Returns the marks of each track. Their kinds are those of `PAINTS`. `bad` is a run that failed or was killed."""
    lines = [line for line in why.lines if line.event is None]
    return {
        "due": [mark for mark in _dues(why, lines, end) if mark.begin >= begin],
        "queue": [mark for line in lines for mark in _wait(line, why.now) if mark.end >= begin],
        "worker": [mark for line in lines for mark in _outcome(line, why.now) if mark.end >= begin],
    }


def _dues(why: Why, lines: Iterable[JournalEntry], end: datetime) -> Iterator[Mark]:
    """Yields the instants for which runs were meant, and the task's next times."""
    for line in lines:
        due = explain.planned_for(line.run) if line.run else line.at
        if due > why.now:
            yield Mark("next", due, due, _words_ahead(due, why.now))
        else:
            yield Mark("due", due, due, f"due at {time_of_day(due, why.now)}")
    for at in _ahead(why.task, why.now):
        if at <= end:
            yield Mark("next", at, at, _words_ahead(at, why.now))


def _ahead(task: Task | None, now: datetime) -> Sequence[datetime]:
    """Returns the task's next times, or none if something keeps it from being pushed."""
    if task is None or task.runs_next is None:
        return ()
    try:
        return preview.of_task(task, now, NEXT_AT_MOST).times
    except BadInput:  # a row edited by hand: the push reports the error
        return (task.runs_next,)


def _wait(line: JournalEntry, now: datetime) -> Iterator[Mark]:
    """Yields the wait from the push, or the due time, until a worker took the job. A planned run does not wait yet."""
    run = line.run
    if run is None:
        yield Mark("wait", line.at, now, _words(line, now), goes_on=True)
    elif run.state != "planned" and not (run.outcome == Outcome.DROPPED and run.reason == Reason.MISSED):
        begin = run.pushed_at or explain.planned_for(run)
        taken = run.started_at or run.checked_at or run.ended_at
        until = taken or now
        if begin < until:
            words = f"waited {explain.span(until - begin)}, from {time_of_day(begin, now)}"
            yield Mark("wait", begin, until, words, goes_on=taken is None)


def _outcome(line: JournalEntry, now: datetime) -> Iterator[Mark]:
    run = line.run
    if run is None:
        return
    if run.outcome == Outcome.DROPPED:
        yield Mark("drop", line.at, line.at, _words(line, now))
    elif begin := run.started_at or run.ended_at:
        kind = "run" if run.started_at and (run.outcome is None or run.outcome in NO_FAILURE) else "bad"
        yield Mark(kind, begin, run.ended_at or now, _words(line, now), goes_on=run.ended_at is None)


def _words(line: JournalEntry, now: datetime) -> str:
    return f"{time_of_day(line.at, now)} {line.what}: {line.words}"


def _words_ahead(at: datetime, now: datetime) -> str:
    if at <= now:
        return f"due since {time_of_day(at, now)}, for {explain.elapsed(at, now)}"
    return f"due at {time_of_day(at, now)}, in {explain.span(at - now)}"


def rows(marks: Iterable[Mark]) -> Iterator[tuple[int, Mark]]:
    """Yields the marks in the order in which they begin, each with the first row that is free for its whole span."""
    free: list[datetime] = []
    for mark in sorted(marks, key=lambda mark: mark.begin):
        row = next((number for number, since in enumerate(free) if since <= mark.begin), len(free))
        free[row : row + 1] = [mark.end]
        yield min(row, ROWS_AT_MOST - 1), mark


# ------------------------------------------------------------------------------------------------------ the picture

WIDTH, LEFT, RIGHT = 960, 70, 32  # pixels, as are all lengths below; the tracks end before `RIGHT`
TOP, ROW, GAP = 34, 20, 8  # TOP of the first track
LABELS_AT_MOST = 10
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
STEPS = [
    *(timedelta(seconds=seconds) for seconds in (1, 2, 5, 10, 15, 30)),
    *(MINUTE * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(HOUR * hours for hours in (1, 2, 3, 6, 12)),
    *(DAY * days for days in (1, 2, 4, 7, 14, 30, 60)),
]
AXIS = 'class="tl-axis" stroke="currentColor"'
TEXT = 'class="tl-text" fill="currentColor"'
HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" class="tl" width="{WIDTH}" height="{{height}}" viewBox="0 0 {WIDTH} \
{{height}}" role="img" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12">"""
BAR = "m0 1h{width}v16h-{width}z"


class Paint(NamedTuple):
    """The look of one kind of mark, and its name in the legend. `shape` is a path from the mark's begin and its row's
    top.
    """

    legend: str
    shape: str
    attributes: str


# Kinds differ in shape, so that colour is never the only difference. The contrast is at least 3:1 on white and on
# black, so that one picture serves both. Text and axis have the page's colour.
PAINTS = {
    "due": Paint("due", "m0 3v12", 'stroke="currentColor" stroke-width="2"'),
    "wait": Paint("waits", "m0 6h{width}v6h-{width}z", 'fill="#7b8794"'),
    "run": Paint("runs", BAR, 'fill="#2f8f46"'),
    "bad": Paint("goes wrong", BAR, 'fill="#d6403a" fill-opacity="0.2" stroke="#d6403a" stroke-width="3"'),
    "drop": Paint("is dropped", "m-5 4l10 10m0-10l-10 10", 'stroke="#c2660c" stroke-width="3"'),
    "next": Paint("due next", "m-4 9a4 4 0 1 0 8 0a4 4 0 1 0-8 0", 'fill="none" stroke="#2b7fd4" stroke-width="2"'),
}


def svg(why: Why, since: timedelta, limit: int) -> str:
    """Returns a picture of the last `since`. Pointing at a mark shows its line. `limit` is that of `why`: if earlier
    occurrences may be left out, the axis begins with the first one.

    Its classes are `tl-due`, `tl-next`, `tl-wait`, `tl-run`, `tl-bad`, `tl-drop`, `tl-axis` and `tl-text`.
    """
    occurrences = [line for line in why.lines if line.event is None]
    if len([line for line in occurrences if line.run is None or line.run.kind != RunKind.RETRY]) >= limit:
        since = max(min(since, why.now - min(map(due_of, occurrences))), SHORTEST)
    begin, end = why.now - since, why.now + since / AHEAD

    def x(at: datetime) -> float:
        part = (min(max(at, begin), end) - begin) / (end - begin)
        return round(LEFT + part * (WIDTH - LEFT - RIGHT), 1)

    drawn, bottom = list[str](), TOP
    for name, marks in tracks(why, begin, end).items():
        drawn.append(_text(GAP, bottom + 14, name))
        placed = [*rows(marks)]
        drawn += [_path(mark.kind, x(mark.begin), bottom + row * ROW, x(mark.end), mark.words) for row, mark in placed]
        drawn += [_text(x(mark.end) + 5, bottom + row * ROW + 14, "&gt;") for row, mark in placed if mark.goes_on]
        bottom += ROW * (1 + max((row for row, _ in placed), default=0)) + GAP
    now = f"now: {time_of_day(why.now, why.now)} UTC"
    drawn += _axis({x(at): words for at, words in labels(begin, end)}, x(why.now), now, bottom)
    drawn += _legend(bottom + 2)
    return "\n".join([HEAD.format(height=bottom + ROW), _title(title(why, begin, end)), *drawn, "</svg>", ""])


def title(why: Why, begin: datetime, end: datetime) -> str:
    """Returns the task and its owner, the schedule in words, and the span of time."""
    assert why.task is not None
    name = f"{why.task.name}{f' of {why.task.owner}' if why.task.owner else ''}"
    span = f"from {time_of_day(begin, why.now)} to {time_of_day(end, why.now)} UTC"
    return f"{name}, {formatting.in_words(why.task) or formatting.schedule(why.task)}, {span}"


def labels(begin: datetime, end: datetime) -> Iterator[tuple[datetime, str]]:
    """Yields the round times in UTC that have labels, from begin to end. The label of midnight is a date."""
    every = next((step for step in STEPS if end - begin <= LABELS_AT_MOST * step), STEPS[-1])
    at = EPOCH + -(-(begin - EPOCH) // every) * every
    while at <= end:
        is_date = every >= DAY or (every >= MINUTE and at.time() == EPOCH.time())
        yield at, f"{at:%d %b}" if is_date else f"{at:%H:%M}" if every >= MINUTE else f"{at:%H:%M:%S}"
        at += every


def _axis(labels: dict[float, str], now: float, words_of_now: str, bottom: int) -> Iterator[str]:
    yield f'<path {AXIS} d="M{LEFT} {TOP - 11}H{WIDTH - RIGHT}"/>'
    for x, words in labels.items():
        yield f'<path {AXIS} opacity="0.2" d="M{x} {TOP - 11}V{bottom}"/>'
        yield _text(x, TOP - 18, words, ' text-anchor="middle"')
    yield f'<path {AXIS} stroke-dasharray="4 3" d="M{now} {TOP - 11}V{bottom}">{_title(words_of_now)}</path>'


def _legend(top: int) -> Iterator[str]:
    for number, (kind, paint) in enumerate(PAINTS.items()):
        x = LEFT + (WIDTH - LEFT) // len(PAINTS) * number
        yield _path(kind, x, top, x + 14, "")
        yield _text(x + 26, top + 12, paint.legend)


def _path(kind: str, left: float, top: int, right: float, words: str) -> str:
    paint = PAINTS[kind]
    shape = paint.shape.format(width=max(round(right - left, 1), 2))
    return f'<path class="tl-{kind}" {paint.attributes} d="M{left} {top}{shape}">{_title(words)}</path>'


def _text(x: float, y: int, words: str, attributes: str = "") -> str:
    return f'<text {TEXT} x="{x}" y="{y}"{attributes}>{words}</text>'


def _title(words: str) -> str:
    """Returns the words as XML allows them: escaped, and without control characters."""
    return f"<title>{escape(escaped(words))}</title>" if words else ""
