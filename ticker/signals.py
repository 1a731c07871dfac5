"""Records, without a lock, the signals that ask a process to end.

A handler interrupts whatever the main thread is doing. The main thread may hold an Event's lock, because it waits for
the Event or runs another handler that sets it. A handler that sets the Event would then wait for that lock forever.
"""

import os
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType


class Noted:
    """Records whether one of the signals was received. Only the main thread may wait."""

    def __init__(self, read: int, write: int) -> None:
        self.came = False
        self._read, self._write = read, write

    def note(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True

    def wait(self, seconds: float) -> bool:
        """Sleeps until a signal arrives, a thread calls `end_wait`, or the time is up. Returns whether a signal has
        arrived.
        """
        if not self.came:
            select.select([self._read], [], [], seconds)
            with suppress(BlockingIOError):
                os.read(self._read, 4096)
        return self.came

    def end_wait(self) -> None:
        """Ends the current wait, or the next one. Any thread may call it."""
        with suppress(OSError):  # the pipe is full, or closed
            os.write(self._write, b"\0")


@contextmanager
def noted(numbers: Sequence[signal.Signals]) -> Iterator[Noted]:
    """Records the signals that arrive within the block, however many."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signals = Noted(read, write)
    woken_before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    before = {number: signal.signal(number, signals.note) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken_before)
        signals._write = -1  # a thread may still call `end_wait`, when another file has this number
        os.close(read)
        os.close(write)
