"""Redraws a screen until `q` or Ctrl-C: runs the queries, draws the lines, and reads the keyboard."""

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import click

from ticker import clock
from ticker.cli import fit
from ticker.cli.connection import configured, database
from ticker.cli.fit import Line
from ticker.errors import TickerError
from ticker.read.explain import span
from ticker.schedules.duration import HOUR, SECOND, milliseconds

if TYPE_CHECKING:
    from rich.console import Console, Group

T = TypeVar("T")

BLINK = 0.2  # seconds between two checks of the keyboard and the size of the terminal
PATIENCE = 10.0  # seconds without an answer before the screen says so

interval = click.option(
    "--interval", metavar="DURATION", default="2s", show_default=True, help="Time between two queries."
)


def interval_ms(text: str) -> int:
    return milliseconds("--interval", text, least=SECOND // 2, most=HOUR)


def watch(look: Callable[[Any], T], draw: Callable[[T, int, int], list[Line]], every_ms: int) -> None:
    """Shows the result of `look(db)`, and queries it every `every_ms` milliseconds. `draw(answer, width, height)`
    returns the lines.

    Returns after `q` or Ctrl-C. If a server goes away, the screen says so, and the query is retried. Raises
    ConfigurationError if it does not answer at the start.
    """
    from rich.live import Live

    with database() as db:
        first = look(db)
    console, drawn = screen_console(), None
    live = Live(console=console, screen=True, auto_refresh=False)
    with suppress(KeyboardInterrupt), terminated(), keys() as pressed, Looker(first, look, every_ms) as looker, live:
        while "q" not in pressed(BLINK):
            lines = screen(looker.state(), draw, console.width, console.height)
            if lines != drawn:
                live.update(painted(lines), refresh=True)
                drawn = lines


def painted(lines: Iterable[Line]) -> "Group":
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(*line, no_wrap=True, overflow="crop") for line in lines))


def screen_console() -> "Console":
    from rich.console import Console

    return Console(
        color_system=None if os.environ.get("NO_COLOR") else "auto", markup=False, emoji=False, highlight=False
    )


# ------------------------------------------------------------------------------------------------------- queries


@dataclass(frozen=True, slots=True)
class State(Generic[T]):
    """The last answer. `trouble` says why there is no newer one, or is empty."""

    answer: T
    trouble: str
    every_ms: int


class Looker(Generic[T]):
    """Runs the queries in a separate thread, so that the keyboard responds even if a server hangs."""

    def __init__(self, first: T, look: Callable[[Any], T], every_ms: int) -> None:
        self._answer, self._look, self._every_ms = first, look, every_ms
        self._trouble = ""
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

    def state(self) -> State[T]:
        """Returns the last answer. Raises the error of a query, except a TickerError, which may be temporary."""
        if self._bug is not None:
            raise self._bug
        silent = clock.monotonic() - self._answered - self._every_ms / SECOND
        hangs = f"no answer for {int(silent)} s" if silent > PATIENCE else ""
        return State(self._answer, self._trouble or hangs, self._every_ms)

    def _go_on(self) -> None:
        from ticker.db.connections import Pool

        pool = Pool(configured().require_database(), name="ticker-cli")
        try:
            while not self._stop.wait(self._every_ms / SECOND):
                self._once(pool)
        except BaseException as error:
            self._bug = error
        finally:
            pool.close()

    def _once(self, pool: Any) -> None:
        try:
            with pool.connection() as db:
                self._answer = self._look(db)
            self._trouble = ""
        except TickerError as error:
            self._trouble = str(error)
        self._answered = clock.monotonic()


# --------------------------------------------------------------------------------------------------------- lines


def screen(state: State[T], draw: Callable[[T, int, int], list[Line]], width: int, height: int) -> list[Line]:
    """Returns exactly `height` lines: the trouble, if any, the last answer, and how to quit."""
    every = span(state.every_ms)
    trouble = f"problem: {state.trouble}; the last answer is shown below"
    above = [fit.line(trouble, width, "bold red")] * bool(state.trouble)
    room = max(height - len(above) - 1, 0)
    body = draw(state.answer, width, room)
    blank = [fit.line("", width)] * (room - len(body))
    return [*above, *body, *blank, fit.line(f"q quits; refreshed every {every}", width, "dim")][:height]


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


@contextmanager
def terminated() -> Iterator[None]:
    """Makes SIGTERM end the block as an exception does, so that the terminal is restored."""

    def end(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
