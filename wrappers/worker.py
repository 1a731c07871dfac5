"""RQ's Worker, preloaded; nothing is left alive, and no record open, behind a job."""

import logging
import math
import os
import signal
from typing import Any

import psycopg
from rq import Queue, worker_registration
from rq.job import Job

from ticker import settings
from ticker.errors import TickerError
from ticker.store import first_line
from ticker.task import Outcome
from wrappers import entry, excerpt, limits, orphans, output, page  # noqa: F401  entry: whatever a horse needs is imported before the fork
from wrappers.database import Database
from wrappers.poison import SurvivingWorker

log = logging.getLogger("ticker.run")

DIED = "its process died before the end was recorded: the hard limit, a crash or a kill"
UNANSWERED = "the answer to its start never came, so its function did not run"
RQ_MARGIN = 60  # seconds behind a job's time-out, when RQ's own worker kills a horse


class Worker(SurvivingWorker):
    """RQ's forking worker. When a horse is dead, so is whatever it left behind, and its run has an end."""

    max_connection_wait_time = 5.0  # seconds; with RQ's minute, a worker sleeps on long after Redis is back

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        orphans.become_subreaper()
        page.share()
        excerpt.share()
        self._before = orphans.children()
        super().__init__(*args, **kwargs)

    def execute_job(self, job: Job, queue: Queue) -> None:
        self._before = orphans.children()
        excerpt.begin()
        page.begin(limits.now() + (job.timeout + RQ_MARGIN if job.timeout and job.timeout > 0 else math.inf))
        super().execute_job(job, queue)

    def main_work_horse(self, job: Job, queue: Queue) -> None:
        page.write_horse(os.getpid())
        super().main_work_horse(job, queue)

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """RQ's; and who was wiped out of RQ's list of workers (FLUSHALL, a Redis that came back empty) is in it again."""
        super().heartbeat(timeout, pipeline)
        if pipeline is None and not self.is_horse and not self.connection.hexists(self.key, "birth"):
            self.connection.hset(self.key, mapping=self.serialize())
            worker_registration.register(self)

    def wait_for_horse(self) -> Any:
        """Cleans up as soon as the horse is dead, before RQ asks Redis for anything: Redis may hang."""
        ended = super().wait_for_horse()
        signal.alarm(0)  # RQ's own, which would interrupt the clean-up; its next wait sets it again
        clean_up(self._before)
        page.forget_horse()  # not sooner: while we may be stopped, the keeper ends what the horse left
        return ended


def clean_up(before: set[int]) -> None:
    """Behind a dead horse: kills what it left alive, then closes its record."""
    left = orphans.kill_new_children(before)
    if left:
        log.warning("a job left %s processes behind: killed", left)
    close_record()


def close_record() -> None:
    """Ends the run that a dead horse left open; where the database is away, the sweep does it later."""
    open_run = page.read()
    if open_run is None:
        return
    task_id, token = open_run
    outcome, reason = (Outcome.KILLED, DIED) if page.is_answered() else (Outcome.LOST, UNANSWERED)
    found = settings.from_environment()
    database = Database(found.require_database(), found.schema)
    try:
        printed, errors = output.texts()
        if database.finish(task_id, token, outcome, reason=reason, output=printed, error_output=errors):
            log.warning("%s task=%s: %s", outcome, task_id, reason)
        page.clear()
    except (TickerError, psycopg.Error) as error:  # whatever it is, the worker goes on
        log.warning("%s task=%s: %s; not recorded yet: %s", outcome, task_id, reason, first_line(error))
    finally:
        database.close()
