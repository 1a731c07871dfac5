"""The parent of the worker: it ends as its worker ended, and nothing of a run outlives its hard limit."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rq import Worker as RQWorker

import ticker
from tests.bench.overruns import CASES
from tests.bench.overshoot import Launched, launched, overrun
from tests.running import ROOT, is_alive, supervised, until
from tests.sentences import sentence
from wrappers.sandbox.subreaper import children

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")

AT_MOST = 1.0  # seconds past the hard limit
Start = Callable[[str], Launched]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a keeper whose worker runs a few lines of Python, and waits until these have made the file `ready`."""
    with ExitStack() as started:

        def run(body: str) -> Launched:
            keeper = subprocess.Popen(
                [sys.executable, "-c", supervised(body)],
                cwd=ROOT, env=os.environ | {"FOLDER": str(tmp_path)}, stderr=subprocess.PIPE, text=True,
                start_new_session=True,
            )  # fmt: skip
            started.enter_context(keeper)
            started.callback(keeper.kill)
            until((tmp_path / "ready").exists, "the worker")
            return Launched(keeper)

        yield run


SAY = """
import os, signal, sys, time
note = os.open(os.environ["FOLDER"] + "/ready", os.O_WRONLY | os.O_CREAT)
def say(text): os.write(note, text.encode() + b"\\n")  # a print is not safe in a handler
"""
SLEEP = "while True: time.sleep(100)"


def said(tmp_path: Path) -> str:
    return (tmp_path / "ready").read_text()


