"""Extends RQ's Worker: preloads functions, shares one database connection, and leaves no process and no open record."""

import gc
import logging
import math
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any

from redis.exceptions import ResponseError
from rq import Queue
from rq.exceptions import InvalidJobOperation
from rq.job import Job, JobStatus
from rq.utils import now
from rq.worker import WorkerStatus

from ticker import settings
from ticker.queue import bulk
from wrappers.pipeline import finish, registry
from wrappers.pipeline.database import Database
from wrappers.rq import between_jobs
from wrappers.rq.between_jobs import LOOK, IdleWorker, Phase
from wrappers.rq.compatibility import begun_execution, execution_argument, incompatibilities_of_newer
from wrappers.rq.corrupt_jobs import is_trouble_of_the_server
from wrappers.rq.open_jobs import OpenJobs
from wrappers.rq.prepared_start import PreparedStart, call_of
from wrappers.rq.stops import Stops, stop_signals_held
from wrappers.sandbox import child_processes, deaths, handoff, limits, output_pipes, shared_state, subreaper, supervisor

log = logging.getLogger("ticker.run")

RQ_MARGIN = 60  # seconds from a job's timeout until RQ's own worker kills the horse
COLLECT = 0.04  # seconds for which the ends of a job's runs are collected after others of the job were written


