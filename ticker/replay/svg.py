"""The same chart as a picture: SVG written by hand, which a browser shows and a page includes."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from ticker.read.svg import packed, safe, step
from ticker.replay.chart import Piece, lanes, span
from ticker.replay.event import What
from ticker.replay.play import Line, Played

WIDTH, LEFT, RIGHT = 980, 90, 140  # pixels, and so is all that follows
ROW, TOP, GAP, LETTER = 22, 64, 12, 7.2
LABELS_AT_MOST = 10
STYLE = """
text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1f2933 }
.name { font-weight: bold; font-size: 14px } .lane { fill: #52606d } .axis, .grid { stroke: #9aa5b1 } .grid { opacity: .4 }
.tick { stroke: #9aa5b1; stroke-width: 2 } .push { stroke: #1f2933; stroke-width: 3 }
.wait { fill: #d9e2ec; stroke: #9fb3c8 } .run, .open { fill: #c1eac5; stroke: #3f9142 }
.forced { fill: #ffe8b3; stroke: #c99a2e } .drop { stroke: #b44d12; stroke-width: 3; fill: none }
.event circle { fill: #1f2933 } .differs circle { fill: #e12d39 } .wrong { fill: #ba2525 }
"""
OF_THE_WORKER = {What.BEGINS, What.ENDS, What.FORCED, What.DROPPED}


def svg(played: Sequence[Played]) -> str:
    """One picture of all tables, one below the other. A dot is an event; pointing at it shows its line."""
    drawings = [_Drawing(one) for one in played]
    height, body = 0, []
    for drawing in drawings:
        body += [f'<g transform="translate(0 {height})">', *drawing.elements(), "</g>"]
        height += drawing.height
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join(
        [head, f"<style>{STYLE}</style>", '<rect width="100%" height="100%" fill="#fff"/>', *body, "</svg>", ""]
    )


class _Drawing:
    """One table: its lanes below each other, each as high as its pieces need."""

    def __init__(self, played: Played) -> None:
        self._played = played
        self._start, self._total = span(played)
        self._tops: dict[str, int] = {}
        self._placed: dict[str, list[tuple[int, Piece]]] = {}
        top = TOP
        for name, pieces in lanes(played).items():
            self._tops[name] = top
            self._placed[name] = packed((self._x(piece.begin), self._right(piece), piece) for piece in pieces)
            top += ROW * max((row + 1 for row, _ in self._placed[name]), default=1) + GAP
        self._bottom = top - GAP
        self._sentences = [self._told(line, found) for line in played.differing for found in line.differences]
        self.height = top + ROW * (len(self._sentences) + 1)

    def elements(self) -> Iterable[str]:
        table = self._played.table
        yield f'<text class="name" x="{GAP}" y="20">{safe(f"{table.name}: {table.timing}")}</text>'
        yield from self._axis()
        for name, top in self._tops.items():
            yield f'<text class="lane" x="{GAP}" y="{top + 15}">{name}</text>'
            for row, piece in self._placed[name]:
                yield from self._piece(piece, top + row * ROW)
        for line in self._played.lines:
            yield self._dot(line)
        for number, sentence in enumerate(self._sentences, start=1):
            yield f'<text class="wrong" x="{LEFT}" y="{self._bottom + number * ROW}">{safe(sentence)}</text>'

    def _x(self, at: timedelta) -> float:
        return round(LEFT + (at - self._start) / self._total * (WIDTH - LEFT - RIGHT), 1)

    def _right(self, piece: Piece) -> float:
        """Where the next one may begin in its row."""
        return max(self._x(piece.end), self._x(piece.begin) + LETTER * len(piece.name)) + GAP

    def _axis(self) -> Iterable[str]:
        every = step(self._total, LABELS_AT_MOST)
        yield f'<line class="axis" x1="{LEFT}" y1="{TOP - 14}" x2="{WIDTH - RIGHT}" y2="{TOP - 14}"/>'
        for number in range(self._total // every + 1):
            at = self._start + number * every
            x = self._x(at)
            yield f'<line class="grid" x1="{x}" y1="{TOP - 14}" x2="{x}" y2="{self._bottom}"/>'
            yield f'<text x="{x}" y="{TOP - 22}" text-anchor="middle">{self._played.table.clock(at)}</text>'

    def _piece(self, piece: Piece, y: int) -> Iterable[str]:
        x, right = self._x(piece.begin), self._x(piece.end)
        match piece.kind:
            case "tick" | "push":
                yield f'<line class="{piece.kind}" x1="{x}" y1="{y + 2}" x2="{x}" y2="{y + 16}"/>'
            case "drop":
                yield f'<path class="drop" d="M{x - 5:.1f} {y + 4}l10 10m0 -10l-10 10"/>'
            case _:
                yield f'<rect class="{piece.kind}" x="{x}" y="{y}" width="{max(right - x, 2):.1f}" height="18" rx="3"/>'
        if piece.name:
            kind = "wrong" if piece.wrong else "job"
            yield f'<text class="{kind}" x="{x + 7:.1f}" y="{y + 13}">{safe(piece.name)}</text>'

    def _dot(self, line: Line) -> str:
        classes = "event differs" if line.differences else "event"
        told = "; ".join(map(str, line.differences)) or line.found
        number = "" if line.number is None else f' data-line="{line.number}"'
        dot = f'<circle cx="{self._x(line.at)}" cy="{self._y(line)}" r="{5 if line.differences else 3}"/>'
        return f'<g class="{classes}"{number}><title>{safe(self._told(line, told))}</title>{dot}</g>'

    def _y(self, line: Line) -> int:
        """The row of what the event is about: a tick, a job; on the axis what has no lane."""
        if line.event.what is What.TICK:
            lane, fits = "ticks", {row for row, piece in self._placed["ticks"] if piece.begin == line.at}
        elif line.event.what in OF_THE_WORKER:
            lane, name = "worker", line.event.names[0]
            fits = {row for row, piece in self._placed["worker"] if piece.name.split()[0] == name}
        else:
            return TOP - 14
        return self._tops[lane] + ROW * min(fits, default=0) + 9

    def _told(self, line: Line, what: object) -> str:
        clock = self._played.table.clock(line.at)
        return f"{clock}: {what}" if line.number is None else f"line {line.number}, {clock}: {what}"
