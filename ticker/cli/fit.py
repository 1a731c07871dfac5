"""Rows that fit a screen: each is one line, columns stand below each other, and what does not fit is cut."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ticker.cli.render import shown

GAP = 2  # cells between two columns
LAST_AT_LEAST = 20  # cells for the last column, which says why
NARROW = 19  # cells, those of a time; a column but the last may have these, or a fifth of the width


@dataclass(frozen=True, slots=True)
class Row:
    """Cells from left to right, safe for a terminal; `style` is of the whole line."""

    cells: tuple[str, ...]
    style: str = ""


def row(*cells: object, style: str = "") -> Row:
    return Row(tuple(shown(str(cell)) for cell in cells), style)


def line(text: str, width: int, style: str = "") -> Text:
    """One sentence on one line."""
    found = Text(shown(text), style)
    found.truncate(width, overflow="ellipsis")
    return found


def lines(rows: Sequence[Row], width: int, spare: Sequence[int] = ()) -> list[Text]:
    """One line each. Of the `spare` columns, by their numbers, the first are left out where there is too little room."""
    if not rows:
        return []
    widths = [max(map(cell_len, column)) for column in zip(*(row.cells for row in rows), strict=True)]
    if sum(widths) + GAP * len(widths) > width:
        widths = [min(cells, max(NARROW, width // 5)) for cells in widths]
    columns = _fitting(widths, width, spare)
    return [_line(row, columns, widths, width) for row in rows]


def cut(text: str, cells: int) -> str:
    """Without its middle, where it is too long: names and owners differ at their ends, too."""
    if cell_len(text) <= cells:
        return text
    tail = text[-(cells // 2) :]
    while cell_len(tail) > cells // 2:
        tail = tail[1:]
    return f"{set_cell_size(text, cells - cell_len(tail) - 1).rstrip()}…{tail}"


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """How many of its rows each may show: all, or as many as the others that want more."""
    given = [0] * len(wanted)
    while room > 0 and given != [*wanted]:
        for number, most in enumerate(wanted):
            if room > 0 and given[number] < most:
                given[number] += 1
                room -= 1
    return given


def _fitting(widths: Sequence[int], width: int, spare: Sequence[int]) -> list[int]:
    columns = [*range(len(widths))]
    for column in spare:
        if sum(widths[number] + GAP for number in columns[:-1]) + LAST_AT_LEAST <= width:
            break
        columns.remove(column)
    return columns


def _line(row: Row, columns: Sequence[int], widths: Sequence[int], width: int) -> Text:
    found = Text(style=row.style)
    for number in columns[:-1]:
        found.append(set_cell_size(cut(row.cells[number], widths[number]), widths[number] + GAP))
    found.append(row.cells[columns[-1]])
    found.truncate(width, overflow="ellipsis")
    return found
