"""Records, without a lock, the signals that ask a process to end.

A handler interrupts whatever the main thread is doing. The main thread may hold an Event's lock, because it waits for the
Event or runs another handler that sets it. A handler that sets the Event would then wait for that lock forever.
"""

import os
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType


class Noted:
    """Records whether one of the signals was received. Only the main thread may use it."""

    def __init__(self, pipe: int) -> None:
        self.came = False
        self._pipe = pipe

    def note(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True

    def wait(self, seconds: float) -> bool:
        """Sleeps until a signal arrives or the time is up. Returns whether a signal has arrived."""
        if not self.came:
            select.select([self._pipe], [], [], seconds)
            with suppress(BlockingIOError):
                os.read(self._pipe, 4096)
        return self.came


@contextmanager
def noted(numbers: Sequence[signal.Signals]) -> Iterator[Noted]:
    """Records the signals that arrive within the block, however many."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signals = Noted(read)
    woken_before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    before = {number: signal.signal(number, signals.note) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken_before)
        os.close(read)
        os.close(write)
