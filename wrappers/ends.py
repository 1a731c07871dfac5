"""How a run ended, and who writes it down.

Under our Worker a horse leaves its end in memory that both share, and the worker writes it at once, on a connection that
it has open anyway. So an end is also there when its horse was killed right behind it; in a batch the next task begins
meanwhile. A horse whose job has succeeded leaves that to the worker, too, and talks to Redis not at all. Under a stock
worker there is no such memory, and the horse does both itself.
"""

import json
import mmap
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ticker.task import Outcome
from wrappers import page

# Bytes: nearly any result, reason, traceback and output together; a longer end is the horse's to write.
_SIZE = 512 * 1024
_LENGTH = 8
_LISTENS, _SUCCEEDED = 8, 9  # bytes behind the length
_HEAD = 16


@dataclass(frozen=True, slots=True)
class End:
    """What is written of a run's end. `result` is JSON text."""

    outcome: Outcome
    reason: str = ""
    result: str | None = None
    traceback: str = ""
    output: str = ""
    error_output: str = ""
    pieces: str | None = None
    """A JSON array of pieces of work, for which the run waits."""


Left = tuple[int, str, float, End]
"""The id of a task, the token of its run, until when its end is tried to be written (`limits.now`), and that end."""


_memory: mmap.mmap | None = None
_bell: tuple[int, int] = (-1, -1)
_worker = 0


def share() -> None:
    """Makes the memory, unless there is some already, and the pipe that tells of an end; for this process and its forks."""
    global _memory, _bell
    if _memory is None:
        _memory, _bell = mmap.mmap(-1, _SIZE), os.pipe()
        os.set_blocking(_bell[0], False)


def begin() -> None:
    """For a new job of this worker: nothing is left yet."""
    global _worker
    _worker = os.getpid()
    if _memory is not None:
        _memory[:_HEAD] = bytes(_HEAD)
        _silence()


@contextmanager
def listening() -> Iterator[None]:
    """The block in which the worker minds what its horse leaves; at other times the horse does all by itself."""
    if _memory is None:
        yield
        return
    _memory[_LISTENS] = 1
    try:
        yield
    finally:
        _memory[_LISTENS] = 0


def leave(task_id: int, token: str, until: float, end: End) -> bool:
    """A run's end, for the worker; False where nobody would read it.

    So it is where it hands out pieces of work, and where the end before it still lies there.
    """
    if not _is_heard() or _memory is None or end.pieces is not None or any(_memory[:_LENGTH]):
        return False
    said = end.outcome, end.reason, end.result, end.traceback, end.output, end.error_output
    text = json.dumps((task_id, token, until, *said)).encode()
    if len(text) > _SIZE - _HEAD:
        return False
    _memory[_HEAD : _HEAD + len(text)] = text
    _memory[:_LENGTH] = len(text).to_bytes(_LENGTH, "little")  # last: a killed writer leaves all of it or nothing
    os.write(_bell[1], b".")
    return True


def leave_success() -> bool:
    """The horse's last word: the job has succeeded, and RQ has not been told. False where nobody would hear it."""
    if not _is_heard() or _memory is None:
        return False
    _memory[_SUCCEEDED] = 1
    return True


def _is_heard() -> bool:
    """Not so in a process that the function forked, under a stock worker, nor while ours does something else, or is dead."""
    return _memory is not None and page.horse() == os.getpid() and _memory[_LISTENS] == 1 and os.getppid() == _worker


def left() -> Left | None:
    """What the horse left, dead or alive; None when there is nothing."""
    length = int.from_bytes(_memory[:_LENGTH], "little") if _memory is not None else 0
    if not length or _memory is None:
        return None
    task_id, token, until, outcome, *rest = json.loads(_memory[_HEAD : _HEAD + length])
    return task_id, token, until, End(Outcome(outcome), *rest)


def has_succeeded() -> bool:
    return _memory is not None and _memory[_SUCCEEDED] == 1


def clear() -> None:
    """It is written: there is room for the next one."""
    if _memory is not None:
        _memory[:_LENGTH] = bytes(_LENGTH)


def wait(horse: int) -> bool:
    """Until the horse leaves an end, or (False) is dead. Where a dead one cannot be waited for in this way, not at all."""
    try:
        death = os.pidfd_open(horse)
    except (AttributeError, OSError):
        return False
    try:
        both = select.poll()
        both.register(_bell[0], select.POLLIN)
        both.register(death, select.POLLIN)
        is_left = any(file == _bell[0] for file, _ in both.poll())
    finally:
        os.close(death)
    _silence()
    return is_left


def _silence() -> None:
    with suppress(BlockingIOError):
        os.read(_bell[0], 4096)
