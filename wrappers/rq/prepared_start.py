"""Requests the start of one of our jobs before the worker forks.

So a dropped job costs no fork, and a run needs no PostgreSQL connection of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress

from rq.job import Job

from ticker.engine import jobs
from ticker.errors import DatabaseUnavailable
from wrappers import entry
from wrappers.group.refill import Pipe
from wrappers.pipeline import finish, payload
from wrappers.pipeline.database import Database
from wrappers.pipeline.waiting_ends import WaitingEnds
from wrappers.sandbox import shared_state


class PreparedStart:
    """Requests the start of one job, and abandons it if the job gets no process.

    `database` is the worker's connection. `ends` are the ends of earlier runs that are not written yet.
    """

    def __init__(self, job: Job, call: tuple[str, tuple[int, ...]], database: Database, ends: WaitingEnds) -> None:
        self._job, self._database, self._ends = job, database, ends
        self._args = call[1]
        self.is_group = self.joins_group(job, call)
        self._is_batch = self.is_group or call[0] != jobs.ENTRY

    @property
    def takes_jobs(self) -> bool:
        """Whether the process of this job, whose tasks run at the same time, takes in further jobs."""
        return self.is_group and not entry.is_apart(self._job)

    def joins_group(self, job: Job, call: tuple[str, tuple[int, ...]]) -> bool:
        """Returns whether the tasks of a job run in a group. A single task does, unless it is a suspect, or its run is
        planned.

        Jobs of a single task were pushed before the `concurrency` of their function was known.
        """
        function, args = call
        if entry.grouped_function(job) is None:
            return False
        if function == jobs.BATCH_ENTRY:
            return True
        with suppress(DatabaseUnavailable):
            return len(args) == 2 and not self._database.execute("runs_alone", task_id=args[0])
        return False

    def write_ends(self, tasks: Sequence[int]) -> None:
        """Writes the waiting ends of these tasks before they start again."""
        self._ends.write_of(self._database, tasks)

    def may_run(self, worker: str, when_it_waits: Callable[[], object]) -> bool:
        """Asks the database. A batch may always run: its process requests the start of each task right before that
        task.
        """
        self.write_ends(self._args[::2] if self._is_batch else self._args[:1])
        if self._is_batch:
            return True
        may_run = entry.ask(self._args, self._job, worker, self._database, when_it_waits)
        if shared_state.has_begun():
            self._ends.server_answered()
        return may_run

    def abandon(self) -> None:
        """Ends the run, if one has started, because no process will continue it."""
        finish.abandon(self._database, self._ends)

    @contextmanager
    def abandoned_on_error(self) -> Iterator[None]:
        """Abandons the start if the block raises, because no process will continue it."""
        try:
            yield
        except BaseException:
            self.abandon()
            raise

    @contextmanager
    def handed_over(self, further_jobs: Pipe | None) -> Iterator[None]:
        """Covers the fork of this job's process."""
        with self.abandoned_on_error(), entry.batch(further_jobs) if self._is_batch else nullcontext():
            yield


def call_of(job: Job) -> tuple[str, tuple[int, ...]] | None:
    """Returns which of our functions a job calls, and the arguments.

    Returns None for another application's job, and for one with callbacks, which RQ runs in the job's process.
    """
    if job._success_callback_name or job._failure_callback_name or job._stopped_callback_name:
        return None
    if len(job.data) > payload.AT_MOST:
        return None
    try:
        return payload.call(job.id, job.data)
    except ValueError:
        return None
