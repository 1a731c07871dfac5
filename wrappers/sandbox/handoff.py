"""Passes a run's end from the horse to the worker, which writes it.

Under our Worker, a horse leaves the end in memory that both share. The worker writes it at once, on a connection that
is already open. So the end survives if the horse is killed right afterwards. In a batch, the next task can start
meanwhile. After a success, the worker also reports to RQ, so the horse does not contact Redis.

A stock worker has no such memory, so its horse itself writes the end and reports to RQ.
"""

import errno
import json
import mmap
import os
import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import NamedTuple

from ticker.model import Outcome
from wrappers.sandbox import limits, shared_state

# Bytes: enough for nearly any result, reason, traceback and output together. The horse writes a longer end itself.
_LONGEST = 512 * 1024
_SIZE = 8 * _LONGEST  # bytes of ends that may wait for a busy worker; unused pages take no memory
STOPPED = "stopped"  # the reason of a run that was stopped; the statement that writes the end adds by whom
_LENGTH = 8
_COUNTS = struct.Struct("<QQ")  # bytes that the horse has left, and how many of them the worker has taken
_LISTENS, _SUCCEEDED = _COUNTS.size, _COUNTS.size + 1
_HEAD = 32
AT_ONCE = 4096  # bytes of a bell that are read at a time


@dataclass(frozen=True, slots=True)
class End:
    """The record of a run's end. `result` is JSON text."""

    outcome: Outcome
    reason: str = ""
    result: str | None = None
    traceback: str = ""
    output: str = ""
    error_output: str = ""
    pid: int | None = None
    """The process that ran the function, if any did."""
    pieces: str | None = None
    """A JSON array of the last pieces of work, after those that are already recorded. The run waits for all of them."""
    made: int = 0
    """How many pieces are already recorded."""
    at: float = field(default_factory=limits.now)
    """When the run ended, an instant of `limits.now`."""
    suspect_count: int = 0
    """How many runs were active when its process died of an unknown cause. If there were several, their tasks are
    suspects.
    """
    closed_key: str = ""
    """The key that is closed from `at`, for `closed_ms` milliseconds. With None, how often it was closed decides how
    long.
    """
    closed_ms: int | None = None


_fields_of = attrgetter(*(field.name for field in fields(End)))  # a quarter of the time of `astuple`, once per run


class PendingEnd(NamedTuple):
    """An end that another process writes. `run_id` is 0 if the start was not answered.

    `has_keys` tells that the run has slots. If it does not, the statement that writes the end finds out.
    """

    task_id: int
    run_id: int
    token: str
    end: End
    has_keys: bool = False

    def packed(self) -> bytes:
        return json.dumps((*self[:3], self.has_keys, *_fields_of(self.end))).encode()

    @classmethod
    def unpacked(cls, text: bytes) -> "PendingEnd":
        task_id, run_id, token, has_keys, outcome, *rest = json.loads(text)
        return cls(task_id, run_id, token, End(Outcome(outcome), *rest), has_keys)


class OwnPipe:
    """A pipe between our processes, which reads without waiting.

    The function of a run may close it, and then open a file that gets its number. Such a file is neither read nor
    written.
    """

    def __init__(self) -> None:
        self.reader, self.writer = self._ends = os.pipe()
        os.set_blocking(self.reader, False)
        self._known = self._identities()

    def read(self, size: int) -> bytes:
        """Returns nothing if the pipe is empty. Raises OSError if it was closed."""
        self._check()
        with suppress(BlockingIOError):
            return os.read(self.reader, size)
        return b""

    def ring(self) -> None:
        """Writes one byte, which wakes whoever waits for it."""
        with suppress(OSError):  # the function closed the pipe
            self._check()
            os.write(self.writer, b".")

    def _check(self) -> None:
        if self._identities() != self._known:
            raise OSError(errno.EBADF, "the pipe was closed")

    def _identities(self) -> list[tuple[int, int]]:
        return [(found.st_dev, found.st_ino) for found in map(os.fstat, self._ends)]


_memory: mmap.mmap | None = None
_leaving = threading.Lock()  # because the threads of a group share the memory
_bell: OwnPipe | None = None
_worker = 0
_saw_death = True


def share() -> None:
    """Creates the memory and the pipe that announces an end, unless they exist. Forks of this process inherit both."""
    global _memory, _bell
    if _memory is None:
        _memory, _bell = mmap.mmap(-1, _HEAD + _SIZE), OwnPipe()


def begin() -> None:
    """Resets the memory for a new job of this worker."""
    global _worker, _saw_death
    _worker, _saw_death = os.getpid(), True
    if _memory is not None and _bell is not None:
        _memory[:_HEAD] = bytes(_HEAD)
        _bell.read(AT_ONCE)


