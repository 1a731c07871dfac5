"""A large group gives every task its turn, and recovers from the death of its process as single runs do."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from redis import Redis
from rq import Worker

import ticker
from tests.running import ROOT, Ticking, until
from tests.worker.slow_polls import POLL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("environ")]
EVERY, QUEUED = 6.0, 6.0  # seconds: the interval; how long a job may wait in its queue
RESTART = 10.0  # seconds, as in a fault run

Db = psycopg.Connection[Any]


@contextmanager
def grouping(db: Db, redis: Redis, function: str, tasks: int, *, workers: int, tick: str) -> Iterator[None]:
    """Tasks of a function that workers have announced, the workers, and a ticker."""
    command = [sys.executable, "-m", "ticker", "worker", "--tasks", "tests.worker.slow_polls", "polling"]
    announced = "SELECT count(*) FROM ticker.functions WHERE name = %s"
    with ExitStack() as stack:
        for _ in range(workers):
            stack.enter_context(killed_at_the_end(command, TICKER_TICK=tick))
        until(lambda: Worker.count(connection=redis) == workers, "workers that listen")
        until(lambda: db.execute(announced, [function]).fetchone() == (1,), "a function that workers have announced")
        for number in range(tasks):
            ticker.register(db, function, name=f"{number:02}", every=f"{EVERY:g}s")
        stack.enter_context(Ticking("--tick", tick))
        yield


@contextmanager
def killed_at_the_end(command: list[str], **environ: str) -> Iterator[None]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environ = os.environ | environ
    with subprocess.Popen(command, cwd=ROOT, env=environ, start_new_session=True, **quiet) as process:  # type: ignore[call-overload]
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def starts(db: Db) -> list[int]:
    return [started for (started,) in db.execute("SELECT started FROM ticker.tasks ORDER BY name")]


def test_what_does_not_fit_into_the_slots_has_its_turn_while_another_worker_is_idle(db: Db, redis: Redis) -> None:
    """25 polls need 4.5 s of each 6 s of ten slots."""
    with grouping(db, redis, "filling", 25, workers=2, tick="3s"):
        until(lambda: max(starts(db)) >= 8, "eight starts of a task", patience=120)
        until(lambda: min(starts(db)) >= 7, f"seven starts of each task: {starts(db)}", patience=EVERY + 3 + QUEUED)
        expired = "SELECT count(*) FROM ticker.runs WHERE reason = 'expired'"
        assert db.execute(expired).fetchone() == (0,)


@pytest.mark.parametrize("function", ["alone", "alone.again"])
def test_one_kill_of_a_large_group_makes_no_task_late(db: Db, redis: Redis, function: str) -> None:
    """Neither if the runs that died are attempted again. 3 D + restart + one poll after it is due, each task has started."""
    with grouping(db, redis, function, 80, workers=1, tick="1s"):
        [pid] = until(lambda: many_at_work(db), "a group with most of the tasks")
        os.kill(pid, signal.SIGKILL)
        row = db.execute("SELECT clock_timestamp()").fetchone()
        until(
            lambda: started_since(db, row) == 80, "a start of each task after the kill",
            patience=EVERY + 3 * 1 + RESTART + POLL,
        )  # fmt: skip
        before = starts(db)
        until(
            lambda: all(now >= one + 2 for one, now in zip(before, starts(db), strict=True)), "two further starts of each",
            patience=2 * (EVERY + 1 + QUEUED),
        )  # fmt: skip


def many_at_work(db: Db) -> Any:
    query = "SELECT min(pid) FROM ticker.runs WHERE state = 'running' HAVING count(*) > 60"
    return db.execute(query).fetchone()


def started_since(db: Db, row: Any) -> int:
    query = "SELECT count(DISTINCT task_id) FROM ticker.runs WHERE kind = 'scheduled' AND started_at > %s"
    found = db.execute(query, row).fetchone()
    return found[0] if found else 0
