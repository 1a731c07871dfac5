"""Puts back the jobs of other installations that a worker finds in its queues. They are never run, dropped or changed."""

import logging
import time
from contextlib import closing

from redis import Redis
from rq import Queue
from rq.exceptions import DequeueTimeout
from rq.job import Job

from ticker import clock
from ticker.db import installation
from ticker.engine import jobs
from ticker.errors import ConfigurationError, DatabaseUnavailable, TickerError
from ticker.settings import Settings
from wrappers.pipeline.database import Database
from wrappers.pipeline.start import PATIENCE, patiently

log = logging.getLogger("ticker.run")

PAUSE = 1.0  # seconds, if a queue holds only jobs of other installations
AT_ONCE = 100  # such jobs; a worker that has put this many back pauses as well

_own = ""
_others: set[str] = set()


def is_foreign(job_id: str) -> bool:
    """Returns whether the job's id names an installation other than that of our tables.

    The tables are read once for each new installation. While they cannot be read, a job counts as foreign and is put
    back.
    """
    global _own
    named = jobs.installation_of(job_id)
    if not named or named == _own:
        return False
    if named not in _others:
        try:
            with closing(Database.from_environment()) as database:
                _own = installation.read(database.execute).id
        except TickerError as error:
            log.warning(
                "job=%s is put back: the installation of the tables cannot be read: %s",
                job_id,
                error,
                extra={"event": "foreign_job"},
            )
            return True
        if named == _own:
            return False
        _others.add(named)
        log.warning(
            "job=%s belongs to installation %s and these tables to %s: it is put back, like all jobs of %s; give each "
            "installation its own queues, or its own Redis",
            job_id, named, _own, named, extra={"event": "foreign_job"},
        )  # fmt: skip
    return True


def put_back(connection: Redis, queue: Queue, job: Job) -> None:
    """Moves a job to the end of its queue, where a worker of its own installation can find it.

    If this user of Redis may not push, the ticker of that installation finds that the job is missing and pushes it again.
    """
    with connection.pipeline(transaction=False) as calls:
        calls.rpush(queue.key, job.id)
        calls.lrem(queue.intermediate_queue_key, 1, job.id)
        calls.execute(raise_on_error=False)


def rest(timeout: int | None) -> None:
    """Pauses after a round of nothing but foreign jobs, so that a waiting worker can handle signals and send its heartbeat."""
    if timeout is not None:
        time.sleep(PAUSE)
        raise DequeueTimeout(timeout)


def refuse(job_id: str, database: Database, config: Settings) -> None:
    """Raises ConfigurationError if the tables or the job belong to another installation.

    A horse of a stock worker calls this before anything is recorded.
    """
    patiently(database.open, DatabaseUnavailable, clock.monotonic() + PATIENCE, lambda: None)
    here = installation.read(database.execute)
    installation.check(here, config.environment)
    named = jobs.installation_of(job_id)
    if named and named != here.id:
        raise ConfigurationError(
            f"job {job_id} belongs to installation {named}, but the tables in DATABASE_URL belong to {here.id}: give each installation "
            "its own queues, or its own Redis"
        )
