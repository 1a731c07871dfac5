"""Fits rows to a screen: each row takes one line, columns are aligned, and text that does not fit is cut."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from unicodedata import category, east_asian_width

from ticker.errors import escaped

GAP = 2  # cells between two columns
LAST_AT_LEAST = 20  # cells for the last column, which gives the reason
SUBJECT = "subject"  # the head of a column that is left out if it is empty
NARROW = 19  # cells, the width of a time; on a narrow screen, a column's limit, unless a fifth of the width is more


class Row(NamedTuple):
    """The cells from left to right, safe to print on a terminal. `style` applies to the whole line."""

    cells: Sequence[str]
    style: str = ""


class Line(NamedTuple):
    plain: str
    style: str = ""


def row(*cells: object, style: str = "") -> Row:
    return Row(tuple(escaped(str(cell)) for cell in cells), style)


def line(text: str, width: int, style: str = "") -> Line:
    """Returns a sentence as one line, cut to the width."""
    return Line(cropped(escaped(text), width), style)


def lines(rows: Sequence[Row], width: int, spare: Sequence[str] = (), *, folds: bool = False) -> list[Line]:
    """Returns one line for each row. Omits `spare` columns (named as in the first row, in this order) until the others
    fit.

    The last column is cut, or continued on further lines if it `folds`.
    """
    table = [*zip(*(row.cells for row in rows), strict=True)]
    columns = [number for number, (head, *cells) in enumerate(table) if head not in ("", SUBJECT) or any(cells)]
    widths = [max(map(size, column)) for column in table]
    if sum(widths[number] + GAP for number in columns) > width:
        widths = [min(cells, max(NARROW, width // 5)) for cells in widths]
    for name in spare:
        if sum(widths[number] + GAP for number in columns[:-1]) + LAST_AT_LEAST <= width:
            break
        columns.remove(rows[0].cells.index(name))
    return [line for row in rows for line in _lines(row, columns, widths, width, folds)]


def size(text: str) -> int:
    """Returns how many terminal cells the text takes: two for a wide letter, none for a combining mark."""
    if text.isascii():
        return len(text)
    return sum(0 if category(c) in ("Mn", "Me") else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def sized(text: str, cells: int) -> str:
    """Returns the text in exactly `cells` cells: cut at its end, or padded with blanks."""
    text = text if size(text) <= cells else text[: max(cells, 0)]
    while size(text) > cells:
        text = text[:-1]
    return text + " " * (cells - size(text))


def cropped(text: str, cells: int) -> str:
    return text if size(text) <= cells else f"{sized(text, cells - 1)}…"


def cut(text: str, cells: int) -> str:
    """Cuts the middle out of text that is too long, because names and owners often differ only at the end."""
    if size(text) <= cells:
        return text
    tail = text[-(cells // 2) :]
    while size(tail) > cells // 2:
        tail = tail[1:]
    return f"{sized(text, cells - size(tail) - 1).rstrip()}…{tail}"


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """Returns how many rows each section may show: all of them, or an equal share of the room."""
    given = [0] * len(wanted)
    while room > 0 and given != [*wanted]:
        for number, most in enumerate(wanted):
            if room > 0 and given[number] < most:
                given[number] += 1
                room -= 1
    return given


def _lines(row: Row, columns: Sequence[int], widths: Sequence[int], width: int, folds: bool) -> Iterator[Line]:
    left = "".join(sized(cut(row.cells[n], widths[n]), widths[n] + GAP) for n in columns[:-1])
    last = row.cells[columns[-1]] if columns else ""
    room = width - size(left)
    if not folds or room < LAST_AT_LEAST or size(last) <= room:
        yield Line(cropped(left + last, width), row.style)
        return
    for part in textwrap.wrap(last, room, break_on_hyphens=False):
        yield Line(left + part, row.style)
        left = " " * size(left)
