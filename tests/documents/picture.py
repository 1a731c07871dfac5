"""Draws docs/pictures/demo.svg from a real run of `ticker demo`: `python -m tests.documents.picture --write`.

A camera takes the place of the terminal; servers, workers, kills and sentences are the demo's own. The film shows every
screen in its order, but faster than it was played. CSS alone moves it, so that it plays where no script may run. Readers
who prefer reduced motion see the frame of demo-still.svg. tests/documents/test_picture.py reads the frames as text.
"""

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate, dropwhile, pairwise
from typing import Any, NamedTuple
from unittest.mock import patch
from xml.sax.saxutils import escape

from rich.console import Console
from rich.live import Live
from rich.style import Style
from rich.text import Text

from tests.running import ROOT
from ticker.demo import main
from ticker.demo.evidence import PROMISES

FOLDER = ROOT / "docs" / "pictures"
COMMAND = "$ uv run ticker demo"
TITLE = "ticker demo: mailboxes are polled, a worker is killed, and each promise is checked"
HELD_ALL = f"{len(PROMISES)} of {len(PROMISES)} promises held"
COLUMNS, ROWS = 100, 31
CELL, HIGH, MARGIN, BAR = 7.85, 17, 16, 30  # pixels: width of a character, height of a line, padding, title bar
WIDTH, HEIGHT = round(COLUMNS * CELL + 2 * MARGIN), BAR + ROWS * HIGH + 2 * MARGIN
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono',monospace"
PAPER, TOP, EDGE, INK = "#161b22", "#21262d", "#57606a", "#d1d7e0"
COLOURS = {"yellow": "#c69026", "dim": "#8b949e", "green": "#6bc46d", "cyan": "#39c5cf", "red": "#ff6b64", "magenta": "#dc8cf5"}  # fmt: skip
TYPED, ANNOUNCED, STEP, NEWS, ANSWER, JUDGED, HELD = 0.8, 2.4, 0.4, 1.4, 5.0, 0.4, 3.0  # seconds that a frame stays
STEPS = 19  # frames of the chart in which no sentence is new

Line = tuple[tuple[str, str], ...]  # pieces, each a text and its CSS classes


class Screen(NamedTuple):
    """All lines so far. `sentences` is how many sentences stand below the chart, None before and after the chart moves."""

    at: float
    lines: tuple[Line, ...]
    sentences: int | None = None


class Frame(NamedTuple):
    rows: tuple[Line, ...]
    seconds: float


class Camera(Console):
    """The demo's terminal. It keeps each state of the screen and shows nothing."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, width=COLUMNS)
        self.screens = [Screen(time.monotonic(), (((COMMAND, "bold"),),))]

    def print(self, *texts: Any, style: Any = "", **_: Any) -> None:
        new = [((part, classes(style)),) for text in texts for part in str(text).split("\n")]
        self.screens.append(Screen(time.monotonic(), (*self.screens[-1].lines, *new)))


class Projector(Live):
    """The live part of that terminal: a chart with sentences below, which replaces the one before."""

    def __enter__(self) -> "Projector":
        self.above = self.camera.screens[-1].lines
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def camera(self) -> Camera:
        assert isinstance(self.console, Camera)
        return self.console

    def update(self, group: Any, *, refresh: bool = False) -> None:
        lines = [line_of(part) if isinstance(part, Text) else ((part, ""),) for part in group.renderables]
        sentences = sum(bool(re.match(r"\d\d:\d\d  ", line[0][0])) for line in lines)
        self.camera.screens.append(Screen(time.monotonic(), (*self.above, *lines), sentences))


def classes(style: str | Style) -> str:
    """Returns CSS classes for a style of rich: at most one colour, and bold."""
    parsed = Style.parse(str(style))
    colour = parsed.color.name if parsed.color else "dim" * bool(parsed.dim)
    return " ".join(filter(None, (colour, "bold" * bool(parsed.bold))))


def line_of(text: Text) -> Line:
    cuts = sorted({0, len(text.plain), *(edge for span in text.spans for edge in (span.start, span.end))})
    styles = {span.start: classes(span.style) for span in text.spans}
    pieces: list[tuple[str, str]] = []
    for begin, end in pairwise(cuts):
        style, part = styles.get(begin, ""), text.plain[begin:end]
        if pieces and pieces[-1][1] == style:
            part = pieces.pop()[0] + part
        pieces.append((part, style))
    return tuple(pieces) or (("", ""),)


def record() -> list[Screen]:
    """Runs the demo and returns its screens."""
    cameras: list[Camera] = []

    def camera(**options: Any) -> Camera:
        cameras.append(Camera(**options))
        return cameras[-1]

    with ExitStack() as patches:
        patches.enter_context(patch.object(main, "Console", camera))
        patches.enter_context(patch.object(main, "Live", Projector))
        main.demo()
    last = ["".join(text for text, _ in line) for line in cameras[0].screens[-1].lines]
    if last[-1] != HELD_ALL:
        raise SystemExit("\n".join([*last, "this take is no picture: try again on a quieter machine"]))
    return cameras[0].screens


# ------------------------------------------------------------------------------------------------------- the cut


def cut(screens: Sequence[Screen]) -> tuple[list[Frame], int]:
    """Returns the frames, and the number of the still one: the whole chart, and why a task ran or did not."""
    chart = [screen for screen in screens if screen.sentences is not None]
    opening, closing = screens[: screens.index(chart[0])], screens[screens.index(chart[-1]) + 1 :]
    frames = [Frame(shown(screen.lines), TYPED) for screen in opening[:1]]
    frames.append(Frame(shown(opening[-1].lines), ANNOUNCED))
    last, span = chart[0], (chart[-1].at - chart[0].at) / STEPS
    for screen in chart[1:]:
        is_news = screen.sentences != last.sentences
        if is_news or screen.at - last.at >= span or screen is chart[-1]:
            frames.append(Frame(shown(screen.lines), NEWS if is_news else STEP))
            last = screen
    frames += [Frame(shown(screen.lines), JUDGED) for screen in closing]
    still = len(frames) - len(closing)
    frames[still], frames[-1] = frames[still]._replace(seconds=ANSWER), frames[-1]._replace(seconds=HELD)
    return frames, still


def shown(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Returns the last lines that fit, with a piece per row: a terminal scrolls, and folds what is too long."""
    kept, rows = list[Line](), 0
    for line in dropwhile(is_blank, reversed(lines)):
        line = fold(line)
        rows += 1 + sum(text.startswith("\n") for text, _ in line)
        if rows > ROWS:
            break
        kept.append(line)
    return tuple(reversed(kept))


