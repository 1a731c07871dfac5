"""`ticker timeline`: draws the occurrences of a task as tracks below a time axis, as text or SVG."""

import shutil
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ticker.cli import options, pictures, render
from ticker.cli.connection import database
from ticker.cli.options import owner_hint, ref
from ticker.model import GOOD
from ticker.schedules.duration import DAY, SECOND, milliseconds

if TYPE_CHECKING:
    from ticker.read.entries import JournalEntry
    from ticker.read.svg import Mark
    from ticker.read.timeline import Timeline

LEGEND = "' due   o due next   - waits   . waits briefly   = runs   > goes on   ! goes wrong   x is dropped   | now"
SEVEREST = " |o'.-=>x!"  # if several signs share a cell, the last one in this order is shown
STYLES = {"=": "green", ">": "green", "!": "bold red", "x": "yellow", "o": "cyan"}
NARROWEST, WIDEST = 40, 200  # columns
NAMES = 8  # cells for the name of a track; the longest name has 6
PER_LABEL = 12  # minimum number of cells between two labels of the axis
LISTED_AT_MOST = 10  # drops and failures listed below the chart


@click.command()
@click.argument("task")
@options.owner
@click.option("--since", metavar="DURATION", default="1h", show_default=True, help="How far back the chart goes.")
@click.option("--svg", metavar="FILE", type=click.Path(dir_okay=False, writable=True, allow_dash=True),
              help="Write the chart to FILE as SVG; - is standard output.")  # fmt: skip
def timeline(task: str, owner: str | None, since: str, svg: str | None) -> None:
    """Draw when TASK was due, waited and ran, and when it is due next.

    Also lists the last drops and failures, and what happens next. A deleted task is found by its id.
    """
    span = timedelta(milliseconds=milliseconds("--since", since, least=SECOND, most=366 * DAY))
    if svg not in (None, "-"):
        pictures.check(str(svg))
    named = ref(task, owner)
    assert named is not None
    with owner_hint(named, owner), database() as db:
        drawn = look(db, named, owner, span)
    if svg is None:
        print_timeline(drawn)
    else:
        write(svg, drawn)


def look(db: Any, named: int | str, owner: str | None, since: timedelta) -> "Timeline":
    from ticker.read import tasks
    from ticker.read import timeline as drawing

    task_id = named if isinstance(named, int) else tasks.get(db, named, owner=owner).id
    return drawing.of(db, task_id, since=since)


def write(path: str, drawn: "Timeline") -> None:
    from ticker.read.timeline import svg

    if path == "-":
        click.echo(svg(drawn), nl=False)
    else:
        pictures.write(path, svg(drawn))


def print_timeline(drawn: "Timeline") -> None:
    from ticker.read.timeline import title

    width = min(max(shutil.get_terminal_size((100, 24)).columns, NARROWEST), WIDEST)
    render.say(title(drawn))
    render.print_table(chart(drawn, width))
    click.echo(LEGEND)
    if drawn.is_cut:
        runs = sum(line.run is not None for line in drawn.lines)
        render.say(
            f"there were more runs than can be drawn, and only the last {runs} are shown; give a shorter --since"
        )
    if wrong := [line for line in drawn.lines if is_wrong(line)]:
        click.echo()
        render.print_lines(wrong[-LISTED_AT_MOST:], whose=False)
    for sentence in drawn.sentences:
        render.say(sentence)


def is_wrong(line: "JournalEntry") -> bool:
    """Returns whether the entry is a drop, or a run that ended without success."""
    return line.run is not None and line.run.outcome is not None and line.run.outcome not in GOOD


# -------------------------------------------------------------------------------------------------------- the chart


def chart(drawn: "Timeline", width: int) -> render.Table:
    """Returns the axis and the tracks, each row within `width` cells."""
    from ticker.read.timeline import tracks

    grid = render.columns("", "")
    scale = Scale(drawn.begin, drawn.end, width - NAMES)
    render.add(grid, "", scale.axis())
    for track, placed in tracks(drawn).items():
        for row in range(1 + max((row for row, _ in placed), default=0)):
            signs = scale.row([mark for number, mark in placed if number == row], drawn.now)
            render.add(grid, "" if row else track, [(sign, STYLES.get(sign, "")) for sign in signs])
    return grid


class Scale:
    """Maps instants to the cells of a row. Each cell covers an equal span of time."""

    def __init__(self, begin: datetime, end: datetime, cells: int) -> None:
        self._begin, self._end, self._cells = begin, end, cells

    def cell(self, instant: datetime) -> int:
        cell = (instant - self._begin) * self._cells // (self._end - self._begin)
        return min(max(cell, 0), self._cells - 1)

    def axis(self) -> str:
        from ticker.read.svg import label, marked, step

        every = step(self._end - self._begin, max(self._cells // PER_LABEL, 1))
        text = ""
        for at in marked(self._begin, self._end, every):
            further = f"{text:{self.cell(at)}}{label(at, every)}"
            text = further if len(further) <= self._cells else text
        return text

    def row(self, marks: "Iterable[Mark[datetime]]", now: datetime) -> str:
        cells = [" "] * self._cells
        for cell, sign in [(self.cell(now), "|"), *(drawn for mark in marks for drawn in self._signs(mark))]:
            cells[cell] = max(cells[cell], sign, key=SEVEREST.index)
        return "".join(cells).rstrip()

    def _signs(self, mark: "Mark[datetime]") -> Iterator[tuple[int, str]]:
        first, last = self.cell(mark.begin), self.cell(mark.end)
        match mark.kind:
            case "due" | "next" | "drop":
                yield first, {"due": "'", "next": "o", "drop": "x"}[mark.kind]
            case "wait":
                yield from ((cell, "-" if last > first else ".") for cell in range(first, last + 1))
            case _:
                yield from ((cell, "=") for cell in range(first, last + 1))
                if mark.kind == "bad" or mark.goes_on:
                    yield last, "!" if mark.kind == "bad" else ">"
