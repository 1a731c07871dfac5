"""Reads timing tables from Markdown: `## name`, a line of settings, and a table `| at | event | next_run | ... |`.

All errors in a file are found here, before any server is queried. BadInput names the line.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise

from ticker.engine import timing
from ticker.errors import BadInput, did_you_mean
from ticker.replay.event import Event, Step, clock, read_event, read_time
from ticker.schedules.duration import HOUR, SECOND, milliseconds, words
from ticker.tasks import checks, definition

NAMES = ("interval", "tolerance", "box", "during", "tick")
COLUMNS = ("next_run", "last_run", "checked")
TICKS_AT_MOST = 2000  # ticks without a row; each takes some milliseconds
SETTINGS = "interval 60 s, tolerance 5 s, box 30 s, during 9-17, tick every 30 s, or: ticks as written"

_FENCE = re.compile(r"(```+|~~~+)")
_SETTINGS = re.compile(r"(?:[-*] )?((?:interval|tolerance|box|during|ticks?)\b.*)", re.IGNORECASE)
_SETTING = re.compile(r"(interval|tolerance|box|during|tick every):? +(.+)")
_ALIKE = re.compile(
    r"(?:[-*] )?((?P<word>[^\W\d]+):? +(?:every +)?\d[\d.]* *(?P<unit>(?:ms|s|m|h|d|sec\w*|min\w*|hours?)\b)?)(?:[,.;]+( .*)?)?",
    re.IGNORECASE,
)
_AS_WRITTEN = "ticks as written"

Numbered = tuple[int, str]
"""The number of a line, from 1, and its text."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The settings of a table, in milliseconds. `tick` is None if only the ticks in the table are played."""

    every: int
    tolerance: int
    box: int
    tick: int | None
    during: str = ""

    def __str__(self) -> str:
        ticks = "ticks as written" if self.tick is None else f"tick every {words(self.tick)}"
        during = f"during {self.during}, " if self.during else ""
        return (
            f"interval {words(self.every)}, tolerance {words(self.tolerance)}, box {words(self.box)}, {during}{ticks}"
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One row, with the number of its line. `expected` has the columns that are filled in; None stands for `-`."""

    line: int
    at: timedelta
    event: Event
    expected: Mapping[str, timedelta | None]


@dataclass(frozen=True, slots=True)
class Table:
    """One timing table. Times count from its 00:00. `hours` means that they are written as HH:MM:SS."""

    name: str
    timing: Timing
    rows: tuple[Row, ...]
    hours: bool

    def clock(self, at: timedelta | None) -> str:
        return clock(at, self.hours)

    def silent_ticks(self) -> list[timedelta]:
        """Returns the times of ticks without a row, from the initial state to the last row."""
        if self.timing.tick is None:
            return []
        written = {row.at for row in self.rows if row.event.what is Step.TICK}
        begin, every, count = self._rhythm(self.timing.tick)
        return [at for n in range(count) if (at := begin + n * every) not in written]

    def count_ticks(self) -> int:
        return 0 if self.timing.tick is None else self._rhythm(self.timing.tick)[2]

    def _rhythm(self, tick: int) -> tuple[timedelta, timedelta, int]:
        """Returns the first tick after the initial state, the interval, and the count. A written tick sets the phase."""
        every, start, end = timing.span(tick), self.rows[0].at, self.rows[-1].at
        first = next((row.at for row in self.rows if row.event.what is Step.TICK), start)
        begin = start + ((first - start) % every or every)
        return begin, every, max((end - begin) // every + 1, 0)


@dataclass(slots=True)
class _Section:
    """A heading and the lines below it."""

    name: str
    number: int
    lines: list[Numbered] = field(default_factory=list)


def read(text: str) -> list[Table]:
    """Returns all timing tables in a text, at least one. Raises BadInput with the line and what to write."""
    top, *sections = _sections(_lines(text))
    if blocks := _timing_blocks(top):
        raise BadInput(_line(blocks[0][0][0]), None, "the table has no heading; write ## and its name above it")
    common = _settings(top.lines)
    tables = [_table(section, block[0], common) for section in sections if (block := _timing_blocks(section))]
    if not tables:
        raise BadInput("tables", None, "there are none; write ## and a name, and below it | at | event | next_run |")
    return tables


def _lines(text: str) -> list[Numbered]:
    """Returns all lines except those between fences."""
    kept: list[Numbered] = []
    opened: Numbered | None = None
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened = (number, fence[1])
        elif opened and fence and line == fence[1] and line.startswith(opened[1]):
            opened = None
        elif opened is None:
            kept.append((number, line))
    if opened:
        raise BadInput(_line(opened[0]), opened[1], "begins a block that does not end; write the same line at its end")
    return kept


def _sections(lines: Iterable[Numbered]) -> list[_Section]:
    sections = [_Section("", 0)]
    for number, line in lines:
        if line.startswith("## "):
            name = line[3:].strip()
            if twin := next((section for section in sections if section.name == name), None):
                raise BadInput(_line(number), name, f"is already the heading of line {twin.number}; write another")
            sections.append(_Section(name, number))
        else:
            sections[-1].lines.append((number, line))
    return sections


def _timing_blocks(section: _Section) -> list[list[Numbered]]:
    """Returns the timing tables in a section, at most one, as lines. Ignores other tables."""
    blocks: list[list[Numbered]] = []
    before = 0
    for number, line in section.lines:
        if line.startswith("|"):
            if number != before + 1 or not blocks:
                blocks.append([])
            blocks[-1].append((number, line))
            before = number
    ours = [block for block in blocks if {"at", "event"} & set(_head(block))]
    if len(ours) > 1:
        raise BadInput(
            _line(ours[1][0][0]), None, "this heading already has a table; write ## and a name above this one"
        )
    return ours


def _head(block: Sequence[Numbered]) -> list[str]:
    return [cell.lower() for cell in _cells(block[0][1])]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]


def _table(section: _Section, block: Sequence[Numbered], common: Mapping[str, tuple[int, str]]) -> Table:
    first = block[0][0]
    own = _settings(section.lines)
    for number, _ in own.values():
        if number > first:
            raise BadInput(_line(number), None, "the settings are below their table; write them above it")
    rows = _rows(block)
    hours = any(cell.count(":") == 2 for _, line in block[2:] for cell in _cells(line)[:1])
    table = Table(section.name, _timing({**common, **own}), rows, hours)
    _check_order(table)
    _check_ticks(table, first)
    return table


# ---------------------------------------------------------------------------------------------------------- settings


def _settings(lines: Iterable[Numbered]) -> dict[str, tuple[int, str]]:
    """Returns the line and the text of each setting. Settings begin a paragraph; only its first sentence counts.

    A word with a number, such as `tolerence 5 s`, is a misspelt setting, and not prose.
    """
    settings: dict[str, tuple[int, str]] = {}
    begins = True
    for number, line in lines:
        is_begin = begins or line[:2] in ("- ", "* ")
        match = _SETTINGS.fullmatch(line)
        if is_begin and not match and (misspelt := _misspelt(line)):
            raise _no_setting(number, misspelt)
        if match and is_begin:
            for name, value in _sentence(number, match[1]):
                if name in settings:
                    raise BadInput(_line(number), name, f"is already given on line {settings[name][0]}; write it once")
                settings[name] = (number, value)
        else:
            begins = not line or line.startswith(("#", "|"))
    return settings


def _misspelt(line: str) -> str:
    """Returns the beginning of a line if it reads as a setting: a word with a duration, or a word that is nearly a name."""
    alike = _ALIKE.fullmatch(line)
    is_one = alike and (alike["unit"] or did_you_mean(alike["word"].lower(), NAMES))
    return alike[1].strip() if alike and is_one else ""


def _sentence(number: int, line: str) -> list[tuple[str, str]]:
    sentence = re.split(r"[.;](?=\s|$)", line.lower())[0]
    return [_setting(number, " ".join(part.split())) for part in re.split(r",(?!\d)| and ", sentence)]


def _setting(number: int, text: str) -> tuple[str, str]:
    if text == _AS_WRITTEN:
        return "tick", text
    match = _SETTING.fullmatch(text)
    if not match:
        raise _no_setting(number, text)
    return match[1].split()[0], match[2]


def _no_setting(number: int, text: str) -> BadInput:
    problem = f"is not a setting; write {SETTINGS} (begin other sentences with another word)"
    return BadInput(_line(number), text, problem)


def _timing(settings: Mapping[str, tuple[int, str]]) -> Timing:
    every = _ms(settings, "interval", timing.SHORTEST_INTERVAL, timing.LONGEST_INTERVAL, 60 * SECOND)
    tolerance = _ms(settings, "tolerance", 0, timing.LONGEST_INTERVAL, timing.tolerance_by_default(every))
    box = _ms(settings, "box", timing.SHORTEST_BOX, timing.LONGEST_INTERVAL, timing.box_by_default(every))
    written = settings.get("tick", (0, ""))[1] == _AS_WRITTEN
    tick = None if written else _ms(settings, "tick", SECOND // 10, HOUR, 30 * SECOND)
    during = settings.get("during", (0, ""))[1]
    try:
        timing.check_fit(every, tolerance, box)
        during = checks.during("during", during)
        definition.check_hours(during, every, "UTC")
    except BadInput as error:
        number = settings.get(error.field, max(settings.values()))[0]
        raise BadInput(f"{_line(number)}: {error.field}", error.value, error.problem) from None
    return Timing(every, tolerance, box, tick, during)


def _ms(settings: Mapping[str, tuple[int, str]], name: str, least: int, most: int, default: int) -> int:
    if name not in settings:
        return default
    number, text = settings[name]
    return milliseconds(f"{_line(number)}: {name}", text.replace(" ", ""), least=least, most=most)


# -------------------------------------------------------------------------------------------------------------- rows


def _rows(block: Sequence[Numbered]) -> tuple[Row, ...]:
    head, first = _head(block), block[0][0]
    if head[:2] != ["at", "event"]:
        raise BadInput(
            _line(first), " | ".join(head), "does not begin with at and event; write | at | event | next_run |"
        )
    for column in head[2:]:
        if column not in COLUMNS or head.count(column) > 1:
            raise BadInput(
                _line(first),
                column,
                f"is not a column, or is given twice; the columns are at, event, {', '.join(COLUMNS)}",
            )
    if len(block) < 2 or not all(re.fullmatch(r":?-+:?", cell) for cell in _cells(block[1][1])):
        raise BadInput(
            _line(first),
            None,
            f"the table's header row is not followed by a delimiter row; write {'|---' * len(head)}|",
        )
    if len(block) == 2:
        raise BadInput(
            _line(first), None, "the table has no rows; write | 00:00 | initial state | below its header row"
        )
    return tuple(_row(number, head, _cells(line)) for number, line in block[2:])


def _row(number: int, head: Sequence[str], cells: Sequence[str]) -> Row:
    if len(cells) != len(head):
        raise BadInput(_line(number), None, f"the row has {len(cells)} cells; write {len(head)}, one for each column")
    filled = {column: text for column, text in zip(head[2:], cells[2:], strict=True) if text}
    times = {column: None if text == "-" else read_time(_line(number), text) for column, text in filled.items()}
    return Row(number, read_time(_line(number), cells[0]), read_event(_line(number), cells[1]), times)


def _check_order(table: Table) -> None:
    """Checks that only the first row is an initial state, that it is possible, and that rows are in order."""
    start = table.rows[0]
    if start.event.what is not Step.INITIAL:
        raise BadInput(
            _line(start.line), str(start.event), "is the first row; write | 00:00 | initial state | above it"
        )
    if start.expected.get("next_run", start.at) is None:
        raise BadInput(_line(start.line), "-", "is not a next_run of an interval task; write a time, or leave it empty")
    if (last_run := start.expected.get("last_run")) and last_run > start.at:
        raise BadInput(_line(start.line), table.clock(last_run), "is a last_run in the future; write an earlier one")
    for before, row in pairwise(table.rows):
        if row.event.what is Step.INITIAL:
            raise BadInput(_line(row.line), str(row.event), "is only for the first row; write another event")
        if row.at < before.at:
            raise BadInput(
                _line(row.line), table.clock(row.at), f"is earlier than line {before.line}; write rows in order"
            )


def _check_ticks(table: Table, first: int) -> None:
    """Checks that ticks follow the rhythm in the settings, and that there are not too many."""
    if table.timing.tick is None:
        return
    ticks = [row for row in table.rows if row.event.what is Step.TICK]
    for row in ticks:
        if (row.at - ticks[0].at) % timing.span(table.timing.tick):
            rhythm = f"every {words(table.timing.tick)} from {table.clock(ticks[0].at)} on"
            problem = f"is not the time of a tick: ticks come {rhythm}; write another time, or 'ticks as written' in the settings"
            raise BadInput(_line(row.line), table.clock(row.at), problem)
    if table.count_ticks() > TICKS_AT_MOST:
        problem = f"the table has {table.count_ticks()} ticks, over the limit of {TICKS_AT_MOST}"
        raise BadInput(_line(first), None, f"{problem}; write 'ticks as written' in the settings")


def _line(number: int) -> str:
    return f"line {number}"
