"""The start of one of our jobs, which the worker prepares before it forks.

So a job that is dropped costs no fork, and a run no connection to PostgreSQL of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rq.job import Job

from ticker.engine import jobs
from wrappers import entry
from wrappers.pipeline import finish, payload
from wrappers.pipeline.database import Database
from wrappers.pipeline.waiting_ends import WaitingEnds
from wrappers.sandbox import shared_state


class PreparedStart:
    """Asks for the start of one job, and lets go of it if the job gets no process.

    `database` is the worker's connection, and `ends` are the ends of earlier runs that it has not written yet.
    """

    def __init__(self, job: Job, call: tuple[str, tuple[int, ...]], database: Database, ends: WaitingEnds) -> None:
        self._job, self._database, self._ends = job, database, ends
        function, self._args = call
        self._is_batch = function != jobs.ENTRY

    def may_run(self, worker: str, when_it_waits: Callable[[], object]) -> bool:
        """Asks the database. A batch may: each of its tasks is asked for in the process, right before its own start."""
        self._ends.write_of(self._database, self._args[::2] if self._is_batch else self._args[:1])
        if self._is_batch:
            return True
        may_run = entry.ask(self._args, self._job, worker, self._database, when_it_waits)
        if shared_state.run_id():
            self._ends.server_answered()
        return may_run

    def abandon(self) -> None:
        """Ends the run, if one has started: nothing will continue it."""
        finish.abandon(self._database, self._ends)

    @contextmanager
    def abandoned_on_error(self) -> Iterator[None]:
        """An error in the block leaves a start, and no process that continues it."""
        try:
            yield
        except BaseException:
            self.abandon()
            raise

    @contextmanager
    def handed_over(self) -> Iterator[None]:
        """A fork in the block makes the process of this job. A batch continues with the worker's connection, which is warm."""
        with self.abandoned_on_error():
            if not self._is_batch:
                yield
                return
            with self._database.lent() as lent, entry.offered(lent):
                yield


def call_of(job: Job) -> tuple[str, tuple[int, ...]] | None:
    """Returns the function of ours that a job calls, and its arguments.

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
