"""Signals that ask a process to end, noted without a lock.

A handler runs in the midst of whatever the main thread does. If that is the wait for an Event, or another handler that sets
it, a handler that sets the Event waits for the Event's lock, whose holder it has interrupted: for ever.
"""

import os
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType


class Noted:
    """Whether one of the signals came; in the main thread only."""

    def __init__(self, pipe: int) -> None:
        self.came = False
        self._pipe = pipe

    def note(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True

    def wait(self, seconds: float) -> bool:
        """Sleeps; as soon as one comes, or has come: True."""
        if not self.came:
            select.select([self._pipe], [], [], seconds)
            with suppress(BlockingIOError):
                os.read(self._pipe, 4096)
        return self.came


@contextmanager
def noted(numbers: Sequence[signal.Signals]) -> Iterator[Noted]:
    """Within the block the signals are noted, however often they come."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    found = Noted(read)
    woken_before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    before = {number: signal.signal(number, found.note) for number in numbers}
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken_before)
        os.close(read)
        os.close(write)
