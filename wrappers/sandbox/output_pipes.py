"""Keeps what the process of a run and its child processes write to the file descriptors 1 and 2, past Python's streams.

During a run, both descriptors are pipes. A thread of the worker moves what arrives into shared memory, so that a pipe
is never full for long, even while the worker writes an end or waits for Redis. If the worker is stopped or dead, its
supervisor does the same. The process of the run moves the bytes on, into the memory of its own prints, before each
print and at its end. So the order of the two is kept, and what a dead process left in a pipe is not lost.

Each of these processes holds the reading ends, so a writer never dies of SIGPIPE because one of them has died. If a
process outlives its job, its pipes are closed, and later jobs get new ones.

Linux only, and only under our Worker. Elsewhere, the descriptors are those of the worker.
"""

import ctypes
import io
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import ioctl
from functools import cache
from termios import FIONREAD

from wrappers.sandbox import limits, ring_buffer, shared_state
from wrappers.sandbox.handoff import OwnPipe
from wrappers.sandbox.ring_buffer import Ring

CHUNK = 64 * 1024  # bytes: what a pipe holds
CHUNKS = 16  # that are read at a time, so that a process that writes on and on does not hold up its reader
PATIENCE = 0.1  # seconds to wait for another process that moves bytes, because it may be stopped

_NONE = bytes(4)  # what FIONREAD returns for an empty pipe
_LINE_BUFFERED = 1  # _IOLBF of glibc and musl
_C = ctypes.CDLL(None)


class Pipe(OwnPipe):
    """The pipe of a file descriptor, and the memory for what arrives on it. An exec closes both of its ends."""

    def __init__(self, file: int, arrived: Ring) -> None:
        self.file, self.arrived, self._generation = file, arrived, arrived.mark + 1
        super().__init__()

    def waiting(self) -> int:
        """Returns the number of bytes in the pipe."""
        return int.from_bytes(ioctl(self.reader, FIONREAD, _NONE), sys.byteorder)

    def has_news(self) -> bool:
        """Returns whether bytes have arrived. Each print asks, so this takes little more than its system call."""
        return ioctl(self.reader, FIONREAD, _NONE) != _NONE or self.arrived.has_news

    def take_in(self) -> None:
        """Moves bytes from the pipe into the memory, or drops them if a newer pipe is in use."""
        self.arrived.announce(True)  # before they have left the pipe, so that a print meanwhile waits for them
        for _ in range(CHUNKS):
            if not (data := self.read(CHUNK)):
                break
            if self.arrived.mark == self._generation:
                self.arrived.write(data)
        self.arrived.announce(False)

    def empty(self) -> None:
        """Drops what has arrived."""
        if self.has_news() or self.arrived.mark != self._generation:
            with _turn():
                self.take_in()
                self.arrived.empty(self._generation)


_pipes: tuple[Pipe, ...] = ()
_turns: OwnPipe | None = None  # a pipe with one byte, which is taken out by whoever moves bytes
_own: tuple[int, ...] = ()  # duplicates of the worker's own descriptors 1 and 2
_watched: "select.epoll | None" = None


def share() -> None:
    """Creates the pipes, unless they exist. Later forks of this process inherit them."""
    global _pipes, _turns
    ring_buffer.share()
    if sys.platform == "linux" and not _pipes:
        _pipes, _turns = _new_pipes(), OwnPipe()
        _turns.ring()


def _new_pipes() -> tuple[Pipe, ...]:
    return tuple(map(Pipe, (1, 2), ring_buffer.arrived()))


# --- In the worker -------------------------------------------------------------------------------------------


def begin(*, are_held: bool) -> None:
    """Empties the memory and the pipes for a new job. `are_held`: replaces pipes that an earlier job's process holds.

    Also flushes this process's streams, so that the fork does not inherit what they have not written.
    """
    for ring in ring_buffer.pair():
        ring.empty()
    if not _pipes:
        return
    if _watched is None:
        _start()
    if are_held:
        _replace()
    _flush()
    for pipe in _pipes:
        pipe.empty()


