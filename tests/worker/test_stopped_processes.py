"""Every process of ours goes on after a stop: in a debugger, by a suspended machine, by a frozen container."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ticker
from tests.running import ROOT, Ticking, answer, is_alive, until
from tests.web.serving import serving
from tests.worker import grouped
from wrappers.sandbox import supervisor
from wrappers.sandbox.subreaper import children

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a supervisor")

ALONE = """
@task("alone")
def alone(run, deed):
    (FOLDER / deed).touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.01)
"""


@pytest.mark.parametrize("number", [0, 538976288, -5])
def test_a_number_that_is_not_awaited_is_no_signal(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: SimpleNamespace(si_signo=number))
    assert supervisor.awaited_signal() == 0


@pytest.fixture
def worker(environ: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], int]]:
    """Starts a worker of a queue, and returns the process id of its supervisor."""
    (tmp_path / "stopped_tasks.py").write_text(grouped.FUNCTIONS + ALONE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    monkeypatch.setenv("GROUP_FOLDER", str(tmp_path))
    with ExitStack() as started:

        def start(queue: str) -> int:
            command = [sys.executable, "-m", "wrappers", "--tasks", "stopped_tasks", queue]
            keeper = started.enter_context(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL))
            started.callback(keeper.terminate)
            return keeper.pid

        yield start


@pytest.mark.slow
def test_every_process_goes_on_after_stop_and_continue(worker: Callable[[str], int], db: Any, tmp_path: Path) -> None:
    ticker.register(db, "alone", every="1h", box="10m", kwargs={"deed": "alone"}, queue="alone")
    ticker.register(db, "two", every="1h", box="10m", kwargs={"deed": "grouped"}, queue="grouped")
    with Ticking() as ticking, serving() as web:
        pids = {ticking.process.pid, web.process.pid}
        for queue in ("alone", "grouped"):
            pids.add(keeper := worker(queue))
            until((tmp_path / queue).exists, f"the run in {queue}")
            [inner] = children(keeper)
            pids |= {inner, *children(inner)}
        assert len(pids) == 8
        stop_and_continue(pids)
        (tmp_path / "go").touch()
        until(lambda: outcomes(db) == ["succeeded"] * 2, "the ends of the runs that were stopped")
        for queue, function in (("alone", "alone"), ("grouped", "two")):
            ticker.register(
                db, function, name="next", owner=("a", queue), every="1h", kwargs={"deed": "next"}, queue=queue
            )
        until(lambda: outcomes(db) == ["succeeded"] * 4, "runs that began after the stop")
        assert answer(f"{web.address}healthz")[0] == 200
        assert sum(is_alive(pid) for pid in pids) >= 6, "only the processes of runs have ended"


def stop_and_continue(pids: set[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: all(state(pid) == "T" for pid in pids), "all stopped")
    deadline = time.monotonic() + 2 * supervisor.LOOK
    until(lambda: time.monotonic() > deadline, "the timeouts that a stopped process misses")
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def outcomes(db: Any) -> list[str]:
    return [str(run.outcome) for run in ticker.list_runs(db)]
