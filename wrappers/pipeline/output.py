"""Captures what functions print and log, to keep it with their runs.

    with Capture() as kept:
        function()              # print, sys.stdout.buffer, warnings, logging
    output, error_output = kept.texts()

The process of a group has several runs. There, the context of the coroutine or thread decides which run has written:

    with Capture(of_group=True):
        current_output.set(Output(slot))    # in the run's own context
        print("kept with this run")

Replaces Python's own streams. Under our Worker, also replaces the files underneath, for child processes and C libraries
(see `output_pipes`). A write to Python's streams never waits, is not passed on, and uses no more memory than what is
kept of each stream.
"""

from __future__ import annotations

import codecs
import io
import logging
import os
import sys
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, TextIO

from wrappers.pipeline import serialize
from wrappers.sandbox import output_pipes, ring_buffer
from wrappers.sandbox.ring_buffer import HALF_IN_GROUP, Pair, Ring

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PIECE = 64 * 1024  # characters that are encoded at a time, so that a text of 1 GB is not copied at once

OF_GROUP = "[written by a child process or a C library during this run, for this run or for another one of its group:]"

_CONTINUES = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that do not begin a character


class _InOrder:
    """Keeps what a run prints in a ring, after all that was written to the file underneath."""

    def __init__(self, number: int, ring: Ring) -> None:
        self._number, self._ring = number, ring
        self._is_in_line = False

    def write(self, data: bytes | memoryview) -> None:
        if not (self._is_in_line and data == b"\n"):  # of a `print`, which writes the end of its line by itself
            output_pipes.pass_on(self._number, self._ring)
        self._ring.write(data)
        self._is_in_line = data[-1:] != b"\n"


_NOWHERE = Ring(bytearray(ring_buffer.room(1)), 1)  # for what is written after a run


class Output:
    """Keeps what one run writes, in memory that outlives this process. `slot` is that of a run in a group.

    With `in_order`, prints are kept in order with what arrives on the pipes.
    """

    def __init__(self, slot: int | None = None, *, in_order: bool = False) -> None:
        self._slot, self._pair = slot, ring_buffer.pair(slot)
        for number, ring in enumerate(self._pair):
            ring.empty(mark=output_pipes.pass_on(number))
        self.sinks = tuple(map(_InOrder, (0, 1), self._pair)) if in_order else self._pair

    def close(self) -> tuple[str, str]:
        """Returns the output and the error output, safe to store and to show. Later writes are not kept."""
        self.sinks = _NOWHERE, _NOWHERE
        return texts(self._slot, self._pair)


current_output: ContextVar[Output | None] = ContextVar("ticker_output", default=None)


