"""Draws a played table as three tracks below a time axis (ticks, queue and worker), as text or as SVG."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias

from ticker.read import svg as drawing
from ticker.read.svg import GAP, LEFT, LETTER, SECOND, WIDTH, Mark, Paint, packed, step
from ticker.replay.event import Step
from ticker.replay.play import Line, Played
from ticker.replay.world import Job

CELLS_AT_MOST = 72
CELLS_PER_LABEL = 10
LABELS_AT_MOST = 10  # of a picture
NAMES = 140  # pixels left free on the right for the names of marks that begin there
LEGEND = "' tick   ^ tick enqueues   - waits   = runs   ! is forced to end   x is dropped   > goes on"
STYLES = {"drop": "yellow", "run": "green", "open": "green", "forced": "yellow"}
OF_THE_WORKER = {Step.BEGINS, Step.ENDS, Step.FORCED, Step.DROPPED}
PAPER = "#fff"  # white, because names in light bars are unreadable on a dark page
PAINTS = {
    "tick": Paint("line", 'class="tick" stroke="#9aa5b1" stroke-width="2"', "tick"),
    "push": Paint("line", 'class="push" stroke="#1f2933" stroke-width="3"', "enqueues"),
    "wait": Paint("bar", 'class="wait" fill="#d9e2ec" stroke="#9fb3c8"', "waits"),
    "run": Paint("bar", 'class="run" fill="#c1eac5" stroke="#3f9142"', "runs"),
    "open": Paint("bar", 'class="open" fill="#c1eac5" stroke="#3f9142"'),
    "forced": Paint("bar", 'class="forced" fill="#ffe8b3" stroke="#c99a2e"', "forced end"),
    "drop": Paint("cross", 'class="drop" fill="none" stroke="#b44d12" stroke-width="3"', "dropped"),
    "event": Paint("dot", 'class="event" fill="#1f2933"'),
    "differs": Paint("dot", 'class="event differs" fill="#e12d39" stroke="#e12d39" stroke-width="4"', "differs"),
}

Piece: TypeAlias = Mark[timedelta]
"""Kinds: tick, push, wait, run, forced, drop, open (still running); in a picture, also event and differs."""


def tracks(played: Played) -> dict[str, list[Piece]]:
    """Returns the pieces to draw, by the names of the tracks."""
    end = played.table.rows[-1].at
    wrong = {(line.at, name) for line in played.differing for name in (line.event.names or ("",))}
    wrong |= {(line.at, word) for line in played.differing for word in line.actual.replace(",", "").split()}
    ticks = [
        Mark("push" if tick.pushed else "tick", tick.at, tick.at, name=", ".join(tick.pushed),
              is_wrong=any((tick.at, name) in wrong for name in (*tick.pushed, "")))
        for tick in played.ticks
    ]  # fmt: skip
    waits = [Mark("wait", job.pushed, end if job.taken is None else job.taken, name=job.name) for job in played.jobs]
    return {
        "ticks": ticks,
        "queue": waits,
        "worker": [_mark(job, end, wrong) for job in played.jobs if job.taken is not None],
    }


def _mark(job: Job, end: timedelta, wrong: set[tuple[timedelta, str]]) -> Piece:
    """Returns the mark for a job that was taken."""
    assert job.taken is not None
    if job.dropped:
        differs = (job.taken, job.name) in wrong
        return Mark("drop", job.taken, job.taken, name=f"{job.name} {job.dropped}", is_wrong=differs)
    until, kind = (end, "open") if job.ended is None else (job.ended, "forced" if job.forced else "run")
    differs = bool({(job.taken, job.name), (until, job.name)} & wrong)
    return Mark(kind, job.taken, until, name=job.name, is_wrong=differs)


def span(played: Played) -> tuple[timedelta, timedelta]:
    """Returns the start and the duration, which is at least a second."""
    rows = played.table.rows
    return rows[0].at, max(rows[-1].at - rows[0].at, SECOND)


# ----------------------------------------------------------------------------------------------------- in a terminal


Cells = list[tuple[str, str]]
"""The pieces of a row on the terminal, each with its style."""


def text(played: Played) -> list[tuple[str, Cells]]:
    """Returns the rows of the chart, each with its name or an empty text. Differences are red."""
    start, total = span(played)
    cell = step(total, CELLS_AT_MOST)
    labels = range(0, total // cell + 1, CELLS_PER_LABEL)
    axis = "".join(f"{played.table.clock(start + n * cell):{CELLS_PER_LABEL}}" for n in labels)
    rows: list[tuple[str, Cells]] = [("", [(axis, "")])]
    for track, pieces in tracks(played).items():
        rows += [("" if number else track, row) for number, row in enumerate(_rows(pieces, start, cell) or [[]])]
    return rows


def _rows(pieces: Sequence[Piece], start: timedelta, cell: timedelta) -> list[Cells]:
    drawn = [((piece.begin - start) // cell, _drawn(piece, cell, start), piece) for piece in pieces]
    rows: list[Cells] = []
    for number, (first, cells, piece) in packed(
        (first, first + len(cells) + 1, (first, cells, piece)) for first, cells, piece in drawn
    ):
        if number == len(rows):
            rows.append([])
        blank = " " * (first - sum(len(text) for text, _ in rows[number]))
        rows[number] += [(blank, ""), (cells, "bold red" if piece.is_wrong else STYLES.get(piece.kind, ""))]
    return rows


def _drawn(piece: Piece, cell: timedelta, start: timedelta) -> str:
    """Returns the cells of a piece. Its name stands where it begins, and is never cut."""
    match piece.kind:
        case "tick":
            return "'"
        case "push":
            return f"^{piece.name}"
        case "drop":
            return f"x{piece.name}"
    cells = (piece.end - start) // cell - (piece.begin - start) // cell
    body = piece.name.ljust(cells, "-" if piece.kind == "wait" else "=")
    return body + {"forced": "!", "open": ">"}.get(piece.kind, "")


# ------------------------------------------------------------------------------------------------------ the picture


def svg(played: Sequence[Played]) -> str:
    """Draws all tables in one picture, one below the other. A dot is an event; hovering over it shows its line."""
    return drawing.picture([*map(_chart, played)], PAINTS, title="ticker replay", paper=PAPER)


def _chart(played: Played) -> drawing.Chart[timedelta]:
    table, (start, total) = played.table, span(played)
    every, pixel = step(total, LABELS_AT_MOST), total / (WIDTH - LEFT - NAMES)
    labels = [(at, table.clock(at)) for at in (start + n * every for n in range(total // every + 1))]
    drawn = {track: _stacked(pieces, pixel) for track, pieces in tracks(played).items()}
    for line in played.lines:
        track, row = _place(line, drawn)
        result = "; ".join(map(str, line.differences)) or line.actual
        kind = "differs" if line.differences else "event"
        drawn[track].append((row, Mark(kind, line.at, line.at, _sentence(played, line, result), line=line.number)))
    sentences = [_sentence(played, line, each) for line in played.differing for each in line.differences]
    heading = f"{table.name}: {table.timing}"
    return drawing.Chart(start, start + total, labels, drawn, None, heading, sentences, right=NAMES)


def _stacked(pieces: Sequence[Piece], pixel: timedelta) -> list[tuple[int, Piece]]:
    """Returns each piece with its row. Pieces that would overlap, names included, get different rows."""
    extents = ((piece.begin / pixel, piece.end / pixel, piece) for piece in pieces)
    return packed(
        (left, max(right, left + LETTER * len(piece.name)) + 2 * GAP, piece) for left, right, piece in extents
    )


def _place(line: Line, tracks: Mapping[str, Sequence[tuple[int, Piece]]]) -> tuple[str, int]:
    """Returns the track and row of the event's tick or job, or the axis for an event without a track."""
    if line.event.what is Step.TICK:
        return "ticks", min((row for row, piece in tracks["ticks"] if piece.begin == line.at), default=0)
    if line.event.what in OF_THE_WORKER:
        name = line.event.names[0]
        return "worker", min((row for row, piece in tracks["worker"] if piece.name.split()[:1] == [name]), default=0)
    return "ticks", -1


def _sentence(played: Played, line: Line, what: object) -> str:
    clock = played.table.clock(line.at)
    return f"{clock}: {what}" if line.number is None else f"line {line.number}, {clock}: {what}"
