"""Functions for the tests that run real workers. Each leaves a trace in the table `trace` of the test's database."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from wrappers import Run, task


def trace(what: str, value: Any = None) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(
            "INSERT INTO trace (what, value, pid) VALUES (%s, %s, %s)", [what, Jsonb(value), os.getpid()]
        )


@task("plain")
def plain(**kwargs: Any) -> int:
    trace("plain", kwargs)
    return 5


@task("async")
async def asynchronous(run: Run) -> str:
    trace("async", run.quota.remaining)
    return "done"


@task("async.hangs")
async def hangs() -> None:
    import asyncio

    await asyncio.sleep(1000)


@task("resumes")
def resumes(run: Run) -> None:
    """Reads one item per run."""
    run.checkpoint((run.cursor or 0) + 1)
    trace("resumes", run.cursor)


@task("exhausts")
def exhausts(run: Run) -> None:
    while not run.quota.exceeded:
        time.sleep(0.01)


@task("fails")
def fails() -> None:
    raise ValueError("no \x00 such host")


@task("swallows")
def swallows() -> None:
    """Leaves a child and a daemon, and overlooks every exception."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    daemon = subprocess.run(
        ["/bin/sh", "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE, check=True
    )
    trace("swallows", [os.getpid(), child.pid, int(daemon.stdout)])
    while True:
        with suppress(BaseException):
            time.sleep(0.05)


@task("swallows.exceptions")
def swallows_exceptions() -> None:
    """The usual mistake: the soft limit ends it."""
    while True:
        with suppress(Exception):
            time.sleep(0.05)


@task("long.c.call")
def long_c_call() -> None:
    trace("long.c.call")
    sum(range(10**13))  # one call of C for hours: no Python handler gets its turn


@task("stops.itself")
def stops_itself() -> None:
    trace("stops.itself")
    os.kill(os.getpid(), signal.SIGSTOP)


@task("leaves.by.exit")
def leaves_by_exit() -> None:
    os._exit(0)


@task("crashes")
def crashes() -> None:
    ctypes.string_at(0)


@task("deletes.owner")
def deletes_owner(run: Run, channel_id: int) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("DELETE FROM mail_channels WHERE id = %s", [channel_id])
    trace("deletes.owner", channel_id)


@task("disables.owner")
def disables_owner(run: Run, channel_id: int) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("UPDATE mail_channels SET enabled = false WHERE id = %s", [channel_id])


@task("returns.odd")
def returns_odd() -> Any:
    return {"when": object(), "nul": "\x00"}


@task("returns.escapes")
def returns_escapes(run: Run) -> list[str]:
    run.checkpoint("\\u0000")
    return ["\\u0000", "\0"]


@task("odd.cursor")
def odd_cursor(run: Run) -> None:
    run.checkpoint("\0")


@task("returns.late")
def returns_late() -> None:
    with suppress(BaseException):
        time.sleep(1000)


@task("kills.itself")
def kills_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
