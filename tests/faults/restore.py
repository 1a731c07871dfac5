"""Puts an older copy of the database in the place of the present one, as a restore does after a disaster.

What the database of now knows is exported first: it is a world of its own, which `history.worlds` judges by itself.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psycopg
from rq.job import Job

from tests.faults import journal
from tests.faults.facts import installation
from tests.faults.stage import Stage
from tests.running import ROOT
from wrappers.sandbox import subreaper

ADOPT = ("db", "adopt", "--resume", "--force")  # the copy may be younger than 90 s
GRACE = 5.0  # seconds from SIGTERM to SIGKILL
PATIENCE = 30.0  # seconds for the last session to go
HERE, COPY = "postgres", "earlier"


class NotAdopted(psycopg.OperationalError):
    """`ticker db adopt` failed."""


def can_adopt(stage: Stage) -> bool:
    return _ticker(stage, *ADOPT[:2], "--help").returncode == 0


def copy_database(stage: Stage) -> float:
    """Takes the copy that `restore` brings back; when that was."""
    with stage.edits.lock, _beside(stage) as db:
        db.execute(f"DROP DATABASE IF EXISTS {COPY}")
        db.execute(f"ALTER DATABASE {HERE} ALLOW_CONNECTIONS false")
        try:
            _empty(db)
            copied = time.monotonic()
            # by files: a sequence that is copied by the log gives the same numbers again once PostgreSQL has crashed
            db.execute(f"CREATE DATABASE {COPY} TEMPLATE {HERE} STRATEGY file_copy")
        finally:
            db.execute(f"ALTER DATABASE {HERE} ALLOW_CONNECTIONS true")
    return copied


def restore(stage: Stage, copied: float) -> None:
    """Stops all that runs, exchanges the databases, and adopts the tables; the supervisor starts everything again."""
    number = stage.edits.restores
    with stage.edits.lock:
        _stop(stage)
        stopped = time.monotonic()
        stage.edits.replaced |= _prefixes(stage)
        journal.export(stage.postgres.url, stage.folder / f"database-{number}.jsonl")
        with _beside(stage) as db:
            _empty(db)
            db.execute(f"ALTER DATABASE {HERE} RENAME TO replaced_{number}")
            db.execute(f"ALTER DATABASE {COPY} RENAME TO {HERE}")
        adopted = _ticker(stage, *ADOPT)
        stage.journal.write("restored", dumped=copied, stopped=stopped, adopted=adopted.stdout + adopted.stderr)
        stage.edits.restores += 1
        for process in stage.processes:
            process.held = False
    if adopted.returncode:
        raise NotAdopted(adopted.stderr)


def _stop(stage: Stage) -> None:
    """Whoever does not go in time is killed, with all that it started."""
    for process in stage.processes:
        process.end()
    deadline = time.monotonic() + GRACE
    while not all(process.is_gone() for process in stage.processes) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in stage.processes:
        for level in process.below():
            for pid in level:
                process.send(signal.SIGKILL, pid)
        process.send(signal.SIGKILL)
    while not all(process.is_gone() for process in stage.processes):
        time.sleep(0.05)
    subreaper.kill_new_children(stage.servers)


def _prefixes(stage: Stage) -> set[str]:
    """Of the jobs that Redis keeps."""
    with stage.redis() as redis:
        keys = [
            key.decode().removeprefix(Job.redis_job_namespace_prefix)
            for key in redis.scan_iter(match=f"{Job.redis_job_namespace_prefix}*")
        ]
    return {installation(key) for key in keys} - {""}


def _beside(stage: Stage) -> psycopg.Connection[tuple[object, ...]]:
    """A connection to the same server, and not to the database that is exchanged."""
    return psycopg.connect(stage.postgres.url, dbname="template1", autocommit=True, application_name="harness")


def _empty(db: psycopg.Connection[tuple[object, ...]]) -> None:
    """Returns when nobody is connected to the database."""
    deadline = time.monotonic() + PATIENCE
    query = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
    )
    while db.execute(query, [HERE]).fetchall() and time.monotonic() < deadline:
        time.sleep(0.05)


def _ticker(stage: Stage, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environ = os.environ | stage.hosts["host-app"].environ
    with suppress(subprocess.TimeoutExpired):
        return subprocess.run(
            [sys.executable, "-m", "ticker", *arguments],
            cwd=ROOT,
            env=environ,
            text=True,
            capture_output=True,
            timeout=30,
        )
    return subprocess.CompletedProcess(arguments, 1, "", "it did not end within 30 s")
