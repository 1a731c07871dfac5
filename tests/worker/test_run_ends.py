"""What must be so when a run's end is written, and what is written of a start whose answer was lost."""

import subprocess
import sys

import pytest

import ticker
from tests.running import supervised, work
from tests.sentences import sentence
from ticker.engine.tick import tick

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")

LEAVES = """
import os, subprocess
from pathlib import Path
from tests.running import is_alive
from wrappers import task
from wrappers.sandbox import handoff as ends

NULL = subprocess.DEVNULL
left = []

def leave():
    left.append(subprocess.Popen(["sleep", "60"], stdin=NULL, stdout=NULL, stderr=NULL).pid)
    daemon = "setsid sleep 60 </dev/null >/dev/null 2>&1 & echo $!"
    left.append(int(subprocess.run(["/bin/sh", "-c", daemon], stdout=subprocess.PIPE, check=True).stdout))

@task("returns")
def returns():
    leave()

@task("raises")
def raises():
    leave()
    raise ValueError

real = ends.leave
def leave_end(*end):
    Path(os.environ["NOTE"]).write_text(" ".join(f"{pid}:{is_alive(pid)}" for pid in left))
    return real(*end)
ends.leave = leave_end
"""


@pytest.mark.slow
@pytest.mark.promise("S2")
@on_linux
@pytest.mark.parametrize("how", ["auto", "watchdog"])
@pytest.mark.parametrize(("name", "outcome"), [("returns", "succeeded"), ("raises", "failed")])
def test_no_child_and_no_daemon_lives_when_a_horse_leaves_its_end(
    environ, db, store, queue, tmp_path, monkeypatch, name, outcome, how
):
    monkeypatch.setenv("NOTE", str(tmp_path / "note"))
    monkeypatch.setenv("TICKER_HARD_LIMIT", how)
    ticker.register(db, name, every="1m")
    tick(store, queue)
    work(patch=LEAVES)
    [run] = ticker.list_runs(db)
    assert run.outcome == outcome
    found = dict(word.split(":") for word in (tmp_path / "note").read_text().split())
    assert list(found.values()) == ["False", "False"]


FORKS = """
import os, sys
from wrappers import task

@task("forks")
def forks():
    codes = []
    for deed in (sys.exit, lambda: sys.exit(3), lambda: 1 / 0, int):
        if (pid := os.fork()) == 0:
            return deed()
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return codes
"""


@pytest.mark.slow
def test_a_forked_process_that_comes_out_of_the_function_writes_no_end_in_its_parents_place(environ, db, store, queue):
    ticker.register(db, "forks", every="1m")
    tick(store, queue)
    work(patch=FORKS)
    [run] = ticker.list_runs(db)
    assert (run.outcome, run.result) == ("succeeded", [0, 3, 1, 0])


ANSWER_IS_LOST = """
from ticker.errors import DatabaseUnavailable
from wrappers.pipeline import database

real = database.Database.execute
def execute(self, name, /, **parameters):
    rows = real(self, name, **parameters)
    if name in ("start", "start_planned"):
        {deed}
    return rows
database.Database.execute = execute
"""


@pytest.mark.slow
def test_a_start_whose_answer_was_lost_ends_as_lost_and_says_that_nothing_ran(environ, db, store, queue):
    task = ticker.register(db, "plain", every="1m")
    tick(store, queue)
    work(patch=ANSWER_IS_LOST.format(deed="self.close(); raise DatabaseUnavailable('the answer was lost')"))
    [run] = ticker.list_runs(db)
    assert (run.outcome, run.reason) == ("lost", sentence("why.no_answer_to_its_start"))
    assert ticker.get(db, task).running_until is None


@pytest.mark.slow
@on_linux
def test_the_keeper_ends_the_record_of_a_worker_that_dies_at_the_answer_to_a_start(environ, db, store, queue):
    task = ticker.register(db, "plain", every="1m")
    tick(store, queue)
    dies = ANSWER_IS_LOST.format(deed="import os; os.kill(os.getpid(), 9)")
    with pytest.raises(subprocess.CalledProcessError):
        work(patch=supervised(dies))
    [run] = ticker.list_runs(db)
    assert (run.outcome, run.reason) == ("lost", sentence("why.no_answer_to_its_start"))
    assert ticker.get(db, task).running_until is None
