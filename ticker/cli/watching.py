"""Redraws a screen until `q` or Ctrl-C: runs the queries, draws the lines, and reads the keyboard."""

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from ticker import clock
from ticker.cli import fit
from ticker.cli.connection import configured, database
from ticker.cli.fit import Line
from ticker.errors import TickerError
from ticker.read.explain import span
from ticker.schedules.duration import HOUR, SECOND, milliseconds

if TYPE_CHECKING:
    from rich.console import Group

    from ticker.db.connections import Pool

T = TypeVar("T")

BLINK = 0.2  # seconds between two checks of the keyboard and the size of the terminal
PATIENCE = 10.0  # seconds without an answer before the screen says so

interval = click.option(
    "--interval",
    "every_ms",
    metavar="DURATION",
    default="2s",
    show_default=True,
    callback=lambda _context, _option, text: milliseconds("--interval", text, least=SECOND // 2, most=HOUR),
    help="Time between two queries.",
)


def watch(look: Callable[[Any], T], draw: Callable[[T, int, int], list[Line]], every_ms: int) -> None:
    """Shows the result of `look(db)`, and queries it every `every_ms` milliseconds. `draw(answer, width, height)`
    returns the lines.

    Returns after `q` or Ctrl-C. If a server goes away, the screen says so, and the query is retried. Raises
    ConfigurationError if it does not answer at the start.
    """
    from rich.console import Console
    from rich.live import Live

    with database() as db:
        first = look(db)
    drawn, console = None, Console()
    live = Live(console=console, screen=True, auto_refresh=False)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the terminal is restored
    with suppress(KeyboardInterrupt), keys() as pressed, Looker(first, look, every_ms) as looker, live:
        while "q" not in pressed(BLINK):
            lines = screen(*looker.state(), draw, every_ms, console.width, console.height)
            if lines != drawn:
                live.update(painted(lines), refresh=True)
                drawn = lines


def painted(lines: Iterable[Line]) -> "Group":
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(*line, no_wrap=True, overflow="crop") for line in lines))


def screen(
    answer: T, trouble: str, draw: Callable[[T, int, int], list[Line]], every_ms: int, width: int, height: int
) -> list[Line]:
    """Returns exactly `height` lines: the trouble, if any, the last answer, and how to quit."""
    above = [fit.line(f"problem: {trouble}; the last answer is shown below", width, "bold red")] * bool(trouble)
    room = max(height - len(above) - 1, 0)
    body = draw(answer, width, room)
    blank = [fit.line("", width)] * (room - len(body))
    return [*above, *body, *blank, fit.line(f"q quits; refreshed every {span(every_ms)}", width, "dim")][:height]


# -------------------------------------------------------------------------------------------------------- queries


class Looker(Generic[T]):
    """Runs the queries in a separate thread, so that the keyboard responds even if a server hangs."""

    def __init__(self, first: T, look: Callable[[Any], T], every_ms: int) -> None:
        self._answer, self._trouble = first, ""
        self._look, self._every = look, every_ms / SECOND
        self._bug: BaseException | None = None
        self._answered = clock.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="ticker-looker", daemon=True)

    def __enter__(self) -> "Looker[T]":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(1)  # a thread that waits for a server ends with the process

    def state(self) -> tuple[T, str]:
        """Returns the last answer, and why there is no newer one, or "". Raises the error of a query, except a
        TickerError, which may be temporary.
        """
        if self._bug is not None:
            raise self._bug
        silent = clock.monotonic() - self._answered - self._every
        hangs = f"no answer for {int(silent)} s" if silent > PATIENCE else ""
        return self._answer, self._trouble or hangs

    def _go_on(self) -> None:
        from ticker.db.connections import Pool

        try:
            with closing(Pool(configured().require_database(), name="ticker-cli")) as pool:
                while not self._stop.wait(self._every):
                    self._once(pool)
        except BaseException as error:
            self._bug = error

    def _once(self, pool: "Pool") -> None:
        try:
            with pool.connection() as db:
                self._answer, self._trouble = self._look(db), ""
        except TickerError as error:
            self._trouble = str(error)
        self._answered = clock.monotonic()


# ------------------------------------------------------------------------------------------------------- keyboard


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Yields a function that waits for keys, up to the given number of seconds, and returns them without echoing them.

    If standard input is not a terminal, the function returns no keys. Restores the terminal at the end.
    """
    if not sys.stdin.isatty():
        pause = threading.Event()
        yield lambda seconds: "q" * pause.wait(seconds)
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield lambda seconds: _pressed(terminal, seconds)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _pressed(terminal: int, seconds: float) -> str:
    if not select.select([terminal], [], [], seconds)[0]:
        return ""
    return os.read(terminal, 1024).decode("utf-8", "replace") or "q"  # a terminal that hung up sends no more keys