class Capture:
    """Replaces sys.stdout and sys.stderr, and adds a log handler, for a single run or for all runs of a group."""

    def __init__(self, enabled: bool = True, *, of_group: bool = False) -> None:
        self._enabled, self._of_group = enabled, of_group
        self._only: Output | None = None

    def __enter__(self) -> Capture:
        global _active
        if self._enabled:
            self._before = sys.stdout, sys.stderr, logging.lastResort
            self.is_redirected = output_pipes.redirect()
            self._only = None if self._of_group else Output(in_order=self.is_redirected)
            originals = ((0, sys.stdout), (1, sys.stderr), (1, sys.stderr))
            self.written = [Written(number, original, self._only) for number, original in originals]
            sys.stdout, sys.stderr, logged = map(Stream, self.written)
            self._handler = _add_log_handler(logged)
            if self._of_group:  # records from outside a run have their own handler
                self._handler.addFilter(lambda _: current_output.get() is not None)
            _active = self
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the streams and handlers, whatever the function replaced them with."""
        global _active
        if self._enabled:
            sys.stdout, sys.stderr, logging.lastResort = self._before
            logging.getLogger().removeHandler(self._handler)
            _active = None
            if self.is_redirected:
                output_pipes.restore()

    def texts(self) -> tuple[str, str]:
        """Returns the output and the error output of a single run, safe to store and to show."""
        return ("", "") if self._only is None else self._only.close()


_active: Capture | None = None


def _after_fork() -> None:
    """Makes a process that a run forked write to the files underneath, like every other child process."""
    current_output.set(None)  # another run may have this slot when a process of a pool writes
    if _active is not None:
        for written in _active.written:
            written.only = None
        if not _active.is_redirected:
            _active.__exit__()


os.register_at_fork(after_in_child=_after_fork)


class Written(io.RawIOBase):
    """Keeps what is written to a text stream in UTF-8, at each write. It is never closed, so that wrapping and dropping
    it does no harm.

    Outside of all runs, and in a process that a run forked, writes go to the original stream.
    """

    def __init__(self, number: int, original: TextIO | None, only: Output | None) -> None:
        self._number, self._original, self.only = number, original, only
        self.name = ("<stdout>", "<stderr>")[number]

    def write(self, data: ReadableBuffer) -> int:
        if type(data) is not bytes:
            view = memoryview(data)
            data = view.cast("B") if view.nbytes else b""
        if output := self.only or current_output.get():
            output.sinks[self._number].write(data)
        elif self._original is not None:
            encoding = getattr(self._original, "encoding", None) or "utf-8"
            text = bytes(data).decode("utf-8", "replace")
            self._original.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._original.flush()
        return len(data)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """Returns the original's file descriptor, for child processes and faulthandler."""
        if self._original is None:
            raise io.UnsupportedOperation("fileno")
        return self._original.fileno()

    def close(self) -> None:
        pass


class Stream(io.TextIOWrapper):
    """A text stream in UTF-8 that accepts any text, also after `reconfigure` and `detach`: all runs of a group share it.

    Each write is kept immediately, whether or not it is flushed.
    """

    def __init__(self, written: Written) -> None:
        super().__init__(written, "utf-8", "backslashreplace", newline="\n", write_through=True)
        self._written = written

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            return super().write(text)  # raises its usual TypeError
        for begin in range(0, len(text), PIECE):
            self._written.write(text[begin : begin + PIECE].encode("utf-8", "backslashreplace"))
        return len(text)


def _add_log_handler(stream: TextIO) -> logging.Handler:
    """Adds a handler to the root logger, which writes records as lines: time in UTC, level, logger, message, traceback.

    If the root logger has no handler, replaces Python's last resort instead. With a handler on the root logger, the
    function's own `logging.basicConfig` would do nothing.
    """
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%SZ")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    if logging.getLogger().handlers:
        logging.getLogger().addHandler(handler)
    else:
        logging.lastResort = handler
    return handler


def texts(slot: int | None = None, kept: Pair | None = None) -> tuple[str, str]:
    """Returns the output and error output of the last run in the shared memory, even if its process died. Never raises.

    `slot` is that of a run in a group. Adds what the group's process wrote past Python's streams during the run,
    because that does not show which run wrote it.
    """
    answer = ["", ""]
    for number, ring in enumerate(kept or ring_buffer.pair(slot)):
        arrived = output_pipes.pass_on(number, ring if slot is None else None)
        answer[number] = _text_of(*ring.read())
        if slot is not None and arrived > ring.mark:
            shared = ring_buffer.arrived()[number].since(ring.mark, 2 * HALF_IN_GROUP)
            answer[number] += f"{OF_GROUP}\n{_text_of(*shared)}"
    return answer[0], answer[1]


def _text_of(head: bytes, left_out: int, tail: bytes) -> str:
    """Returns the text, with a line in place of the bytes that were left out. Leaves out characters that were cut off."""
    if not left_out:
        return serialize.visible((head + tail).decode("utf-8", "replace"))
    begin, used = codecs.utf_8_decode(head, "replace", False)
    end = tail[:3].lstrip(_CONTINUES) + tail[3:]
    left_out += len(head) - used + len(tail) - len(end)
    line_end = "\n" if begin and not begin.endswith("\n") else ""
    return serialize.visible(f"{begin}{line_end}[... {left_out} bytes left out ...]\n{end.decode('utf-8', 'replace')}")
