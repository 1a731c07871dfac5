"""Holds back signals while the worker does what they must not interrupt."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from wrappers.sandbox import limits


@contextmanager
def alarm_held() -> Iterator[None]:
    """Holds back RQ's alarm, which would lose what the block has read or taken. Its time goes on, to the fraction of a
    second.

    `signal.alarm` returns whole seconds, rounded up: a hold every half second would put the alarm off forever.
    """
    began, (left, _) = limits.now(), signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (limits.now() - began), 1e-6))


@contextmanager
def stop_signals_held() -> Iterator[None]:
    """Holds back stop signals until the end of the block, so that RQ's handlers know the horse.

    A signal mask is not enough: another thread may receive the signal, and Python runs its handler in this one.
    """
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    held: list[int] = []
    for signum in handlers:
        signal.signal(signum, lambda signum, _: held.append(signum))
    try:
        yield
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
        for came in held:
            signal.raise_signal(came)
