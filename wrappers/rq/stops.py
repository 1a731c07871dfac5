"""Stops runs of the current process, as a tick requests on the worker's channel. Holds back other signals meanwhile."""

import json
import logging
import os
import signal
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ticker.engine import jobs
from wrappers.sandbox import handoff, limits, shared_state

log = logging.getLogger("ticker.run")

AT_MOST = 1000  # requests that wait for the main thread
GRACE = 2.0  # seconds from the signal until the process of a single run is killed


class Stops:
    """Notes requests in the thread that listens to the channel, and carries them out in the main thread."""

    def __init__(self) -> None:
        self._requested: deque[str] = deque(maxlen=AT_MOST)  # tokens
        self._kill_at: dict[str, float] = {}  # by token

    def note(self, message: Mapping[str, Any]) -> bool:
        """Notes the request in a message, and wakes the main thread. Returns False if the message is none of ours."""
        payload = json.loads(message["data"])
        if payload.get("command") != jobs.STOP:
            return False
        self._requested.append(str(payload.get("token")))
        handoff.ring()
        return True

    def pause(self) -> float | None:
        """Returns the seconds until a process has to be killed, or None."""
        return max(min(self._kill_at.values()) - limits.now(), 0.0) if self._kill_at else None

    def serve(self, horse: int) -> bool:
        """Interrupts requested runs. Returns whether to kill the process, because its run goes on. A run of a group has
        its box for that.

        A request for a run that is not open here is dropped: it has ended.
        """
        if not self._requested and not self._kill_at:
            return False
        opened = {run.token: run for run in shared_state.open_runs()}
        with alarm_held():
            while self._requested:
                if (run := opened.get(self._requested.popleft())) is not None:
                    log.warning(
                        "stopping task=%s name=%s owner=%s run=%s: a stop was requested",
                        run.task_id,
                        *shared_state.names_of(run)[1:],
                        run.run_id,
                        extra={"event": "run_stopping"},
                    )
                    shared_state.stop_run(run)
                    with suppress(ProcessLookupError):
                        os.kill(horse, limits.STOP_SIGNAL)
                    self._kill_at.setdefault(run.token, limits.now() + GRACE)
        over = {token for token, at in self._kill_at.items() if limits.now() >= at}
        self._kill_at = {token: at for token, at in self._kill_at.items() if token in opened and token not in over}
        return any(run.run_id and not run.deadline for token, run in opened.items() if token in over)


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
            left -= limits.now() - began
            if left > 0:
                signal.setitimer(signal.ITIMER_REAL, left)
            else:  # at once: a timer may be served so late that the next hold stops it again
                signal.raise_signal(signal.SIGALRM)


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