# --- A worker of a few lines ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "code", "is_logged"),
    [
        ("pass", 0, False),
        ("sys.exit(78)", 78, False),
        ("os._exit(3)", 3, False),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, True),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, False),
    ],
)
def test_it_ends_as_its_worker_ended_and_logs_an_unexpected_death(body: str, code: int, is_logged: bool) -> None:
    program = f"import os, signal, sys\n{supervised(body)}"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=30, stdout=subprocess.PIPE, text=True)
    assert ended.returncode == code
    assert sentence("logs.worker_died_of", signal="SIGKILL").within(ended.stdout) is is_logged is bool(ended.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_what_a_terminal_sends_to_the_whole_group_reaches_the_worker_once(
    start: Start, tmp_path: Path, signum: signal.Signals
) -> None:
    heard = f"signal.signal({int(signum)}, lambda *_: say('heard'))\n"
    ended = "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(5))\n"
    launcher = start(f"{SAY}{heard}{ended}say('up')\n{SLEEP}")
    until(lambda: said(tmp_path), "the handlers")
    os.killpg(launcher.keeper.pid, signum)
    until(lambda: "heard" in said(tmp_path), "the signal")
    launcher.keeper.send_signal(signal.SIGUSR2)
    assert launcher.keeper.wait(30) == 5
    assert said(tmp_path) == "up\nheard\n"


@pytest.mark.slow
def test_ctrl_z_stops_both_and_both_go_on(start: Start) -> None:
    launcher = start(SAY + SLEEP)
    pids = (launcher.keeper.pid, launcher.worker)
    os.killpg(launcher.keeper.pid, signal.SIGTSTP)
    until(lambda: [state(pid) for pid in pids] == ["T", "T"], "both stopped")
    os.killpg(launcher.keeper.pid, signal.SIGCONT)
    until(lambda: "T" not in [state(pid) for pid in pids], "both running")
    launcher.keeper.terminate()
    assert launcher.keeper.wait(30) == -signal.SIGTERM


@pytest.mark.slow
def test_a_killed_keeper_ends_its_worker_by_sigterm(start: Start, tmp_path: Path) -> None:
    heard = "def stop(*_): say('told to end'); sys.exit()\nsignal.signal(signal.SIGTERM, stop)\n"
    launcher = start(f"{SAY}{heard}say('up')\n{SLEEP}")
    until(lambda: said(tmp_path), "the handler")
    launcher.keeper.kill()
    until(lambda: not is_alive(launcher.worker), "a dead worker")
    assert said(tmp_path) == "up\ntold to end\n"


@pytest.mark.slow
def test_it_loads_nothing_that_a_worker_needs() -> None:
    program = "import sys; from wrappers.pipeline import dead_workers; from wrappers.sandbox import supervisor; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    names = {name.partition(".")[0] for name in loaded.stdout.split()}
    assert not names & {"rq", "redis", "psycopg", "click", "asyncio"}


# --- A real worker, in the middle of a run that will not end --------------------------------------------------


@pytest.fixture
def meet(environ: object, db: Any, store: Any, queue: Any, tmp_path: Path) -> Callable[[str], Any]:
    """Pushes a task that overruns in the named way, and waits until a worker is in it."""
    return lambda name: overrun(db, store, queue, name, tmp_path)


def last_outcome(db: Any) -> str | None:
    return ticker.list_runs(db)[0].outcome


@pytest.mark.slow
@pytest.mark.promise("S3")
def test_nothing_outlives_the_limit_when_the_worker_was_killed_in_mid_run(meet: Callable[[str], Any], db: Any) -> None:
    with launched() as launcher:
        run = meet("swallows every exception")
        os.kill(launcher.worker, signal.SIGKILL)
        assert run.overshoot() < AT_MOST
        assert launcher.keeper.wait(30) == -signal.SIGKILL
        assert last_outcome(db) == "killed"


@pytest.mark.slow
def test_nothing_outlives_the_limit_while_the_worker_is_stopped_and_it_goes_on_after(
    meet: Callable[[str], Any], db: Any
) -> None:
    with launched() as launcher:
        run = meet("leaves deaf and stopped children")
        os.kill(launcher.worker, signal.SIGSTOP)
        assert run.overshoot() < AT_MOST
        os.kill(launcher.worker, signal.SIGCONT)
        until(lambda: last_outcome(db) == "killed", "its ended record")
        assert meet("swallows every exception").overshoot() < AT_MOST


@pytest.mark.slow
def test_a_program_that_an_exec_put_in_the_place_of_the_horse_dies_in_time(meet: Callable[[str], Any], db: Any) -> None:
    with launched():
        assert meet("executes another program").overshoot() < AT_MOST
        until(lambda: last_outcome(db) == "killed", "its ended record")
        assert sentence("why.killed_at_some_hard_limit").begins(ticker.list_runs(db)[0].reason)


STOPS_BEFORE_ITS_CLEAN_UP = """
import os, signal, subprocess
from pathlib import Path
from wrappers import task
from wrappers.rq import worker
from wrappers.__main__ import main

@task("leaves.and.exits")
def leaves_and_exits(note):
    Path(note).write_text(str(subprocess.Popen(["sleep", "60"]).pid))
    os._exit(0)

kill = worker.subreaper.kill_new_children
def stopped_before_it_kills(before):
    os.kill(os.getpid(), signal.SIGSTOP)
    return kill(before)
worker.subreaper.kill_new_children = stopped_before_it_kills
main()
"""


@pytest.mark.slow
def test_a_worker_that_is_stopped_between_the_death_of_a_horse_and_its_clean_up_leaves_no_child_past_the_limit(
    environ: object, db: Any, store: Any, queue: Any, tmp_path: Path
) -> None:
    from ticker.engine.tick import tick

    note = tmp_path / "note"
    ticker.register(db, "leaves.and.exits", every="10s", box="2s", kwargs={"note": str(note)})
    tick(store, queue)
    program = supervised(STOPS_BEFORE_ITS_CLEAN_UP)
    command = [sys.executable, "-c", program, "--tasks", "tests.sample_tasks", "--burst", "polling"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as keeper:
        launcher = Launched(keeper)
        try:
            until(lambda: state(launcher.worker) == "T", "the stop")
            child = int(note.read_text())
            until(lambda: not is_alive(child), "the death of the child")
            assert state(launcher.worker) == "T"
        finally:
            os.kill(launcher.worker, signal.SIGCONT)
    assert keeper.returncode == 0
    assert last_outcome(db) == "killed"


@pytest.mark.slow
def test_an_orphaned_horse_ends_its_run_itself_before_the_keeper_goes(
    environ: object, db: Any, store: Any, queue: Any
) -> None:
    from ticker.engine.tick import tick

    ticker.register(db, "exhausts", every="20s", box="5s")
    with launched("tests.sample_tasks") as launcher:
        tick(store, queue)
        [horse] = until(lambda: running(db) and children(launcher.worker), "the run")
        os.kill(launcher.worker, signal.SIGKILL)
        assert launcher.keeper.wait(30) == -signal.SIGKILL
        assert last_outcome(db) == "partial"
        assert not is_alive(horse)


@pytest.mark.slow
def test_a_sigterm_ends_the_wait_for_an_orphaned_horse(environ: object, db: Any, store: Any, queue: Any) -> None:
    from ticker.engine.tick import tick

    ticker.register(db, "exhausts", every="1d", box="1h")
    with launched("tests.sample_tasks") as launcher:
        tick(store, queue)
        [horse] = until(lambda: running(db) and children(launcher.worker), "the run")
        os.kill(launcher.worker, signal.SIGKILL)
        until(lambda: horse in children(launcher.keeper.pid), "the orphan")
        until(lambda: launcher.worker not in children(launcher.keeper.pid), "the keeper's notice of it")
        launcher.keeper.terminate()
        assert launcher.keeper.wait(30) == -signal.SIGKILL
        assert not is_alive(horse)
        assert last_outcome(db) == "killed"
        assert ticker.list_runs(db)[0].reason == "killed by SIGKILL"


@pytest.mark.slow
def test_a_warm_stop_lets_the_run_end_and_rq_knows_the_worker_by_its_own_pid(
    environ: object, db: Any, store: Any, queue: Any, redis: Any
) -> None:
    from ticker.engine.tick import tick

    ticker.register(db, "exhausts", every="10s", box="2s")
    with launched("tests.sample_tasks") as launcher:
        tick(store, queue)
        until(lambda: running(db), "the run")
        assert [worker.pid for worker in RQWorker.all(redis)] == [launcher.worker]
        launcher.keeper.terminate()
        assert launcher.keeper.wait(30) == 0
        assert last_outcome(db) == "partial"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("deed", [0, signal.SIGSTOP, signal.SIGKILL], ids=["alive", "stopped", "killed"])
@pytest.mark.parametrize("how", ["auto", "watchdog"])
def test_no_function_outlives_its_limit_by_a_second(
    meet: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, how: str, deed: int
) -> None:
    monkeypatch.setenv("TICKER_HARD_LIMIT", how)
    for name in CASES:
        with launched() as launcher:
            run = meet(name)
            os.kill(launcher.worker, deed)
            assert run.overshoot() < AT_MOST, name


def running(db: Any) -> bool:
    return any(run.state == "running" for run in ticker.list_runs(db))


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
