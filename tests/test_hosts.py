"""What befalls a host: it refuses a process, memory or a place for files, or keeps the time of a zone with summer time.

docs/internals/faults.md has a table of what happens then, how long it takes, and what is lost.
"""

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis
from rq import Worker

import ticker
from tests.documents.recipes import process
from tests.running import PATIENCE, Ticking, until
from tests.sentences import sentence
from ticker import clock
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.queue.rq import RedisQueue
from wrappers.sandbox.subreaper import children

WORKER = ("python", "-m", "wrappers", "--tasks", "tests.sample_tasks", "polling")
# Limits of processes do not apply to root. Our interpreter may lie where only root may read.
OF_A_USER = ("setpriv", "--reuid=54321", "--clear-groups", *(
    f"--{kind}=-all,+dac_override" for kind in ("inh-caps", "ambient-caps", "bounding-set")
)) if os.geteuid() == 0 else ()  # fmt: skip
IN_OWN_MOUNTS = ("unshare", "--mount", "sh", "-c")
READ_ONLY = 'mount -o remount,bind,ro /dev/shm && mount -o remount,bind,ro / && exec "$@"'
SMALL = 'mount -t tmpfs -o size=64k small "$TMPDIR" && exec "$@"'
FULL = (
    'mount -t tmpfs -o size=64k full "$TMPDIR" && ! head -c 1M /dev/zero >"$TMPDIR/it" && exec "$@" >"$TMPDIR/log" 2>&1'
)
Db = psycopg.Connection[Any]


