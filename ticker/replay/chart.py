"""A played table as three lanes below a time axis: ticks, the queue, and what the worker ran and dropped."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from rich.table import Table as Grid
from rich.text import Text

from ticker.read.svg import SECOND, packed, step
from ticker.replay.play import Played
from ticker.replay.world import Job

CELLS_AT_MOST = 72
CELLS_PER_LABEL = 10
LEGEND = "' tick   ^ tick enqueues   - waits   = runs   ! is forced to end   x is dropped   > goes on"


@dataclass(frozen=True, slots=True)
class Piece:
    """Something in a lane, from `begin` to `end`. `kind`: tick, push, wait, run, forced, drop, open (it goes on)."""

    begin: timedelta
    end: timedelta
    kind: str
    name: str
    wrong: bool = False


STYLES = {"drop": "yellow", "run": "green", "open": "green", "forced": "yellow"}


def lanes(played: Played) -> dict[str, list[Piece]]:
    """What is drawn, by the names of the lanes."""
    end = played.table.rows[-1].at
    wrong = {(line.at, name) for line in played.differing for name in (line.event.names or ("",))}
    wrong |= {(line.at, word) for line in played.differing for word in line.found.replace(",", "").split()}
    ticks = [
        Piece(tick.at, tick.at, "push" if tick.pushed else "tick", ", ".join(tick.pushed),
              any((tick.at, name) in wrong for name in (*tick.pushed, "")))
        for tick in played.ticks
    ]  # fmt: skip
    waits = [Piece(job.pushed, end if job.taken is None else job.taken, "wait", job.name) for job in played.jobs]
    return {
        "ticks": ticks,
        "queue": waits,
        "worker": [_fate(job, end, wrong) for job in played.jobs if job.taken is not None],
    }


def _fate(job: Job, end: timedelta, wrong: set[tuple[timedelta, str]]) -> Piece:
    """What became of a job that was taken."""
    assert job.taken is not None
    if job.dropped:
        return Piece(job.taken, job.taken, "drop", f"{job.name} {job.dropped}", (job.taken, job.name) in wrong)
    until, kind = (end, "open") if job.ended is None else (job.ended, "forced" if job.forced else "run")
    return Piece(job.taken, until, kind, job.name, bool({(job.taken, job.name), (until, job.name)} & wrong))


def span(played: Played) -> tuple[timedelta, timedelta]:
    """From when, and for how long; at least a second."""
    rows = played.table.rows
    return rows[0].at, max(rows[-1].at - rows[0].at, SECOND)


def text(played: Played) -> Grid:
    """The chart for a terminal: what differs is red there."""
    start, total = span(played)
    cell = step(total, CELLS_AT_MOST)
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    grid.add_column()
    grid.add_column(no_wrap=True)
    labels = range(0, total // cell + 1, CELLS_PER_LABEL)
    grid.add_row("", Text("".join(f"{played.table.clock(start + n * cell):{CELLS_PER_LABEL}}" for n in labels)))
    for lane, pieces in lanes(played).items():
        for number, row in enumerate(_rows(pieces, start, cell) or [Text()]):
            grid.add_row("" if number else lane, row)
    return grid


def _rows(pieces: Sequence[Piece], start: timedelta, cell: timedelta) -> list[Text]:
    drawn = [((piece.begin - start) // cell, _drawn(piece, cell, start), piece) for piece in pieces]
    rows: list[Text] = []
    for number, (first, cells, piece) in packed(
        (first, first + len(cells) + 1, (first, cells, piece)) for first, cells, piece in drawn
    ):
        if number == len(rows):
            rows.append(Text())
        rows[number].append(" " * (first - len(rows[number])))
        rows[number].append(cells, style="bold red" if piece.wrong else STYLES.get(piece.kind, ""))
    return rows


def _drawn(piece: Piece, cell: timedelta, start: timedelta) -> str:
    """The name stands where it begins, and is never cut."""
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
