"""What a function prints and logs, kept with its run.

    with Capture() as kept:
        function()              # print, sys.stdout.buffer, warnings, logging
    output, error_output = kept.texts()

Python's own streams are replaced, not the files behind them: what a child process or a C library writes goes where the
worker's own output goes. A write never waits, takes no memory but the 64 kB that are kept of each stream, and is not
passed on.
"""

from __future__ import annotations

import codecs
import io
import logging
import os
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from wrappers.pipeline import serialize
from wrappers.sandbox import ring_buffer
from wrappers.sandbox.ring_buffer import Ring

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["Capture", "texts"]

PIECE = 64 * 1024  # characters that are encoded at a time: a text of 1 GB is not copied as a whole

_CONTINUES = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no character


class Capture:
    """The streams of one run, in the place of sys.stdout and sys.stderr, and a handler for what is logged."""

    def __init__(self, enabled: bool = True) -> None:
        self._pair = ring_buffer.pair()
        self._enabled = enabled

    def __enter__(self) -> Capture:
        global _active
        for kept in self._pair:
            kept.empty()
        if self._enabled:
            self._before = sys.stdout, sys.stderr, logging.lastResort
            self._handler = log_handler(_Stream(self._pair[1], sys.stderr, "<stderr>"))
            _active = self
            add_log_handler(self._handler)
            sys.stdout = _Stream(self._pair[0], sys.stdout, "<stdout>")
            sys.stderr = _Stream(self._pair[1], sys.stderr, "<stderr>")
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """All is as it was before, whatever the function put in its place."""
        global _active
        if self._enabled:
            sys.stdout, sys.stderr, logging.lastResort = self._before
            logging.getLogger().removeHandler(self._handler)
            _active = None

    def texts(self) -> tuple[str, str]:
        """Output and error output, safe to store and to show."""
        return _text(self._pair[0]), _text(self._pair[1])

    def leave_to_parent(self) -> None:
        """In a process that the function forked: it prints where the worker does, as every child process."""
        self.__exit__(None, None, None)
        for kept in self._pair:
            kept.part()


_active: Capture | None = None


def texts() -> tuple[str, str]:
    """Output and error output of the last run in the shared memory, dead or alive. It never raises."""
    output, error_output = ring_buffer.pair()
    return _text(output), _text(error_output)


def _after_fork() -> None:
    if _active is not None:
        _active.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


# --- Streams -------------------------------------------------------------------------------------------------


class _Bytes(io.RawIOBase):
    """The bytes behind a stream: never closed, so that whoever wraps and drops them harms nothing."""

    def __init__(self, kept: Ring, original: TextIO | None, name: str) -> None:
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
        """The original's: a child process may be given it, and faulthandler."""
        if self._original is None:
            raise io.UnsupportedOperation("fileno")
        return self._original.fileno()

    def close(self) -> None:
        pass


class _Stream(io.TextIOWrapper):
    """Text of any content, in UTF-8 whatever it is reconfigured to. Each write is kept at once, flushed or not."""

    def __init__(self, kept: Ring, original: TextIO | None, name: str) -> None:
        super().__init__(_Bytes(kept, original, name), encoding="utf-8", errors="backslashreplace", newline="\n")
        self._kept = kept

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            return super().write(text)  # which raises what everybody knows
        if len(text) <= PIECE:
            self._kept.write(text.encode("utf-8", "backslashreplace"))
        else:
            for begin in range(0, len(text), PIECE):
                self.write(text[begin : begin + PIECE])
        return len(text)


# --- Logging -------------------------------------------------------------------------------------------------


def log_handler(stream: TextIO) -> logging.Handler:
    """Records as lines: time in UTC, level, logger, message, traceback."""
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%SZ")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    return handler


def add_log_handler(handler: logging.Handler) -> None:
    """Beside the handlers of the root logger; in the place of Python's last resort where there are none.

    A root logger with a handler would turn the function's own `logging.basicConfig` into nothing.
    """
    root = logging.getLogger()
    if root.handlers:
        root.addHandler(handler)
    else:
        logging.lastResort = handler


# --- Texts ---------------------------------------------------------------------------------------------------


def _text(kept: Ring) -> str:
    head, left_out, tail = kept.read()
    if not left_out:
        return serialize.visible((head + tail).decode("utf-8", "replace"))
    begin, cut_off = _whole_at_end(head)
    end = _whole_at_begin(tail)
    left_out += cut_off + len(tail) - len(end)
    line_end = "" if begin.endswith("\n") else "\n"
    return serialize.visible(f"{begin}{line_end}[... {left_out} bytes left out ...]\n{end.decode('utf-8', 'replace')}")


def _whole_at_end(data: bytes) -> tuple[str, int]:
    """The text of these bytes without a character that is cut in two at their end; how many bytes of it there are."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    return text, len(decoder.getstate()[0])


def _whole_at_begin(data: bytes) -> bytes:
    """Without the rest of a character that was cut in two: at most three bytes."""
    return data[:3].lstrip(_CONTINUES) + data[3:]
