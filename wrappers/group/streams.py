"""Keeps the output and logs of each run of a group apart, by the context of its coroutine or thread.

    with Streams():
        ...
        current.set(Output(slot))    # in the run's own context
        print("kept with this run")

Text that is printed outside a run goes to the process's own output. Under our Worker, that output is kept like the output
of child processes (see `output_pipes`): with each run of the group that was active at that time.
"""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from typing import TextIO

from wrappers.pipeline.output import Stream, add_log_handler, log_handler, texts_in_group
from wrappers.sandbox import output_pipes, ring_buffer


class Output:
    """Keeps what one run prints, in memory that outlives this process."""

    def __init__(self, slot: int) -> None:
        self._pair = ring_buffer.pair_of(slot)
        self._is_closed = False
        for number, kept in enumerate(self._pair):
            kept.empty(mark=output_pipes.written(number))

    def write(self, number: int, data: bytes | memoryview) -> None:
        if not self._is_closed:
            self._pair[number].write(data)

    def close(self) -> tuple[str, str]:
        """Returns the output and the error output, safe to store and to show. Later writes are not kept."""
        self._is_closed = True
        return texts_in_group(self._pair)


current: ContextVar[Output | None] = ContextVar("ticker_output", default=None)


class _ToItsRun:
    """Replaces a ring. Passes each write to the output of the current run, or to the original stream."""

    def __init__(self, number: int, original: TextIO | None) -> None:
        self._number, self._original = number, original

    def write(self, data: bytes | memoryview) -> None:
        if (output := current.get()) is not None:
            output.write(self._number, data)
        elif self._original is not None:
            self._original.write(bytes(data).decode("utf-8", "replace"))


class Streams:
    """Replaces sys.stdout and sys.stderr, and adds a log handler, for all runs of a group."""

    def __enter__(self) -> None:
        self._before = sys.stdout, sys.stderr, logging.lastResort
        self._is_redirected = output_pipes.redirect()
        errors = Stream(_ToItsRun(1, sys.stderr), sys.stderr, "<stderr>")
        self._handler = log_handler(errors)
        self._handler.addFilter(
            lambda _: current.get() is not None
        )  # records from outside a run have their own handler
        add_log_handler(self._handler)
        sys.stdout, sys.stderr = Stream(_ToItsRun(0, sys.stdout), sys.stdout, "<stdout>"), errors

    def __exit__(self, *_: object) -> None:
        sys.stdout, sys.stderr, logging.lastResort = self._before
        logging.getLogger().removeHandler(self._handler)
        if self._is_redirected:
            output_pipes.restore()
