"""Two hundred workers on one PostgreSQL and one Redis: what they hold open, and whether the rest keeps its pace."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis

import ticker
from tests.harness import command
from tests.running import ROOT, Ticking, until
from ticker import embedded, migrations
from ticker.db.connections import connect

WORKERS = 200
# All are forks of a process that has imported what they need: the machine has not the memory for as many programs.
FORK = """
import ctypes, os, signal, sys
from wrappers.__main__ import main
import tests.sample_tasks
for number in range(int(sys.argv[1])):
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # when that process dies
        main(["--tasks", "tests.sample_tasks", "--name", f"worker {number}", "polling"])
sys.stdin.read()
"""


@contextmanager
def forked(workers: int, log: Path) -> Iterator[None]:
    with log.open("w") as file, subprocess.Popen(
        [sys.executable, "-c", FORK, str(workers)], cwd=ROOT, stdin=subprocess.PIPE, stdout=file, stderr=file
    ):  # fmt: skip
        yield


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_two_hundred_workers_hold_two_connections_to_redis_each_and_no_session(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with embedded.postgres(None, f"--max_connections={WORKERS + 50}") as postgres, embedded.valkey() as valkey:
        migrations.upgrade(postgres.url)
        monkeypatch.setenv("DATABASE_URL", postgres.url)
        monkeypatch.setenv("REDIS_URL", valkey.url)
        redis = Redis.from_url(valkey.url)
        with connect(postgres.url) as db, Ticking("--tick", "1s") as ticking:
            with forked(WORKERS, tmp_path / "log"):
                until(lambda: redis.scard("rq:workers") == WORKERS, "all workers", patience=480)
                sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ticker-run'"
                until(lambda: db.execute(sessions).fetchone() == (0,), "no session of an idle worker")
                assert redis.info("clients")["connected_clients"] <= 2 * WORKERS + 10
                command("doctor"), command("health")
                for number in range(2 * WORKERS):
                    ticker.register(db, "has.nothing", name=f"task {number}", every="1h", box="1m")
                ended = "SELECT count(*) FROM ticker.runs WHERE state = 'ended'"
                until(lambda: db.execute(ended).fetchone() == (2 * WORKERS,), "all runs", patience=480)
                assert Counter(run.outcome for run in ticker.list_runs(db, limit=1000)) == {
                    "nothing_to_do": 2 * WORKERS
                }
                assert len({run.worker for run in ticker.list_runs(db, limit=1000)}) > WORKERS / 2
            until(lambda: redis.scard("rq:workers") == 0, "the workers' ends", patience=120)
            assert ticking.stop() == 0
            assert not [line for line in ticking.lines if "ERROR" in line]