@contextmanager
def working(folder: Path, redis: Redis, *prefix: str, **environ: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A supervisor and the process id of its worker, which listens."""
    with process(folder, *prefix, *WORKER, **environ) as supervisor:
        until(lambda: Worker.all(connection=redis), "a worker")
        [worker] = children(supervisor.pid)
        yield supervisor, worker


def ended(db: Db) -> list[tuple[str, str]]:
    return [(run.task_name, run.outcome) for run in reversed(ticker.list_runs(db)) if run.state == "ended"]


@pytest.mark.slow
def test_a_worker_that_may_fork_no_process_ends_and_its_run_is_lost_at_once(
    traced: object, db: Db, store: PostgresStore, queue: RedisQueue, redis: Redis, tmp_path: Path
) -> None:
    ticker.register(db, "plain", every="1h", box="1m")
    with working(tmp_path, redis, *OF_A_USER) as (supervisor, worker):
        tick(store, queue)
        until(lambda: ended(db), "the first run")
        task = ticker.register(db, "plain", name="next", every="1h", box="1m")
        subprocess.run([*OF_A_USER, "prlimit", f"--pid={worker}", "--nproc=0"], check=True)
        tick(store, queue)
        assert supervisor.wait(PATIENCE) == 0  # as RQ's own worker: whatever restarts it must do so after any exit code
    lost = ticker.list_runs(db)[0]
    assert (lost.outcome, lost.reason) == ("lost", sentence("why.function_did_not_begin"))
    assert ticker.get(db, task.id).running_until is None


@pytest.mark.slow
def test_a_worker_that_gets_no_thread_at_its_first_job_leaves_that_job_to_the_next_worker(
    traced: object, db: Db, store: PostgresStore, queue: RedisQueue, redis: Redis, tmp_path: Path
) -> None:
    ticker.register(db, "plain", every="1h", box="1m")
    with working(tmp_path, redis, *OF_A_USER) as (supervisor, worker):
        subprocess.run([*OF_A_USER, "prlimit", f"--pid={worker}", "--nproc=0"], check=True)
        tick(store, queue)
        assert supervisor.wait(PATIENCE) == 0
    with Ticking(), working(tmp_path, redis):
        until(lambda: ended(db), "the run")
    assert ended(db) == [("plain", "succeeded")]


@pytest.mark.slow
def test_a_function_that_gets_no_more_memory_fails_and_its_worker_goes_on(
    traced: object, db: Db, store: PostgresStore, queue: RedisQueue, redis: Redis, tmp_path: Path
) -> None:
    ticker.register(db, "fills.memory", every="1h", box="1m")
    with working(tmp_path, redis) as (_, worker):
        resource.prlimit(worker, resource.RLIMIT_AS, (1 << 30, 1 << 30))
        tick(store, queue)
        until(lambda: ended(db), "its end")
        ticker.register(db, "plain", every="1h", box="1m")
        tick(store, queue)
        until(lambda: len(ended(db)) == 2, "the next one")
    plain, fills = ticker.list_runs(db)
    assert (fills.outcome, fills.reason) == ("failed", "MemoryError: ")
    assert plain.outcome == "succeeded"


@pytest.mark.netns
@pytest.mark.parametrize(
    ("mounts", "outcome", "error"),
    [
        (READ_ONLY, "failed", "FileNotFoundError: [Errno 2] No usable temporary directory found"),
        (SMALL, "failed", "OSError: [Errno 28] No space left on device"),
        (FULL, "succeeded", ""),  # Python takes the next temporary folder
    ],
    ids=["read-only", "full temporary folder", "full log"],
)
def test_a_ticker_and_a_worker_need_no_file_that_can_be_written(
    mounts: str, outcome: str, error: str, traced: object, db: Db, redis: Redis, tmp_path: Path
) -> None:
    prefix = (*IN_OWN_MOUNTS, mounts, "sh")
    environ = {"TMPDIR": str(tmp_path), "TICKER_TICK": "0.2s"}
    ticker.register(db, "writes.temporary", every="1h", box="1m")
    with (
        process(tmp_path, *prefix, "ticker", "run", **environ) as ticking,
        working(tmp_path, redis, *prefix, **environ) as (worker, _),
    ):
        until(lambda: ended(db), "its end")
        ticker.register(db, "plain", every="1h", box="1m")
        until(lambda: len(ended(db)) == 2, "the next one")
        for one in (worker, ticking):
            one.send_signal(signal.SIGTERM)
            assert one.wait(PATIENCE) == 0
    plain, writes = ticker.list_runs(db)
    assert (plain.outcome, writes.outcome) == ("succeeded", outcome)
    assert writes.reason.startswith(error)


@pytest.fixture
def host_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def change(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield change
    monkeypatch.undo()
    time.tzset()


@pytest.mark.slow
@pytest.mark.parametrize("begin", ["2026-03-28T22:00Z", "2026-10-24T22:00Z"], ids=["spring", "autumn"])
def test_the_zone_of_the_host_changes_no_tick(
    begin: str, host_zone: Callable[[str], None], db: Db, store: PostgresStore, queue: RedisQueue, redis: Redis
) -> None:
    schedules = ({"every": "20m"}, {"cron": "30 2 * * *"}, {"cron": "*/45 * * * *", "zone": "Europe/Berlin"},
                 {"calendar": "02:30"})  # fmt: skip

    def advances() -> list[Any]:
        """The next times of all tasks after each tick, every ten minutes of six hours."""
        now, found = datetime.fromisoformat(begin), []
        db.execute("DELETE FROM ticker.tasks"), redis.flushdb()
        with clock.use(lambda: now):
            for number, schedule in enumerate(schedules):
                ticker.register(db, "plain", name=f"task {number}", **schedule)
        for _ in range(36):
            now += timedelta(minutes=10)
            tick(store, queue, now)
            found.append(db.execute("SELECT name, next_run FROM ticker.tasks ORDER BY name").fetchall())
            db.execute("UPDATE ticker.tasks SET waiting = '{}'")
        return found

    host_zone("UTC")
    in_utc = advances()
    host_zone("Europe/Berlin")
    assert time.localtime(0).tm_hour == 1
    assert advances() == in_utc
    assert len({row for rows in in_utc for row in rows}) > 25
