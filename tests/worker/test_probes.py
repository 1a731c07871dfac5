"""The probes of real workers over HTTP."""

import os
import re
import signal
from types import SimpleNamespace
from urllib.request import urlopen

import pytest
from redis import Redis
from rq import Worker
from rq.worker import WorkerStatus

import ticker
from tests.running import PATIENCE, answer, until, working
from tests.sentences import sentence
from ticker import clock
from ticker.engine.tick import tick
from wrappers.pipeline import waiting_ends
from wrappers.pipeline.waiting_ends import WaitingEnds
from wrappers.rq import between_jobs
from wrappers.rq import worker as ours


def address(process):
    line = next(line for line in process.stdout if "probes at" in line)
    return re.search(r"probes at (\S+)/livez", line)[1]


@pytest.mark.slow
def test_a_worker_is_alive_and_ready_and_its_forks_do_not_keep_the_port(traced, db, store, queue):
    ticker.register(db, "swallows", every="1m")
    with working("--health-port", "0") as process:
        url = address(process)
        until(lambda: answer(f"{url}/readyz") == (200, "ok\n"), "the worker is ready")
        assert answer(f"{url}/livez") == (200, "ok\n")
        tick(store, queue)
        until(lambda: db.execute("SELECT FROM ticker.runs WHERE state = 'running'").fetchall(), "a run")
        assert answer(f"{url}/livez") == answer(f"{url}/readyz") == (200, "ok\n")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with pytest.raises(OSError):
            urlopen(f"{url}/livez", timeout=PATIENCE)


@pytest.mark.slow
def test_without_redis_a_worker_is_alive_and_not_ready(own_servers):
    _, redis = own_servers
    with working("--health-port", "0") as process, Redis.from_url(redis.url) as connection:
        url = address(process)
        until(lambda: answer(f"{url}/readyz") == (200, "ok\n"), "the worker is ready")
        until(lambda: [one.get_state() for one in Worker.all(connection)] == ["idle"], "the worker is idle")
        os.kill(redis.pid, signal.SIGKILL)
        why = sentence("errors.worker_without_redis", setting="REDIS_URL")
        until(lambda: answer(f"{url}/readyz") == (503, f"{why}\n"), "the worker is not ready")
        assert answer(f"{url}/livez") == (200, "ok\n")


@pytest.mark.parametrize(
    ("state", "waited", "is_live"),
    [(WorkerStatus.IDLE, 479, True), (WorkerStatus.IDLE, 481, False), (WorkerStatus.BUSY, 481, False),
     (WorkerStatus.SUSPENDED, 10_000, True)],
)  # fmt: skip
def test_a_worker_whose_loop_does_not_move_is_not_alive(state, waited, is_live, monkeypatch):
    worker = SimpleNamespace(get_state=lambda: state, moved_at=clock.monotonic() - waited, worker_ttl=420)
    monkeypatch.setattr(between_jobs, "_worker", worker)
    assert (between_jobs.live() == "") == is_live


def test_a_worker_that_ends_is_alive_as_long_as_it_may_try_its_last_ends(environ, redis, monkeypatch):
    worker, alive, now = ours.Worker(["polling"], connection=redis), list[bool](), clock.monotonic()

    class Unwritten(WaitingEnds):
        def __len__(self) -> int:
            return 1

        def drain(self, database: object, until: float) -> None:
            for seconds in (waiting_ends.PATIENCE, waiting_ends.PATIENCE + worker.worker_ttl + between_jobs.MARGIN + 1):
                monkeypatch.setattr(clock, "monotonic", lambda at=now + seconds: at)
                alive.append(between_jobs.live() == "")

    worker._unwritten = Unwritten()
    monkeypatch.setattr(between_jobs, "_worker", worker)
    worker.register_birth()
    worker.teardown()
    assert alive == [True, False]
