"""Signals that come one into the other, and into the wait for them, are noted; nobody waits for a lock."""

import os
import signal

from ticker.signals import noted

BOTH = (signal.SIGTERM, signal.SIGINT)


def test_a_signal_ends_the_wait_for_it():
    with noted(BOTH) as found:
        os.kill(os.getpid(), signal.SIGTERM)
        assert found.wait(60) and found.came


def test_a_thousand_signals_into_each_other_are_one():
    with noted(BOTH) as found:
        pid = os.fork()
        if pid == 0:
            for number in range(1000):
                os.kill(os.getppid(), BOTH[number % 2])
            os._exit(0)
        while not found.wait(0.001):
            pass
        os.waitpid(pid, 0)
        assert found.wait(0)


def test_other_signals_wake_it_and_are_none():
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    with noted(BOTH) as found:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert not found.wait(0.01)
    signal.signal(signal.SIGUSR1, before)


def test_behind_the_block_all_is_as_it_was():
    before = [signal.getsignal(number) for number in BOTH]
    with noted(BOTH):
        assert [signal.getsignal(number) for number in BOTH] != before
    assert [signal.getsignal(number) for number in BOTH] == before
    assert signal.set_wakeup_fd(-1) == -1