def is_blank(line: Line) -> bool:
    return not any(text for text, _ in line)


def fold(line: Line) -> Line:
    """Folds a long line between words. A piece that begins a row has a newline in front, and its indentation."""
    [(text, style), *others] = line
    if others or len(text) <= COLUMNS:
        return line
    column = re.match(r"\S+ {2,}|", text)
    assert column
    rows, room = [""], COLUMNS
    for word in re.findall(r"\S+(?: s\b)?\s*", text):  # a number and its unit stay together
        if len(rows[-1]) + len(word.rstrip()) > room:
            rows.append("")
            room = COLUMNS - column.end()
        rows[-1] += word
    return ((rows[0], style), *((f"\n{' ' * column.end()}{row}", style) for row in rows[1:]))


# --------------------------------------------------------------------------------------------------- the drawing


def drawn(frames: Sequence[Frame], still: int | None = None) -> str:
    """Returns the picture: a film of the frames, where `still` is what readers with reduced motion see; or one frame."""
    total = sum(frame.seconds for frame in frames)
    begins = [0.0, *accumulate(frame.seconds for frame in frames[:-1])]
    moves = "".join(f"{100 * begin / total:.3f}%{moved(number)}" for number, begin in enumerate(begins))
    film = f""".film{{animation:film {total:.1f}s step-end infinite}}
@keyframes film{{{moves}}}
@media (prefers-reduced-motion:reduce){{.film{{animation:none;{moved(still or 0)[1:-1]}}}}}
"""
    colours = "\n".join(f".{name}{{fill:{colour}}}" for name, colour in COLOURS.items())
    shapes = "\n".join(frame_of(frame, number * WIDTH) for number, frame in enumerate(frames))
    lights = "".join(f'<circle cx="{20 + 18 * number}" cy="{BAR // 2}" r="5"/>' for number in range(3))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" \
font-family="{FONT}" font-size="13" fill="{INK}" xml:space="preserve">
<title>{TITLE}</title>
<style>
text{{white-space:pre}}
.bold{{font-weight:700}}
{colours}
{film if still is not None else ""}</style>
<rect x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8" fill="{PAPER}" stroke="{EDGE}"/>
<path d="M1 {BAR}V8a7 7 0 0 1 7-7H{WIDTH - 8}a7 7 0 0 1 7 7V{BAR}z" fill="{TOP}"/><g fill="{EDGE}">{lights}</g>
<svg y="{BAR}" width="{WIDTH}" height="{HEIGHT - BAR - 1}"><g class="film">
{shapes}
</g></svg>
</svg>
"""


def moved(number: int) -> str:
    return f"{{transform:translateX({-number * WIDTH}px)}}"


def frame_of(frame: Frame, x: int) -> str:
    rows, y = list[str](), MARGIN
    for line in frame.rows:
        y += HIGH
        if not is_blank(line):
            rows.append(f'<text x="{MARGIN}" y="{y - 4}">{"".join(pieces(line))}</text>')
        y += HIGH * (len(line) - 1 if line[-1][0].startswith("\n") else 0)
    return f'<g transform="translate({x})">\n' + "\n".join(rows) + "\n</g>"


def pieces(line: Line) -> Iterator[str]:
    for text, style in line:
        place = ""
        if text.startswith("\n"):
            indent = len(text) - len(text := text.lstrip())
            place = f' x="{MARGIN + (indent - 1) * CELL:.1f}" dy="{HIGH}"'
        named = f' class="{style}"' if style else ""
        yield f"<tspan{named}{place}>{escape(text)}</tspan>" if named or place else escape(text)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--write", action="store_true", help="write both pictures; otherwise print the last screen")
    chosen = options.parse_args()
    frames, still = cut(record())
    if chosen.write:
        (FOLDER / "demo.svg").write_text(drawn(frames, still), encoding="utf-8")
        (FOLDER / "demo-still.svg").write_text(drawn(frames[still : still + 1]), encoding="utf-8")
    else:
        sys.stdout.writelines("".join(text for text, _ in line) + "\n" for line in frames[-1].rows)
