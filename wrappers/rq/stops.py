"""Stops runs of the current process, as a tick requests on the worker's channel."""

import json
import logging
import os
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ticker.engine import jobs
from wrappers.rq.held_signals import alarm_held
from wrappers.sandbox import handoff, limits, shared_state

if TYPE_CHECKING:
    from wrappers.rq.worker import Worker

log = logging.getLogger("ticker.run")

AT_MOST = 1000  # requests that wait for the main thread
GRACE = 2.0  # seconds from the signal until the process of a single run is killed


class Stops:
    """Notes requests in the thread that listens to the channel, and carries them out in the main thread."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
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

    def serve(self) -> None:
        """Interrupts requested runs, and kills the process of one that goes on. A run of a group has its box for that.

        A request for a run that is not open here is dropped: it has ended.
        """
        if not self._requested and not self._kill_at:
            return
        opened = {run.token: run for run in shared_state.open_runs()}
        with alarm_held():
            while self._requested:
                if (run := opened.get(self._requested.popleft())) is not None:
                    log.warning(
                        "stopping task=%s name=%s owner=%s run=%s: a stop was requested",
                        run.task_id,
                        *shared_state.names_of(run),
                        run.run_id,
                        extra={"event": "run_stopping"},
                    )
                    shared_state.stop_run(run)
                    with suppress(ProcessLookupError):
                        os.kill(self._worker.horse_pid, limits.STOP_SIGNAL)
                    self._kill_at.setdefault(run.token, limits.now() + GRACE)
        for token, at in [*self._kill_at.items()]:
            run = opened.get(token)
            is_over = limits.now() >= at
            if run is None or is_over:
                del self._kill_at[token]
            if run is not None and is_over and run.run_id and not run.deadline:
                self._worker.kill_stopped_horse()
