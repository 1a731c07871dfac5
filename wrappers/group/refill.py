"""Gives the process of a group further jobs while its runs are at work, so that no slot waits for the slowest run.

The worker creates a `Pipe` before the fork. The process sends `MORE` when it has fewer unstarted tasks than free slots.
It sends the id of each job whose tasks have all started, were refused, or were given back. The worker sends jobs.
"""

import json
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from wrappers.sandbox import handoff, limits

LIFE = 600.0  # seconds after which a process requests no further job, so that its worker can do its own maintenance
MORE = ""


class GivenJob(NamedTuple):
    """A job that the worker passes on.

    `timeout` is RQ's timeout plus a tick, in seconds; 0 or less means no timeout. `numbers` are the arguments of
    `wrappers.run_batch`. `deadline` is the instant of `limits.now` at which the process is killed, unless a later job
    extends it.
    """

    job_id: str
    timeout: int
    deadline: float
    numbers: list[int]


class Pipe:
    """Connects a worker with the process of a group. Each of the two keeps both ends open."""

    def __init__(self) -> None:
        self._worker, self._process = multiprocessing.Pipe()

    # for the worker

    def heard(self) -> Iterator[str]:
        """Yields what the process has sent: `MORE`, or the id of a job that no longer needs this process."""
        while self._worker.poll():
            yield json.loads(self._worker.recv_bytes())

    def give(self, job: GivenJob) -> None:
        self._worker.send_bytes(json.dumps(job).encode())

    def unread(self) -> Iterator[str]:
        """Yields the ids of the jobs that the process did not take before it ended."""
        while self._process.poll():
            yield GivenJob(*json.loads(self._process.recv_bytes())).job_id

    def close(self) -> None:
        self._worker.close()
        self._process.close()

    # for the process

    def fileno(self) -> int:
        return self._process.fileno()

    def send(self, text: str) -> None:
        with suppress(OSError):  # the worker is gone, and this process will be killed
            self._process.send_bytes(json.dumps(text).encode())
            handoff.ring()

    def take(self) -> GivenJob:
        return GivenJob(*json.loads(self._process.recv_bytes()))


class Refill:
    """Requests jobs for a group, one at a time, and reports those that have no unstarted tasks left."""

    def __init__(self, pipe: Pipe, take_in: Callable[[GivenJob], None]) -> None:
        self._pipe, self._take_in = pipe, take_in
        self._is_asked = False
        self._ends_at = limits.now() + LIFE

    def fileno(self) -> int:
        return self._pipe.fileno()

    def ask(self) -> None:
        """Requests a job, unless one is already requested. It may take a long time until the worker has one."""
        if not self._is_asked and limits.now() < self._ends_at:
            self._is_asked = True
            self._pipe.send(MORE)

    def take(self) -> None:
        """Takes in the job that has arrived. Puts RQ's alarm for the earlier jobs off for this one, if it ends later."""
        job = self._pipe.take()
        self._is_asked = False
        if job.timeout > 0:
            signal.alarm(max(job.timeout, signal.alarm(0)))
        self._take_in(job)

    def let_go(self, job_id: str) -> None:
        """Reports to the worker that this job has no unstarted tasks left."""
        self._pipe.send(job_id)
