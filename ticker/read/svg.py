"""Draws tracks below a time axis as an SVG picture. Pure.

A picture uses attributes instead of a style sheet, so that a page with a strict Content-Security-Policy may include it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar
from xml.sax.saxutils import escape

from ticker.errors import escaped

STEPS = (0.1, 0.2, 0.5, 1, 2, 3, 5, 6, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600,
         43_200, 86_400)  # seconds  # fmt: skip
LONGER = 2  # above them, each step is twice the previous one
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

P = TypeVar("P")

WIDTH, LEFT = 960, 70  # pixels, as are all lengths below
TOP = 34  # of the first track
ROW, GAP = 20, 8
RIGHT = 32  # left free on the right
AXIS_ABOVE = 11  # to the middle of row -1 of the first track
FONT = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12"'
AXIS = 'class="tl-axis" stroke="currentColor"'
TEXT = 'class="tl-text" fill="currentColor"'


class Paint(NamedTuple):
    """The look of one kind of mark. `shape` is line, dot, ring, cross, strip or bar; `sign` is drawn after each mark.

    `legend` names the kind below the chart.
    """

    shape: str
    attributes: str
    legend: str = ""
    sign: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark in a track, from `begin` to `end`, which may be equal. `kind` names its paint.

    Pointing at the mark shows `words`. `goes_on` means that it has not ended yet.
    """

    kind: str
    begin: datetime
    end: datetime
    words: str = ""
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Tracks below a time axis. Each mark has its row in the track; row -1 of the first track is the axis.

    `now` is an instant and its text, drawn as a dashed line.
    """

    begin: datetime
    end: datetime
    labels: Sequence[tuple[datetime, str]]
    tracks: Mapping[str, Sequence[tuple[int, Mark]]]
    now: tuple[datetime, str] | None = None

    def x(self, at: datetime) -> float:
        """Returns the x position of an instant. Instants outside the axis are moved to its edge."""
        part = min(max((at - self.begin) / (self.end - self.begin), 0), 1)
        return round(LEFT + part * (WIDTH - LEFT - RIGHT), 1)

    def draw(self, paints: Mapping[str, Paint]) -> tuple[list[str], int]:
        """Returns the elements, and the y position at which they end."""
        drawn: list[str] = []
        bottom = TOP
        for name, marks in self.tracks.items():
            drawn.append(f'<text {TEXT} x="{GAP}" y="{bottom + 14}">{name}</text>')
            drawn += [self._mark(mark, paints[mark.kind], bottom + row * ROW) for row, mark in marks]
            bottom += ROW * (1 + max((row for row, _ in marks), default=0)) + GAP
        return [*self._axis(TOP - AXIS_ABOVE, bottom), *drawn], bottom

    def _axis(self, top: int, bottom: int) -> Iterator[str]:
        yield f'<path {AXIS} d="M{LEFT} {top}H{WIDTH - RIGHT}"/>'
        for at, words in self.labels:
            x = self.x(at)
            yield f'<path {AXIS} opacity="0.2" d="M{x} {top}V{bottom}"/>'
            yield f'<text {TEXT} x="{x}" y="{top - 7}" text-anchor="middle">{words}</text>'
        if self.now:
            line = f'<path {AXIS} stroke-dasharray="4 3" d="M{self.x(self.now[0])} {top}V{bottom}"/>'
            yield f"<g><title>{safe(self.now[1])}</title>{line}</g>"

    def _mark(self, mark: Mark, paint: Paint, top: int) -> str:
        left, right = self.x(mark.begin), self.x(mark.end)
        words = f"<title>{safe(mark.words)}</title>" if mark.words else ""
        sign = paint.sign or (">" if mark.goes_on and paint.shape == "bar" else "")
        text = f'<text {TEXT} x="{max(right, left + 2) + 5:.1f}" y="{top + 14}">{safe(sign)}</text>' if sign else ""
        return f"<g {paint.attributes}>{words}{_shape(paint.shape, left, right, top)}</g>{text}"


def picture(chart: Chart, paints: Mapping[str, Paint], *, title: str) -> str:
    """Returns the chart and its legend, in the colours of the page."""
    drawn, bottom = chart.draw(paints)
    height = bottom + ROW
    drawn += _legend([paint for paint in paints.values() if paint.legend], height - 6)
    size = f'class="tl" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {FONT}>'
    return "\n".join([f"{head}<title>{safe(title)}</title>", *drawn, "</svg>", ""])


def _shape(shape: str, left: float, right: float, top: int) -> str:
    """Returns the shape of a mark. Kinds differ in shape or in sign, so that colour is never the only difference."""
    match shape:
        case "line":
            return f'<path d="M{left} {top + 3}v12"/>'
        case "dot" | "ring":
            return f'<circle cx="{left}" cy="{top + 9}" r="{3 if shape == "dot" else 4}"/>'
        case "cross":
            return f'<path d="M{left - 5:.1f} {top + 4}l10 10m0 -10l-10 10"/>'
    wide, y, high, round_ = max(right - left, 2), *((top + 6, 6, 0) if shape == "strip" else (top + 1, 16, 3))
    return f'<rect x="{left}" y="{y}" width="{wide:.1f}" height="{high}" rx="{round_}"/>'


def _legend(paints: Sequence[Paint], y: int) -> Iterator[str]:
    for number, paint in enumerate(paints):
        x = LEFT + (WIDTH - LEFT) // len(paints) * number
        yield f"<g {paint.attributes}>{_shape(paint.shape, x, x + 14, y - 13)}</g>"
        sign = f'<tspan x="{x + 17}">{paint.sign}</tspan>' if paint.sign else ""
        yield f'<text {TEXT} y="{y}">{sign}<tspan x="{x + 26}">{paint.legend}</tspan></text>'


def packed(pieces: Iterable[tuple[float, float, P]]) -> list[tuple[int, P]]:
    """Returns the pieces in the order in which they begin, each with the first row that is free for its whole span."""
    free: list[float] = []
    placed = []
    for begin, end, piece in sorted(pieces, key=lambda piece: piece[0]):
        row = next((number for number, since in enumerate(free) if since <= begin), len(free))
        free[row : row + 1] = [end]
        placed.append((row, piece))
    return placed


def step(total: timedelta, most: int) -> timedelta:
    """Returns a round span that fits into the total at most `most` times."""
    seconds = next((seconds for seconds in STEPS if total <= most * seconds * SECOND), float(STEPS[-1]))
    while total > most * seconds * SECOND:
        seconds *= LONGER
    return seconds * SECOND


def marked(begin: datetime, end: datetime, every: timedelta) -> list[datetime]:
    """Returns the instants at which a time axis has labels: those from begin to end that are round in UTC."""
    first = EPOCH + -(-(begin - EPOCH) // every) * every
    return [first + number * every for number in range((end - first) // every + 1)]


def label(instant: datetime, every: timedelta) -> str:
    """Returns the label of an instant, just long enough to distinguish labels that are `every` apart."""
    utc = instant.astimezone(UTC)
    if every >= DAY or (every >= MINUTE and utc.time() == EPOCH.time()):
        return f"{utc:%d %b}"
    text = f"{utc:%H:%M}" if every >= MINUTE else f"{utc:%H:%M:%S}"
    return text if every >= SECOND else f"{text}.{utc.microsecond // 100_000}"


def safe(text: str) -> str:
    """Returns the text as XML allows it: escaped, and without control characters."""
    return escape(escaped(text))