class Worker(IdleWorker):
    """RQ's forking worker, which requests the start of a run before it forks, and writes the run's end.

    So a dropped job costs no fork. A run needs no connection of its own to PostgreSQL, and none to Redis if it
    succeeds. When a horse dies, its leftover processes are killed, and the end of its run is written.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        subreaper.require_linux()
        subreaper.become_subreaper()
        shared_state.share()
        output_pipes.share()
        handoff.share()
        limits.prepare()
        self._before = subreaper.children()
        self._start: PreparedStart | None = None  # of the current job, if it is one of ours
        self._open_jobs: OpenJobs | None = None  # of the current process, if it is a group
        self._forget: Any = None
        self._is_limited = False  # by --max-jobs
        self._wrote_at = 0.0  # when ends of the current process were written last, an instant of `limits.now`
        self._stops = Stops()
        self._oom_kills: int | None = None  # the count before the job
        self._prepares_starts = not incompatibilities_of_newer()
        super().__init__(*args, **kwargs)

    def work(self, *arguments: Any, max_jobs: int | None = None, **options: Any) -> bool:
        """Overrides RQ's method so that a group takes no further jobs if the number of jobs is limited.

        A worker that `ticker worker` has not prepared (`rq worker`, django-rq's `rqworker`) imports its functions, and
        announces them.
        """
        if not registry.functions():
            config = settings.from_environment()
            config.require_database()
            registry.load(config.tasks, config.functions)
            self._announces_at = self.moved_at
        self._is_limited = max_jobs is not None
        between_jobs.watch(self)
        signal.signal(limits.STOP_SIGNAL, signal.SIG_IGN)  # for a process whose run has not begun, or has ended
        gc.freeze()  # so that collections in the horses do not walk the imports, whose pages all of them share
        return super().work(*arguments, max_jobs=max_jobs, **options)  # type: ignore[misc]

    def execute_job(self, job: Job, queue: Queue) -> None:
        left_before, self._before, self._oom_kills = self._before, subreaper.children(), deaths.oom_kills()
        self._phase, self._start, self._open_jobs, self._wrote_at = Phase.TAKEN, None, None, 0.0
        output_pipes.begin(are_held=bool(self._before - left_before))
        handoff.begin()
        shared_state.begin(deadline_of(job))
        if self._shutdown_requested_date is not None:
            shared_state.stop()
        super().execute_job(job, queue)
        self._phase = Phase.IDLE

    def prepare_execution(self, job: Job) -> Any:
        """Overrides RQ's method to ask first whether our job may run. A job that may not run is only forgotten."""
        call = call_of(job) if self._prepares_starts else None
        if call is None:
            return super().prepare_execution(job)
        self._state = WorkerStatus.BUSY  # otherwise RQ lets a signal end the worker at once
        self._start = PreparedStart(job, call, self._connected(), self._unwritten)
        with self._start.abandoned_on_error():
            may_run = self._start.may_run(self.name, when_it_waits=lambda: self._begin(job))
            if may_run or not self.leaves_nothing(job) or not self._is_forgotten(job):
                return self._begin(job)
        if self._phase is Phase.TAKEN:
            self._state = WorkerStatus.IDLE  # as in Redis
        self._phase = Phase.FORGOTTEN
        return None

    def _begin(self, job: Job) -> Any:
        """Marks the job as started in RQ, so that the ticker leaves it alone however long the answer takes."""
        if self._phase is Phase.TAKEN:
            super().prepare_execution(job)
            has_intermediate_list = len(self.queues) == 1  # RQ keeps taken jobs there until they have started
            super().prepare_job_execution(job, has_intermediate_list)
            self._phase = Phase.STARTED
        return begun_execution(self)

    def prepare_job_execution(self, job: Job, remove_from_intermediate_queue: bool = False) -> None:
        if self._phase is not Phase.STARTED:
            super().prepare_job_execution(job, remove_from_intermediate_queue)

    def fork_work_horse(self, job: Job, queue: Queue) -> None:
        """Overrides RQ's method to fork no process for a job that was forgotten, or stopped before it began."""
        self._horse_pid = 0
        if self._phase is Phase.FORGOTTEN:
            return
        if self._stopped_job_id == job.id:
            if self._start is not None:
                self._start.abandon()
            why = "Job stopped by user before it began."
            self.handle_job_failure(job, queue=queue, exc_string=why, **execution_argument(self))
            return
        if self._start is not None and self._start.is_group:
            job.timeout = -1  # its process has deadlines instead: see slots.py
        if self._start is not None and self._start.takes_jobs and not self._is_limited:
            own = self._start.write_ends, self._start.joins_group
            self._open_jobs = OpenJobs(self, job, begun_execution(self), *own)
        further_jobs = self._open_jobs.pipe if self._open_jobs is not None else None
        with self._start.handed_over(further_jobs) if self._start else nullcontext(), stop_signals_held():
            super().fork_work_horse(job, queue)
        if self._stopped_job_id == job.id:
            self.kill_horse()

    def kill_horse(self, sig: signal.Signals = signal.SIGKILL) -> None:
        """Overrides RQ's method, which kills this worker's own group if the horse does not exist or does not lead a
        group yet.
        """
        if self._horse_pid:
            with suppress(PermissionError, ProcessLookupError):  # the horse leads its own session, or is dead
                os.setpgid(self._horse_pid, self._horse_pid)
            super().kill_horse(sig)

    def handle_payload(self, message: Any) -> None:
        """Overrides RQ's method, which runs in the thread of the worker's channel, to note which run is stopped."""
        if not self._stops.note(message):
            super().handle_payload(message)  # type: ignore[no-untyped-call]

    def main_work_horse(self, job: Job, queue: Queue) -> None:
        shared_state.write_horse(os.getpid())
        super().main_work_horse(job, queue)

    def handle_execution_ended(self, job: Job, queue: Queue, heartbeat_ttl: int) -> None:
        """Overrides RQ's method to skip its heartbeat, which is for callbacks: our jobs have none."""
        if self._phase is Phase.STARTED:
            job.ended_at = now()
        else:
            super().handle_execution_ended(job, queue, heartbeat_ttl)

    def handle_job_success(self, job: Job, queue: Queue, *args: Any, **kwargs: Any) -> None:
        """Overrides RQ's method to let the worker forget our job in one call to Redis, if the job leaves nothing."""
        leaves_nothing = self._phase is Phase.STARTED and self.leaves_nothing(job)
        if leaves_nothing and self.is_horse and handoff.leave_success():
            return
        if not (leaves_nothing and self._is_forgotten(job)):
            super().handle_job_success(job, queue, *args, **kwargs)

    def leaves_nothing(self, job: Job) -> bool:
        """Returns whether RQ keeps nothing of this job after its success."""
        return bool(job.get_result_ttl(self.default_result_ttl) == 0 and not job.group_id)

    def _is_forgotten(self, job: Job) -> bool:
        """Forgets this job, unless another job waits for it, and counts it. Returns whether it did."""
        state = "" if self.is_horse else WorkerStatus.IDLE
        is_forgotten = self.forget(job, begun_execution(self), state)
        if is_forgotten:
            self.execution = None
            self._state_in_redis = state
        return is_forgotten

    def forget(self, job: Job, execution: Any, state: str = "") -> bool:
        """Removes a job from Redis in one call, unless another job waits for it. Returns whether it did. The worker
        enters the `state`, if there is one.
        """
        self._forget = self._forget or self.connection.register_script(bulk.FORGET)
        executed = (job.ended_at - job.started_at).total_seconds() if job.ended_at and job.started_at else 0
        return bool(self._forget(args=bulk.to_forget(self.key, job, execution, executed, state)))

    def monitor_work_horse(self, job: Job, queue: Queue, *execution: Any) -> None:
        if self._horse_pid:
            self._running = job, queue
            super().monitor_work_horse(job, queue, *execution)

    def wait_for_horse(self) -> Any:
        """Overrides RQ's method to write each end as soon as it is left, and to clean up before RQ calls Redis."""
        if self._phase is Phase.WAITED:
            return self._end_at_once()
        with self._waiting():
            with handoff.listening():
                self._serve()  # again, because RQ's alarm may have interrupted it after the bell was heard
                while handoff.wait(self._horse_pid, self._patience()):
                    self._serve()
                ended = super().wait_for_horse()
            signal.alarm(0)  # RQ's own, which would interrupt the clean-up; its next wait sets it again
            self._clean_up(self._connected(), ended)
            self._horse_pid = 0  # the process is gone, even if RQ fails below to write the job's result
        job, queue = self._running
        if self._open_jobs is not None:
            self._open_jobs.close()
            if job not in self._open_jobs:
                return ended
        if handoff.has_succeeded():
            job.ended_at = now()
            self.handle_job_success(job, queue, queue.started_job_registry, **execution_argument(self))
        elif ended[1] == os.EX_OK and self._start is not None:  # RQ takes this status for a success
            with suppress(InvalidJobOperation):  # the job has ended, and is gone
                if job.get_status() == JobStatus.STARTED:
                    why = "The process of the job exited with status 0 before the job was done."
                    self.handle_job_failure(job, queue=queue, exc_string=why, **execution_argument(self))
        return ended

    def _serve(self) -> None:
        if self._wrote_at:
            handoff.wait_for_more(self._horse_pid, self._wrote_at + COLLECT - limits.now())
        if self._write_left():
            self._wrote_at = limits.now()
        if self._open_jobs is not None:
            self._open_jobs.serve()
        if self._stops.serve(self._horse_pid):
            self._stopped_job_id = self._running[0].id  # so that RQ logs no crash
            self.kill_horse()

    def _patience(self) -> float | None:
        """Returns the seconds for which the worker may wait for its horse without a look at something else."""
        look = LOOK if self._unwritten or self._may_give_jobs() else None
        return min((one for one in (look, self._stops.pause()) if one is not None), default=None)

    def _may_give_jobs(self) -> bool:
        return self._open_jobs is not None and self._open_jobs.wants_more

    def maintain_heartbeats(self, job: Job, *execution: Any) -> None:
        """Overrides RQ's method, which would store a heartbeat of a group's first job even after the job was forgotten.

        A worker that is missing from RQ's list registers again. Kills the process of a group that outlives its
        deadline: RQ kills none without a timeout.
        """
        if job.timeout == -1 and supervisor.is_overdue():
            self.kill_horse()
        if self._open_jobs is not None and job not in self._open_jobs:
            self.heartbeat(self.job_monitoring_interval + 60)
            return
        try:
            super().maintain_heartbeats(job, *execution)
            self._beat(self.job_monitoring_interval + 60, None)
        except ResponseError as error:  # the key of the job has another type; the run continues
            if is_trouble_of_the_server(error):
                raise
            log.warning("poison job=%s: no heartbeat: %s", job.id, error, extra={"event": "poison"})

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        before, self._phase = self._phase, Phase.WAITED
        try:
            yield
        finally:
            self._phase = before

    def _end_at_once(self) -> Any:
        """Handles RQ's cold shutdown, in which a signal handler waits for the horse again, whatever the worker was
        doing.

        Further signals are ignored. Otherwise, this method would be called again while it writes the ends.
        """
        signal.alarm(0)
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_IGN)
        ended = super().wait_for_horse()
        with closing(Database.from_environment()) as database:
            self._clean_up(database, ended, by_worker=True)
            self._unwritten.drain(database, limits.now())
        if self._open_jobs is not None:
            self._open_jobs.close(keep_first=False)
        return ended

    def _write_left(self) -> bool:
        """Writes the ends that the process has left, and those that wait. Returns whether it had left any."""
        has_left = finish.take_left(self._connected(), self._unwritten)
        if self._unwritten:
            self._unwritten.write(self._connected())
        return has_left

    def _clean_up(self, database: Database, ended: Any, by_worker: bool = False) -> None:
        """Kills all processes of a dead horse's run, and writes the run's end, or keeps it until it can be written.

        `by_worker`: this worker has just killed the horse, unless the horse was dead before.
        """
        died_at, (_, status, _) = limits.now(), ended
        code = None if status is None else os.waitstatus_to_exitcode(status)
        cause = deaths.cause(code, self._oom_kills, just_now=handoff.saw_death())
        if by_worker and cause == deaths.KILLED:
            cause = deaths.BY_WORKER
        child_processes.log_killed(subreaper.kill_new_children(self._before))
        finish.close_record(database, self._unwritten, cause, died_at)
        shared_state.forget_horse()  # last: if this worker is stopped before, the supervisor kills the horse's children


def deadline_of(job: Job) -> float:
    """Returns the instant of `limits.now` at which RQ's own worker would kill the process of a job that begins now."""
    return limits.now() + (job.timeout + RQ_MARGIN if job.timeout and job.timeout > 0 else math.inf)