def _start() -> None:
    """Starts the thread that empties the pipes. Separates the log lines of this process from what its forks write.

    Python's original streams and C's write each line at once from now on, as on a terminal, for order and for a kill.
    """
    global _own, _watched
    for stream in (sys.__stdout__, sys.__stderr__):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    _C.setvbuf(_stdout_of_c(), None, _LINE_BUFFERED, 0)
    with suppress(OSError):  # the worker has no output
        _own = os.dup(1), os.dup(2)
        _log_to(_own)
    _watched = select.epoll()
    for pipe in _pipes:
        _watched.register(pipe.reader, select.EPOLLIN)
    threading.Thread(target=_relay, args=(_watched,), name="ticker-output", daemon=True).start()


def _relay(watched: "select.epoll") -> None:
    while True:
        readers = {reader for reader, _ in watched.poll()}
        with suppress(OSError, MemoryError), _turn():
            for pipe in _pipes:
                if pipe.reader in readers:
                    pipe.take_in()


def _replace() -> None:
    global _pipes
    assert _watched is not None
    with _turn():
        before, _pipes = _pipes, _new_pipes()
        for old, new in zip(before, _pipes, strict=True):
            _watched.unregister(old.reader)
            _watched.register(new.reader, select.EPOLLIN)
            os.close(old.reader)
            os.close(old.writer)


def _log_to(own: tuple[int, ...]) -> None:
    """Makes log handlers write to duplicates of the worker's output, and not to the pipes of a run."""
    duplicates = {
        stream: os.fdopen(copy, "w", encoding=stream.encoding, errors=stream.errors, buffering=1, closefd=False)
        for stream, copy in zip((sys.__stdout__, sys.__stderr__), own, strict=True)
        if stream is not None
    }
    for logger in (logging.getLogger(), *logging.Logger.manager.loggerDict.values()):
        for handler in getattr(logger, "handlers", ()):  # a placeholder has none
            if isinstance(handler, logging.StreamHandler) and handler.stream in duplicates:
                handler.setStream(duplicates[handler.stream])


# --- In the process of a run ---------------------------------------------------------------------------------


def redirect() -> bool:
    """Makes the descriptors 1 and 2 pipes, for this process and its children. Returns False if they stay the worker's."""
    if not _own or shared_state.horse() != os.getpid():
        return False
    for pipe in _pipes:
        pipe.empty()  # of what was written between two runs of a job
        os.dup2(pipe.writer, pipe.file)
    return True


def restore() -> None:
    """Makes the descriptors those of the worker again."""
    _flush()
    for own, pipe in zip(_own, _pipes, strict=True):
        with suppress(OSError):  # the function closed it
            os.dup2(own, pipe.file)


def _flush() -> None:
    """Flushes Python's original streams and C's."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(Exception):  # it is None or closed, or its reader is gone
            stream.flush()  # type: ignore[union-attr]
    _C.fflush(_stdout_of_c())


@cache
def _stdout_of_c() -> ctypes.c_void_p:
    return ctypes.c_void_p.in_dll(_C, "stdout")


# --- In all processes ------------------------------------------------------------------------------------------


def pass_on(number: int, kept: Ring | None = None) -> int:
    """Moves what has arrived on a pipe, 0 or 1, into the memory of a run's prints, if `kept` is passed.

    Otherwise, returns the number of bytes that have arrived since the job began. In a group, they are not moved on.
    """
    if not _pipes:
        return 0
    pipe = _pipes[number]
    try:
        if pipe.has_news():
            with _turn():
                pipe.take_in()
                if kept is not None:
                    pipe.arrived.move_to(kept)
    except OSError:  # the function closed the pipe
        pass
    return pipe.arrived.written


def relieve() -> bool:
    """Empties each pipe that is half full, because its worker may be stopped or dead. Returns whether one was."""
    full = [pipe for pipe in _pipes if pipe.waiting() >= CHUNK // 2]
    for pipe in full:
        with _turn():
            pipe.take_in()
    return bool(full)


@contextmanager
def _turn() -> Iterator[None]:
    """Lets one thread of one process at a time move bytes. Goes on after `PATIENCE`: another may be stopped, or dead."""
    assert _turns is not None
    give_up_at = limits.now() + PATIENCE
    try:
        while not _turns.read(CHUNK) and limits.now() < give_up_at:  # also reads what was put back late
            time.sleep(0.0005)
        yield
    finally:
        _turns.ring()
