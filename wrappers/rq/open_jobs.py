"""Gives the process of a group further jobs of its function from RQ's queues, and ends each job in RQ separately.

A job is open in RQ until all of its tasks have started, were refused, or were given back. After that, its runs have
their own records, and RQ no longer needs the job. If the process dies, its open jobs are removed. The next tick then
pushes the tasks that had not started again.
"""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from redis.exceptions import RedisError
from rq import Queue
from rq.executions import Execution
from rq.job import Job, JobStatus
from rq.suspension import is_suspended

from ticker import settings
from wrappers import entry
from wrappers.group.refill import MORE, GivenJob, Pipe
from wrappers.rq.compatibility import new_execution
from wrappers.rq.prepared_start import call_of
from wrappers.rq.stops import alarm_held
from wrappers.sandbox import shared_state

if TYPE_CHECKING:
    from wrappers.rq.worker import Worker

log = logging.getLogger("ticker.run")

UNTIL_BEGUN = 60  # seconds beyond the tick in which all tasks of a job begin; RQ gets no heartbeat for the job


class OpenJobs:
    """Keeps the open jobs of one group: the first, for which the process was forked, and those that it was given later."""

    def __init__(
        self, worker: "Worker", first: Job, execution: Execution, write_ends: Callable[[Sequence[int]], None],
        joins_group: Callable[[Job, tuple[str, tuple[int, ...]]], bool],
    ) -> None:  # fmt: skip
        self.pipe = Pipe()
        self.wants_more = False
        self._worker, self._first = worker, first
        self._write_ends, self._joins_group = write_ends, joins_group
        self._jobs: dict[str, tuple[Job, Execution | None]] = {first.id: (first, execution)}
        self._function = entry.grouped_function(first)
        self._tick = math.ceil(settings.from_environment().tick_ms / 1000)
        self._may_give = True

    def __contains__(self, job: Job) -> bool:
        return job.id in self._jobs

    def serve(self) -> None:
        """Ends the jobs that no longer need the process, and gives it another one if it has requested one."""
        with alarm_held():
            waits = False
            for said in self.pipe.heard():
                if said == MORE:
                    self.wants_more = waits = True
                else:
                    self._end(said)
            if self.wants_more and self._may_give and not shared_state.is_stopping():
                try:
                    self._give()
                except RedisError as error:
                    log.warning("the group gets no further job now: %s", error, extra={"event": "refill_failed"})
            if waits and self.wants_more:
                self.pipe.give(None)

    def close(self, keep_first: bool = True) -> None:
        """Ends all open jobs, after the process has ended. Puts a job that it did not take back at the front of its
        queue.

        RQ itself ends the first job, except in a cold shutdown.
        """
        unread = {*self.pipe.unread()}
        for job_id in [*self._jobs]:
            if job_id in unread:
                with suppress(RedisError):  # then RQ declares the job abandoned, and the ticker pushes its tasks again
                    self._put_back(*self._jobs.pop(job_id))
            elif not keep_first or job_id != self._first.id:
                self._end(job_id)
        self.pipe.close()

    def _give(self) -> None:
        worker = self._worker
        if is_suspended(worker.connection, worker):
            return
        taken = worker.queue_class.dequeue_any(
            worker._ordered_queues, None, connection=worker.connection, job_class=worker.job_class,
            serializer=worker.serializer, death_penalty_class=worker.death_penalty_class,
        )  # fmt: skip
        if taken is None:
            return
        job, queue = taken
        if job.id in self._jobs:  # its id was in the queue twice
            worker.connection.lrem(queue.intermediate_queue_key, 1, job.id)
            return
        call = call_of(job)
        if call is None or not self._fits(job, call):
            self._may_give = False  # this worker runs that job next, so the group takes no further jobs
            self._put_back(job, None)
            return
        self._jobs[job.id] = job, None
        with suppress(RedisError):  # the job runs anyway: otherwise its tasks would wait until RQ declares it abandoned
            self._jobs[job.id] = job, new_execution(worker, job, self._tick + UNTIL_BEGUN)
        self._write_ends(call[1][::2])
        self.wants_more = False
        self.pipe.give(GivenJob(job.id, [*call[1]]))

    def _fits(self, job: Job, call: tuple[str, tuple[int, ...]]) -> bool:
        """Returns whether the group can take in this job. If RQ keeps a job's result, the job needs a process of its
        own.
        """
        is_ours = entry.grouped_function(job) == self._function and not entry.is_apart(job)
        return is_ours and self._worker.leaves_nothing(job) and self._joins_group(job, call)

    def _put_back(self, job: Job, execution: Execution | None) -> None:
        with self._worker.connection.pipeline() as calls:
            if execution is not None:  # otherwise RQ would later declare the job abandoned, wherever it is then
                execution.delete(job, calls)
                job.set_status(JobStatus.QUEUED, calls)
            queue = Queue(job.origin, connection=self._worker.connection)
            calls.lpush(queue.key, job.id)
            calls.lrem(queue.intermediate_queue_key, 1, job.id)
            calls.execute()

    def _end(self, job_id: str) -> None:
        """Removes a job from RQ. If that is not possible, the job stays open until the process has ended.

        Redis may not answer, or another job may wait for this one.
        """
        with suppress(RedisError):
            if self._worker.forget(*self._jobs[job_id]):
                del self._jobs[job_id]
