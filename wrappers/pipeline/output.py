"""Captures what a function prints and logs, to keep it with its run.

    with Capture() as kept:
        function()              # print, sys.stdout.buffer, warnings, logging
    output, error_output = kept.texts()

Replaces Python's own streams. Under our Worker, also replaces the files underneath, for child processes and C libraries
(see `output_pipes`). A write to Python's streams never waits, is not passed on, and uses no more memory than the 64 kB that
are kept of each stream.
"""

from __future__ import annotations

import codecs
import io
import logging
import os
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from wrappers.pipeline import serialize
from wrappers.sandbox import output_pipes, ring_buffer
from wrappers.sandbox.ring_buffer import HALF_IN_GROUP, Pair, Ring

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["Capture", "texts"]

PIECE = 64 * 1024  # characters that are encoded at a time, so that a text of 1 GB is not copied at once

OF_GROUP = "[written by a child process or a C library during this run, for this run or for another one of its group:]"

_CONTINUES = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that do not begin a character


class Capture:
    """Replaces sys.stdout and sys.stderr with the streams of one run, and adds a log handler."""

    def __init__(self, enabled: bool = True) -> None:
        self._pair = ring_buffer.pair()
        self._enabled = enabled
        self._sinks: list[_InOrder] = []

    def __enter__(self) -> Capture:
        global _active
        for kept in self._pair:
            kept.empty()
        if self._enabled:
            self._before = sys.stdout, sys.stderr, logging.lastResort
            if output_pipes.redirect():
                self._sinks = [_InOrder(number, ring) for number, ring in enumerate(self._pair)]
            output, errors = self._sinks or self._pair
            self._handler = log_handler(Stream(errors, sys.stderr, "<stderr>"))
            _active = self
            add_log_handler(self._handler)
            sys.stdout = Stream(output, sys.stdout, "<stdout>")
            sys.stderr = Stream(errors, sys.stderr, "<stderr>")
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Restores the streams and handlers, whatever the function replaced them with."""
        global _active
        if self._enabled:
            sys.stdout, sys.stderr, logging.lastResort = self._before
            logging.getLogger().removeHandler(self._handler)
            _active = None
            if self._sinks:
                output_pipes.restore()

    def texts(self) -> tuple[str, str]:
        """Returns the output and the error output, safe to store and to show."""
        return _texts_of(self._pair) if self._enabled else ("", "")

    def leave_to_parent(self) -> None:
        """Makes a process that the function forked write to the files underneath, like every other child process."""
        for sink in self._sinks:
            sink.is_in_fork = True
        if not self._sinks:
            self.__exit__(None, None, None)
            for kept in self._pair:
                kept.part()


_active: Capture | None = None


def texts(slot: int | None = None) -> tuple[str, str]:
    """Returns the output and error output of the last run in the shared memory, even if its process died. Never raises.

    `slot` is that of a run in a group.
    """
    return _texts_of(ring_buffer.pair()) if slot is None else texts_in_group(ring_buffer.pair_of(slot))


def _texts_of(kept: Pair) -> tuple[str, str]:
    for number, ring in enumerate(kept):
        output_pipes.pass_on(number, ring)
    output, error_output = map(text_of, kept)
    return output, error_output


def texts_in_group(kept: Pair) -> tuple[str, str]:
    """Returns the output and error output of a run in a group, each with what the group's process wrote past Python's streams.

    That is all that was written during the run, because it does not show which run wrote it.
    """
    output, error_output = (text_of(ring) + _of_group(number, ring.mark) for number, ring in enumerate(kept))
    return output, error_output


def _of_group(number: int, mark: int) -> str:
    if output_pipes.written(number) <= mark:
        return ""
    left_out, data = ring_buffer.arrived()[number].since(mark, 2 * HALF_IN_GROUP)
    cut = f"[... {left_out} bytes left out ...]\n" if left_out else ""
    text = (_without_cut_begin(data) if left_out else data).decode("utf-8", "replace")
    return f"{OF_GROUP}\n{cut}{serialize.visible(text)}"


def _after_fork() -> None:
    if _active is not None:
        _active.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


# --- Streams -------------------------------------------------------------------------------------------------


class Kept(Protocol):
    """Takes what a run writes: a ring, or an object that chooses one."""

    def write(self, data: bytes | memoryview) -> None: ...


class _InOrder:
    """Takes what a run prints, after all that was written to the file underneath. In a fork, writes to that file."""

    def __init__(self, number: int, ring: Ring) -> None:
        self.is_in_fork = False
        self._number, self._ring = number, ring
        self._is_in_line = False

    def write(self, data: bytes | memoryview) -> None:
        if self.is_in_fork:
            left = memoryview(data)
            while left:
                left = left[os.write(self._number + 1, left) :]
            return
        if not (self._is_in_line and data == b"\n"):  # of a `print`, which writes the end of its line by itself
            output_pipes.pass_on(self._number, self._ring)
        self._ring.write(data)
        self._is_in_line = data[-1:] != b"\n"


class _Bytes(io.RawIOBase):
    """The binary buffer under a stream. It is never closed, so that wrapping and dropping it does no harm."""

    def __init__(self, kept: Kept, original: TextIO | None, name: str) -> None:
        self._kept = kept
        self._original = original
        self.name = name

    def write(self, data: ReadableBuffer) -> int:
        if type(data) is not bytes:
            view = memoryview(data)
            data = view.cast("B") if view.nbytes else b""
        self._kept.write(data)
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
    """A text stream in UTF-8 that accepts any text. Each write is kept immediately, whether or not it is flushed."""

    def __init__(self, kept: Kept, original: TextIO | None, name: str) -> None:
        super().__init__(_Bytes(kept, original, name), encoding="utf-8", errors="backslashreplace", newline="\n")
        self._kept = kept

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            return super().write(text)  # raises the usual TypeError
        if len(text) <= PIECE:
            self._kept.write(text.encode("utf-8", "backslashreplace"))
        else:
            for begin in range(0, len(text), PIECE):
                self.write(text[begin : begin + PIECE])
        return len(text)


# --- Logging -------------------------------------------------------------------------------------------------


def log_handler(stream: TextIO) -> logging.Handler:
    """Returns a handler that writes records as lines: time in UTC, level, logger, message, traceback."""
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%SZ")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    return handler


def add_log_handler(handler: logging.Handler) -> None:
    """Adds the handler to the root logger, or replaces Python's last resort if the root logger has no handler.

    With a handler on the root logger, the function's own `logging.basicConfig` would do nothing.
    """
    root = logging.getLogger()
    if root.handlers:
        root.addHandler(handler)
    else:
        logging.lastResort = handler


# --- Texts ---------------------------------------------------------------------------------------------------


def text_of(kept: Ring) -> str:
    head, left_out, tail = kept.read()
    if not left_out:
        return serialize.visible((head + tail).decode("utf-8", "replace"))
    begin, cut_off = _without_cut_end(head)
    end = _without_cut_begin(tail)
    left_out += cut_off + len(tail) - len(end)
    line_end = "" if begin.endswith("\n") else "\n"
    return serialize.visible(f"{begin}{line_end}[... {left_out} bytes left out ...]\n{end.decode('utf-8', 'replace')}")


def _without_cut_end(data: bytes) -> tuple[str, int]:
    """Returns the text without a character that is cut off at its end, and the number of bytes cut off."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    return text, len(decoder.getstate()[0])


def _without_cut_begin(data: bytes) -> bytes:
    """Returns the bytes without the rest of a character that is cut off at their beginning (at most three bytes)."""
    return data[:3].lstrip(_CONTINUES) + data[3:]
