"""How a run ended, and who writes it down.

Under our Worker a horse leaves its end in memory that both share, and the worker writes it at once, on a connection that
it has open anyway, while the horse still talks to Redis. So an end is also there when its horse was killed right behind
it. Under a stock worker there is no such memory, and the horse writes its end itself.
"""

import json
import mmap
import os
import select
from contextlib import suppress
from dataclasses import astuple, dataclass

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


_memory: mmap.mmap | None = None
_bell: tuple[int, int] = (-1, -1)


def share() -> None:
    """Makes the memory, unless there is some already, and the pipe that tells of an end; for this process and its forks."""
    global _memory, _bell
    if _memory is None:
        _memory, _bell = mmap.mmap(-1, _SIZE), os.pipe()
        os.set_blocking(_bell[0], False)


def begin() -> None:
    """For a new job: no end yet."""
    if _memory is not None:
        _memory[:_LENGTH] = bytes(_LENGTH)
        with suppress(BlockingIOError):
            os.read(_bell[0], 4096)


def leave(end: End) -> bool:
    """The horse's last word to its worker; False where nobody would read it, or where it hands out pieces of work."""
    if _memory is None or page.horse() != os.getpid() or end.pieces is not None:
        return False
    text = json.dumps(astuple(end)).encode()
    if len(text) > _SIZE - _LENGTH:
        return False
    _memory[_LENGTH : _LENGTH + len(text)] = text
    _memory[:_LENGTH] = len(text).to_bytes(_LENGTH, "little")  # last: a killed writer leaves all of it or nothing
    os.write(_bell[1], b".")
    return True


def left() -> End | None:
    """What the horse left, dead or alive; None when there is nothing."""
    length = int.from_bytes(_memory[:_LENGTH], "little") if _memory is not None else 0
    if not length or _memory is None:
        return None
    outcome, *rest = json.loads(_memory[_LENGTH : _LENGTH + length])
    return End(Outcome(outcome), *rest)


def wait(horse: int) -> None:
    """Until the horse has left an end, or is dead. Where a dead one cannot be waited for in this way, not at all."""
    try:
        death = os.pidfd_open(horse)
    except (AttributeError, OSError):
        return
    try:
        both = select.poll()
        both.register(_bell[0], select.POLLIN)
        both.register(death, select.POLLIN)
        both.poll()
    finally:
        os.close(death)