@contextmanager
def listening() -> Iterator[None]:
    """Makes the worker read the ends that its horse leaves, within the block. Otherwise the horse does everything
    itself.
    """
    if _memory is None:
        yield
        return
    _memory[_LISTENS] = 1
    try:
        yield
    finally:
        _memory[_LISTENS] = 0


def leave(left: PendingEnd) -> bool:
    """Leaves a run's end for the worker. Returns False if no worker would read it, or if it does not fit."""
    if not _is_heard() or _memory is None:
        return False
    text = left.packed()
    with _leaving:
        put, taken = _COUNTS.unpack_from(_memory)
        if len(text) > _LONGEST or put - taken + _LENGTH + len(text) > _SIZE:
            return False
        _write(_memory, put, len(text).to_bytes(_LENGTH, "little") + text)
        put += _LENGTH + len(text)
        _memory[:_LENGTH] = put.to_bytes(_LENGTH, "little")  # last: a killed writer leaves all or nothing
        ring()
    return True


def ring() -> None:
    """Wakes the worker if it waits in `wait`."""
    if _bell is not None:
        _bell.ring()


def leave_success() -> bool:
    """Lets the worker report the job's success to RQ. Returns False if no worker would read that."""
    if not _is_heard() or _memory is None:
        return False
    _memory[_SUCCEEDED] = 1
    return True


def _is_heard() -> bool:
    """Returns whether our worker is alive and listening. Returns False in a process that the function forked."""
    return (
        _memory is not None
        and shared_state.horse() == os.getpid()
        and _memory[_LISTENS] == 1
        and os.getppid() == _worker
    )


def left() -> list[bytes]:
    """Returns the ends that the horse left and that are not written yet, in order, each as a packed `PendingEnd`."""
    if _memory is None:
        return []
    put, at = _COUNTS.unpack_from(_memory)
    texts = []
    while at < put:
        length = int.from_bytes(_read(_memory, at, _LENGTH), "little")
        texts.append(_read(_memory, at + _LENGTH, length))
        at += _LENGTH + length
    return texts


def _write(memory: mmap.mmap, at: int, data: bytes) -> None:
    """Writes into the ring. What does not fit before its end continues at its beginning."""
    begin, fits = _HEAD + at % _SIZE, _SIZE - at % _SIZE
    memory[begin : begin + len(data[:fits])] = data[:fits]
    memory[_HEAD : _HEAD + len(data[fits:])] = data[fits:]


def _read(memory: mmap.mmap, at: int, length: int) -> bytes:
    begin, fits = _HEAD + at % _SIZE, _SIZE - at % _SIZE
    return memory[begin : begin + min(length, fits)] + memory[_HEAD : _HEAD + max(length - fits, 0)]


def has_succeeded() -> bool:
    return _memory is not None and _memory[_SUCCEEDED] == 1


def clear(text: bytes) -> None:
    """Frees the memory of the oldest end. `text` is that end."""
    if _memory is not None:
        _, taken = _COUNTS.unpack_from(_memory)
        _memory[_LENGTH : _COUNTS.size] = (taken + _LENGTH + len(text)).to_bytes(_LENGTH, "little")


def wait(horse: int, seconds: float | None = None) -> bool:
    """Waits until the horse leaves an end or `seconds` have passed. Returns False if the horse is dead.

    Also returns False, at once, if the system does not support this wait.
    """
    global _saw_death
    with _death_of(horse) as both:
        if _bell is None or both is None:
            return False
        _saw_death = not both.poll(0)
        both.register(_bell.reader, select.POLLIN)
        heard = both.poll(None if seconds is None else 1000 * seconds)
    _bell.read(AT_ONCE)
    return not heard or any(file == _bell.reader for file, _ in heard)


def wait_for_more(horse: int, seconds: float) -> None:
    """Waits for `seconds` while the horse is alive, so that the ends which it leaves meanwhile are written together."""
    with _death_of(horse) as death:
        if death is not None:
            death.poll(1000 * max(seconds, 0.0))


@contextmanager
def _death_of(horse: int) -> Iterator["select.poll | None"]:
    """Yields what hears the death of the horse, or None if it is gone, or if the system does not support this."""
    try:
        death = os.pidfd_open(horse)
    except (AttributeError, OSError):
        yield None
        return
    try:
        heard = select.poll()
        heard.register(death, select.POLLIN)
        yield heard
    finally:
        os.close(death)


def saw_death() -> bool:
    """Returns whether the horse died during the last wait, not at some time before it."""
    return _saw_death
