"""Real workers: what a run printed and logged is in its record, whatever ended it."""

import subprocess

import pytest

import ticker
from tests.running import supervised, work
from ticker.engine.tick import tick
from wrappers.sandbox.ring_buffer import HALF

FUNCTIONS = """
import ctypes, logging, os, sys, time
from contextlib import suppress
from wrappers import task

log = logging.getLogger("app")

@task("says.nothing")
def says_nothing():
    pass

def dies(name, death):
    def function():
        print("last words of", name)
        log.warning("now")
        death()
    task(f"dies.{name}")(function)

def overlook():
    while True:
        with suppress(BaseException):
            time.sleep(1000)

dies("overruns", overlook)
dies("computes", lambda: sum(range(10**13)))
dies("exits", lambda: os._exit(0))
dies("crashes", lambda: ctypes.string_at(0))
dies("executes", lambda: os.execlp("sleep", "sleep", "1000"))

@task("prints.on")
def prints_on():
    while True:
        print("still here")

@task("floods")
def floods(megabytes):
    piece = "0123456789abcde\\n" * 2**16
    for _ in range(megabytes):
        sys.stdout.write(piece)
    sys.stderr.buffer.write(b"\\0\\x1b[2J\\xff\\xc3\\x28" * 2**20)
"""
DEADLY = ("overruns", "computes", "exits", "crashes", "executes")
ENDLESS = {"every": "3s", "box": "1s"}


def records(db):
    """Output, error output and outcome of each task's run, by the task's name."""
    rows = db.execute("SELECT task_name, output, error_output, outcome FROM ticker.runs")
    return {name: found for name, *found in rows}


@pytest.mark.slow
def test_the_last_words_of_a_run_that_was_killed_are_in_its_record(environ, db, store, queue):
    for name in DEADLY:
        ticker.register(db, f"dies.{name}", **ENDLESS)
    ticker.register(db, "says.nothing", every="1m")
    tick(store, queue)
    work(patch=supervised(FUNCTIONS))
    found = records(db)
    for name in DEADLY:
        output, errors, outcome = found[f"dies.{name}"]
        assert (name, output, outcome) == (name, f"last words of {name}\n", "killed")
        assert errors.endswith("WARNING app: now\n")
    assert found["says.nothing"][:2] == ["", ""]  # nothing of another run's


@pytest.mark.slow
def test_a_run_that_prints_until_its_soft_limit_ends_as_timed_out_with_its_output(environ, db, store, queue):
    ticker.register(db, "prints.on", **ENDLESS)
    tick(store, queue)
    work(patch=FUNCTIONS)
    output, _, outcome = records(db)["prints.on"]
    assert outcome == "timed_out"
    assert output.startswith("still here\n") and " bytes left out ...]\n" in output


DIES_BEHIND_ITS_WORKER = f"""
{FUNCTIONS}
def kill_worker():
    os.kill(os.getppid(), 9)
    os._exit(1)
dies("behind.its.worker", kill_worker)
"""


@pytest.mark.slow
def test_behind_a_dead_worker_the_keeper_writes_what_the_run_had_said(environ, db, store, queue):
    ticker.register(db, "dies.behind.its.worker", every="1m")
    tick(store, queue)
    with pytest.raises(subprocess.CalledProcessError):
        work(patch=supervised(DIES_BEHIND_ITS_WORKER))
    output, _, outcome = records(db)["dies.behind.its.worker"]
    assert (output, outcome) == ("last words of behind.its.worker\n", "killed")


def flood(db, store, queue, megabytes):
    ticker.register(db, "floods", every="10m", kwargs={"megabytes": megabytes})
    tick(store, queue)
    done = work(patch=FUNCTIONS)
    output, errors, outcome = records(db)["floods"]
    mark = f"[... {megabytes * 2**20 - 2 * HALF} bytes left out ...]\n"
    assert outcome == "succeeded"
    assert output == "0123456789abcde\n" * (HALF // 16) + mark + "0123456789abcde\n" * (HALF // 16)
    assert errors.startswith("␀␛[2J��(␀") and len(errors) <= 2 * HALF + 100
    assert len(done.stdout) + len(done.stderr) < 10_000


@pytest.mark.slow
def test_50_mb_and_no_text_at_all_make_a_bounded_and_valid_record(environ, db, store, queue):
    flood(db, store, queue, 50)


@pytest.mark.long
def test_1_gb_makes_a_bounded_record(environ, db, store, queue):
    flood(db, store, queue, 1024)
