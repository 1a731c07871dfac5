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
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from ticker.task import Outcome
from wrappers import page

_SIZE = 512 * 1024  # bytes: more than the longest result, reason and traceback together
_LENGTH = 8


@dataclass(frozen=True, slots=True)
class End:
    """What is written of a run's end. `result` is JSON text."""

    outcome: Outcome
    reason: str = ""
    result: str | None = None
    traceback: str = ""
    pieces: str | None = None
    """A JSON array of pieces of work, for which the run waits."""
    output: str = ""
    error_output: str = ""


Left = tuple[int, str, float, End]
"""The id of a task, the token of its run, until when its end is tried to be written (`limits.now`), and that end."""


class Word(Enum):
    """What a horse says to its worker."""

    LEFT = b"."
    """An end is there."""
    DONE = b"!"
    """The job has succeeded, and RQ has not been told."""


_memory: mmap.mmap | None = None
_bell: tuple[int, int] = (-1, -1)


def share() -> None:
    """Makes the memory, unless there is some already, and the pipe for words; for this process and its forks."""
    global _memory, _bell
    if _memory is None:
        _memory, _bell = mmap.mmap(-1, _SIZE), os.pipe()
        os.set_blocking(_bell[0], False)


def begin() -> None:
    """For a new job: no end yet, and no word."""
    clear()
    with suppress(BlockingIOError):
        while _memory is not None:
            os.read(_bell[0], 4096)


def leave(task_id: int, token: str, until: float, end: End) -> bool:
    """A run's end, for the worker; False where nobody would read it.

    So it is where it hands out pieces of work, and where the end before it still lies there.
    """
    if not _is_heard() or _memory is None or end.pieces is not None or any(_memory[:_LENGTH]):
        return False
    fields = (
        task_id,
        token,
        until,
        end.outcome,
        end.reason,
        end.result,
        end.traceback,
        None,
        end.output,
        end.error_output,
    )
    text = json.dumps(fields).encode()
    if len(text) > _SIZE - _LENGTH:
        return False
    _memory[_LENGTH : _LENGTH + len(text)] = text
    _memory[:_LENGTH] = len(text).to_bytes(_LENGTH, "little")  # last: a killed writer leaves all of it or nothing
    os.write(_bell[1], Word.LEFT.value)
    return True


def leave_success() -> bool:
    """The horse's last word: the worker tells RQ. False where nobody would hear it."""
    if not _is_heard():
        return False
    os.write(_bell[1], Word.DONE.value)
    return True


def _is_heard() -> bool:
    """Not so in a process that the function forked, nor under a stock worker."""
    return _memory is not None and page.horse() == os.getpid()


def left() -> Left | None:
    """What the horse left, dead or alive; None when there is nothing."""
    length = int.from_bytes(_memory[:_LENGTH], "little") if _memory is not None else 0
    if not length or _memory is None:
        return None
    task_id, token, until, outcome, *rest = json.loads(_memory[_LENGTH : _LENGTH + length])
    return task_id, token, until, End(Outcome(outcome), *rest)


def clear() -> None:
    """It is written: there is room for the next one."""
    if _memory is not None:
        _memory[:_LENGTH] = bytes(_LENGTH)


def words(horse: int) -> Iterator[Word]:
    """As the horse says them, until it is dead. Where a dead one cannot be waited for in this way, not at all."""
    try:
        death = os.pidfd_open(horse)
    except (AttributeError, OSError):
        return
    try:
        both = select.poll()
        both.register(_bell[0], select.POLLIN)
        both.register(death, select.POLLIN)
        while any(file == _bell[0] for file, _ in both.poll()):
            yield Word(os.read(_bell[0], 1))
    finally:
        os.close(death)


def unheard() -> Iterator[Word]:
    """What a dead horse had said, and nobody has heard."""
    with suppress(BlockingIOError):
        while _memory is not None:
            yield Word(os.read(_bell[0], 1))
