"""RQ's Worker, preloaded; nothing is left alive, and no record open, behind a job."""

import logging
from typing import Any

from rq import Queue
from rq import Worker as RQWorker
from rq.job import Job

from ticker import settings
from ticker.errors import TickerError
from ticker.task import Outcome
from wrappers import entry, orphans, page  # noqa: F401  entry: whatever a horse needs is imported before the fork
from wrappers.database import Database

log = logging.getLogger("ticker.run")


class Worker(RQWorker):
    """RQ's forking worker. When a horse is dead, so is whatever it left behind, and its run has an end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        orphans.become_subreaper()
        super().__init__(*args, **kwargs)

    def execute_job(self, job: Job, queue: Queue) -> None:
        before = orphans.children()
        with page.opened():
            try:
                super().execute_job(job, queue)
            finally:
                if self.horse_pid not in orphans.children():  # it goes on where Redis is away and RQ gives up
                    clean_up(job, before)


def clean_up(job: Job, before: set[int]) -> None:
    """Behind a dead horse: kills what it left alive, then closes its record."""
    left = orphans.kill_new_children(before)
    if left:
        log.warning("job=%s left %s processes behind: killed", job.id, left)
    close_record()


def close_record() -> None:
    """Ends the run that a dead horse left open as `killed`; where the database is away, the sweep does it later."""
    open_run = page.read()
    if open_run is None:
        return
    task_id, token = open_run
    found = settings.from_environment()
    database = Database(found.require_database(), found.schema)
    try:
        ended = database.execute(
            "finish", task_id=task_id, token=token, outcome=Outcome.KILLED, result=None, traceback="", now=None,
            reason="its process died before the end was recorded: the hard limit, a crash or a kill",
        )  # fmt: skip
        if ended:
            log.warning("killed task=%s: its process died before its end", task_id)
    except TickerError as error:
        log.warning("killed task=%s: its process died before its end, not recorded yet: %s", task_id, error)
    finally:
        database.close()
