"""Puts back, or puts aside, the jobs of other installations that a worker finds in its queues.

They are never run or dropped.
"""

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
PUT_ASIDE_AT_MOST = 10_000  # jobs

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
            "job=%s belongs to installation %s and these tables to %s: jobs of %s are put back, or put aside if it has no "
            "lease of the queue; give each installation its own queues, or its own Redis",
            job_id, named, _own, named, extra={"event": "foreign_job"},
        )  # fmt: skip
    return True


def put_back(connection: Redis, queue: Queue, job: Job, met: set[str], timeout: int | None) -> bool:
    """Moves a job to the end of its queue, where a worker of its own installation can find it.

    If that installation has no lease of the queue, it may have no workers there, so the job is put aside for an hour.
    In that case, or if this user of Redis may not push, a ticker of that installation finds that the job is missing and
    pushes it again.

    `met` has the ids of the foreign jobs that were put back before. Returns False after a round of nothing else, or
    after `AT_ONCE`. A worker that waits for jobs pauses then, and raises DequeueTimeout, so that it can handle signals
    and send its heartbeat.
    """
    named, now = jobs.installation_of(job.id), clock.python_utc().timestamp()
    has_lease = named not in _others or connection.get(jobs.LEASE_PREFIX + queue.name) == named.encode()
    with connection.pipeline(transaction=False) as calls:
        if has_lease:
            calls.rpush(queue.key, job.id)
        else:
            calls.zadd(jobs.FOREIGN, {job.id: now})
            calls.zremrangebyscore(jobs.FOREIGN, "-inf", now - jobs.FOREIGN_KEPT)
            calls.zremrangebyrank(jobs.FOREIGN, 0, -1 - PUT_ASIDE_AT_MOST)
            calls.expire(jobs.FOREIGN, jobs.FOREIGN_KEPT)
            calls.expire(job.key, jobs.FOREIGN_KEPT)
        calls.lrem(queue.intermediate_queue_key, 1, job.id)
        calls.execute(raise_on_error=False)
    is_round = job.id in met or (timeout is not None and len(met) == AT_ONCE)
    met.add(job.id)
    if is_round and timeout is not None:
        time.sleep(PAUSE if has_lease else 0)
        raise DequeueTimeout(timeout)
    return not is_round


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
