"""RQ's Worker, preloaded, with one connection to the database; nothing is left alive, and no record open, behind a job."""

import logging
import math
import os
import signal
from typing import Any

from rq import Queue, worker_registration
from rq.job import Job

from ticker import envelope
from wrappers import endings, ends, entry, excerpt, limits, orphans, page, payload
from wrappers.database import Database
from wrappers.poison import SurvivingWorker

log = logging.getLogger("ticker.run")

RQ_MARGIN = 60  # seconds behind a job's time-out, when RQ's own worker kills a horse


class Worker(SurvivingWorker):
    """RQ's forking worker, which asks for the start of a run before it forks, and writes its end.

    So a job that is dropped costs no fork, and a run no connection of its own. When a horse is dead, so is whatever it left
    behind, and its run has an end.
    """

    max_connection_wait_time = 5.0  # seconds; with RQ's minute, a worker sleeps on long after Redis is back

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        orphans.become_subreaper()
        page.share()
        excerpt.share()
        ends.share()
        self._before = orphans.children()
        self._database: Database | None = None
        self._is_prepared = False
        super().__init__(*args, **kwargs)

    def execute_job(self, job: Job, queue: Queue) -> None:
        self._before = orphans.children()
        self._is_prepared = False
        excerpt.begin()
        ends.begin()
        page.begin(limits.now() + (job.timeout + RQ_MARGIN if job.timeout and job.timeout > 0 else math.inf))
        super().execute_job(job, queue)

    def fork_work_horse(self, job: Job, queue: Queue) -> None:
        """Of a job of ours asks first whether it may run; one that may not ends here, as in a horse."""
        self._horse_pid = 0
        args = arguments_of(job)
        if args:
            self.prepare_job_execution(
                job, len(self.queues) == 1
            )  # to RQ the job has started: the ticker leaves it alone
            self._is_prepared = True
            if not entry.ask(args, job, self.name, self._connected()):
                self.perform_job(job, queue)
                endings.close_record(self._connected())
                return
        super().fork_work_horse(job, queue)

    def prepare_job_execution(self, job: Job, remove_from_intermediate_queue: bool = False) -> None:
        if not self._is_prepared:
            super().prepare_job_execution(job, remove_from_intermediate_queue)

    def main_work_horse(self, job: Job, queue: Queue) -> None:
        page.write_horse(os.getpid())
        super().main_work_horse(job, queue)

    def monitor_work_horse(self, job: Job, queue: Queue) -> None:
        if self._horse_pid:
            super().monitor_work_horse(job, queue)

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """RQ's; and who was wiped out of RQ's list of workers (FLUSHALL, a Redis that came back empty) is in it again."""
        super().heartbeat(timeout, pipeline)
        if pipeline is None and not self.is_horse and not self.connection.hexists(self.key, "birth"):
            self.connection.hset(self.key, mapping=self.serialize())
            worker_registration.register(self)

    def wait_for_horse(self) -> Any:
        """Writes the end as soon as the horse leaves it; cleans up as soon as it is dead, before RQ asks Redis for anything."""
        ends.wait(self._horse_pid)
        if ends.left():
            endings.close_record(self._connected())
        ended = super().wait_for_horse()
        signal.alarm(0)  # RQ's own, which would interrupt the clean-up; its next wait sets it again
        left = orphans.kill_new_children(self._before)
        if left:
            log.warning("a job left %s processes behind: killed", left)
        endings.close_record(self._connected())
        page.forget_horse()  # not sooner: while we may be stopped, the keeper ends what the horse left
        return ended

    def _connected(self) -> Database:
        """The worker's own connection, opened when it is first asked something, and again after an error."""
        self._database = self._database or Database.from_environment()
        return self._database


def arguments_of(job: Job) -> tuple[int, ...]:
    """What a job of ours carries; nothing where it is another's, or has callbacks: those belong into a horse."""
    if job._success_callback_name or job._failure_callback_name or job._stopped_callback_name:
        return ()
    try:
        entry, args = payload.call(job.id, job.data)
    except ValueError:
        return ()
    return args if entry == envelope.ENTRY else ()  # of a batch each task is asked for right before its own start
