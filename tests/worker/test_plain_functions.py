"""`--functions`: workers run plain functions of old applications as they are, and nothing else by its path."""

import os
import subprocess
import sys

import pytest

import ticker
from tests.running import ROOT
from tests.sentences import sentence
from ticker.engine.tick import tick
from ticker.read import overview

pytestmark = pytest.mark.slow

JOBS = """
import os
from contextlib import contextmanager
from json import dumps

from redis import Redis
from rq.decorators import job

SEEN = []

def poll(mailbox, port=143, *, deep=False):
    return [mailbox, port, deep]

async def awaited(number):
    return number

def with_run(run, mailbox):
    return [type(run).__name__, mailbox]

@job("polling", connection=Redis())
def decorated(number):
    return number + 1

def lines():
    yield 1

@contextmanager
def connection():
    yield

class Mailer:
    def __init__(self, *_):
        raise SystemExit("called")

def _secret(*_):
    return "secret"
"""
TRAP = """
import pathlib
pathlib.Path(__file__).with_name("sprung").touch()

def spring():
    pass
"""


@pytest.fixture
def old(tmp_path, monkeypatch, environ):
    """Returns a function that starts a worker beside an old application, until its queue is empty."""
    (tmp_path / "oldapp").mkdir()
    (tmp_path / "oldapp/__init__.py").write_text("from oldapp.jobs import poll\n")
    (tmp_path / "oldapp/jobs.py").write_text(JOBS)
    (tmp_path / "trap.py").write_text(TRAP)
    (tmp_path / "empty.py").write_text("from json import dumps\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def work(*options, stock=False, **variables):
        ours = ["-m", "wrappers", "--burst", *options]
        command = ["-m", "rq.cli", "worker", "-c", "wrappers.entry", "--burst", "--url", os.environ["REDIS_URL"]]
        return subprocess.run(
            [sys.executable, *(command if stock else ours), "polling"], cwd=ROOT, env=os.environ | variables,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    return work


CALLS = {
    "oldapp.jobs:poll": {"args": ["imap"], "kwargs": {"deep": True}},
    "oldapp.jobs:awaited": {"args": [5]},
    "oldapp.jobs:with_run": {"args": ["imap"]},
    "oldapp.jobs:decorated": {"kwargs": {"number": 6}},
}
RESULTS = {
    "oldapp.jobs:poll": ["imap", 143, True],
    "oldapp.jobs:awaited": 5,
    "oldapp.jobs:with_run": ["Run", "imap"],
    "oldapp.jobs:decorated": 7,
}


@pytest.mark.parametrize(
    ("stock", "options", "variables"),
    [
        (False, ["--functions", "oldapp.jobs"], {}),
        (False, ["--functions", "oldapp.jobs.poll,oldapp.jobs:awaited", "--functions", "oldapp.jobs.with_run,oldapp.jobs.decorated"], {}),
        (False, [], {"TICKER_FUNCTIONS": "oldapp.jobs"}),
        (True, [], {"TICKER_FUNCTIONS": "oldapp.jobs"}),
    ],
    ids=["module", "functions", "variable", "stock worker"],
)  # fmt: skip
def test_functions_of_an_old_application_run_unedited(stock, options, variables, db, store, queue, old):
    for function, arguments in CALLS.items():
        ticker.register(db, function, every="1h", **arguments)
    tick(store, queue)
    done = old(*options, stock=stock, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {run.function: run.result for run in ticker.list_runs(db)} == RESULTS


def test_a_worker_announces_what_it_offers_and_no_more(db, old):
    assert old("--functions", "oldapp.jobs", "--functions", "trap").returncode == 0
    names = [function.name for function in overview.functions(db)]
    assert names == [*sorted([*CALLS, "oldapp.jobs:connection"]), "trap:spring"]
    assert not ticker.register(db, "oldapp.jobs:poll", every="1m").warnings
    assert ticker.register(db, "oldapp.jobs:pol", every="1m").unknown_function
    assert old("--functions", "oldapp.jobs.poll").returncode == 0


HOSTILE = (
    "os:system", "os.system", "oldapp.jobs:_secret", "oldapp.jobs:dumps", "oldapp.jobs:Mailer", "oldapp.jobs:SEEN.append",
    "oldapp.jobs:os.system", "oldapp.jobs.poll", "oldapp:poll", "oldapp.jobs:lines", "trap:spring", "trap", "builtins:exec",
    "oldapp.jobs:poll.__globals__", "*", "oldapp.jobs:*",
)  # fmt: skip


@pytest.mark.parametrize("stock", [False, True], ids=["ours", "stock worker"])
def test_the_name_in_a_row_reaches_only_what_the_operator_names(stock, db, store, queue, old, tmp_path):
    for function in HOSTILE:
        ticker.register(db, function, every="1h", args=[f"touch {tmp_path}/called"])
    once = ticker.register(db, "oldapp.jobs:poll", every="1h", args=["imap"])
    tick(store, queue)
    done = old(stock=stock, TICKER_FUNCTIONS="oldapp.jobs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(run.task_id, run.outcome) for run in ticker.list_runs(db)] == [(once.id, "succeeded")]
    reasons = {task.function: task.wait_reason for task in ticker.list_tasks(db) if task.id != once.id}
    assert reasons == dict.fromkeys(HOSTILE, "unknown_here")
    assert not (tmp_path / "sprung").exists() and not (tmp_path / "called").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nope", sentence("errors.no_module", option="--functions (TICKER_FUNCTIONS)", module="'nope'")),
        ("oldapp.nope", sentence("errors.no_module", option="--functions (TICKER_FUNCTIONS)", module="'oldapp.nope'")),
        ("oldapp.*", sentence("errors.no_module", option="--functions (TICKER_FUNCTIONS)", module="'oldapp.*'")),
        ("oldapp..jobs", sentence("errors.no_full_name", option="--functions (TICKER_FUNCTIONS)", module="'oldapp.'")),
        ("oldapp.jobs.nope", sentence("errors.no_plain_function", name="'oldapp.jobs.nope'", module="oldapp.jobs")),
        ("oldapp.jobs._secret", sentence("errors.no_plain_function", name="'oldapp.jobs._secret'", module="oldapp.jobs")),
        ("oldapp.jobs:Mailer", sentence("errors.no_plain_function", name="'oldapp.jobs:Mailer'", module="oldapp.jobs")),
        ("oldapp:poll", sentence("errors.no_plain_function", name="'oldapp:poll'", module="oldapp")),
        ("oldapp.jobs:", sentence("errors.no_plain_function", name="'oldapp.jobs:'", module="oldapp.jobs")),
        ("os:system", sentence("errors.no_plain_function", name="'os:system'", module="os")),
        ("empty", sentence("errors.no_plain_functions", name="'empty'")),
        ("oldapp.jobs.lines", sentence("errors.yields", task="'oldapp.jobs:lines'")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_name_that_is_no_module_and_no_function_of_its_own_is_one_sentence_at_the_start(name, said, old):
    done = old("--functions", name)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (78, "", 1)
    assert said.within(done.stderr)
