"""Gives the process of a group further jobs while its runs are at work, so that no slot waits for the slowest run.

The worker creates a `Pipe` before the fork. The process sends `MORE` when it has fewer unstarted tasks than free slots.
It sends the id of each job whose tasks have all started, were refused, or were given back. The worker answers with a job,
or says that it has none now, and sends one later.
"""

import json
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from wrappers.sandbox import handoff, limits

LIFE = 600.0  # seconds after which a process requests no further job, so that its worker can do its own maintenance
PATIENCE = 1.0  # seconds for which a process without tasks waits for the first answer to a request
MORE = ""


class GivenJob(NamedTuple):
    """A job that the worker passes on. `numbers` are the arguments of `wrappers.run_batch`."""

    job_id: str
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

    def give(self, job: GivenJob | None) -> None:
        """Sends a job to the process, or None if the worker has no job for it now."""
        self._worker.send_bytes(json.dumps(job).encode())

    def unread(self) -> Iterator[str]:
        """Yields the ids of the jobs that the process did not take before it ended."""
        while self._process.poll():
            if (job := self.take()) is not None:
                yield job.job_id

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

    def take(self) -> GivenJob | None:
        job = json.loads(self._process.recv_bytes())
        return job and GivenJob(*job)


class Refill:
    """Requests jobs for a group, one at a time, and reports those that have no unstarted tasks left."""

    def __init__(self, pipe: Pipe, take_in: Callable[[GivenJob], None]) -> None:
        self._pipe, self._take_in = pipe, take_in
        self._is_asked = False
        self._answered_by = 0.0  # an instant of `limits.now`
        self._ends_at = limits.now() + LIFE

    def fileno(self) -> int:
        return self._pipe.fileno()

    def ask(self) -> None:
        """Requests a job, unless one is already requested. It may take a long time until the worker has one."""
        if not self._is_asked and limits.now() < self._ends_at:
            self._is_asked = True
            self._answered_by = limits.now() + PATIENCE
            self._pipe.send(MORE)

    @property
    def is_expected(self) -> bool:
        """Whether the worker may have a job, because it has not yet answered the request."""
        return self._is_asked and limits.now() < self._answered_by

    def take(self) -> None:
        """Takes in the job that has arrived."""
        job = self._pipe.take()
        if job is None:
            self._answered_by = 0.0
            return
        self._is_asked = False
        self._take_in(job)

    def let_go(self, job_id: str) -> None:
        """Reports to the worker that this job has no unstarted tasks left."""
        self._pipe.send(job_id)
