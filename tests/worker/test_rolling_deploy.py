"""A rolling deploy: old workers take jobs of functions that only the new ones know. Real workers, real servers."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

import ticker
from tests.running import ROOT
from ticker.db.connections import connect
from ticker.engine.tick import tick
from ticker.read import overview
from wrappers.rq import between_jobs
from wrappers.rq import worker as ours

OLD = """
from wrappers import task

@task("a")
def a(run):
    pass
"""
NEW = """
@task("b")
def b(run, channel):
    pass
"""
DECORATED = """
import functools
from wrappers import task

def with_session(function):
    @functools.wraps(function)
    def call(run, **kwargs):
        return function(run, session=None, **kwargs)
    return call

@task("decorated")
@with_session
def decorated(run, channel, session):
    return "channel" + channel
"""


@pytest.fixture
def fleet(tmp_path, monkeypatch, environ):
    """Returns a function that lets an old or a new worker take what waits."""
    (tmp_path / "old_tasks.py").write_text(OLD)
    (tmp_path / "new_tasks.py").write_text(OLD + NEW)
    (tmp_path / "decorated_tasks.py").write_text(DECORATED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def work(age, *options):
        command = [sys.executable, "-m", "wrappers", "--tasks", f"{age}_tasks", "--burst", *options, "polling"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)

    return work


@pytest.mark.slow
def test_a_single_time_of_a_new_function_that_an_old_worker_took_first_still_runs(db, store, queue, fleet):
    once = ticker.register(db, "b", at=datetime.now(UTC) + timedelta(hours=1), kwargs={"channel": 7})
    db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp()")
    every = ticker.register(db, "a", every="1h")
    tick(store, queue)
    done = fleet("old")
    assert "unknown_here" in done.stdout
    assert ticker.get(db, every).last_outcome == "succeeded"
    assert (ticker.get(db, once).wait_reason, ticker.list_runs(db, task=once)) == ("unknown_here", [])
    tick(store, queue)
    fleet("new")
    assert ticker.get(db, once).last_outcome == "succeeded"


@pytest.mark.slow
def test_arguments_that_do_not_fit_fail_before_the_first_line_and_both_are_named(db, store, queue, fleet):
    ticker.register(db, "b", every="1h", kwargs={"chanel": 7})
    ticker.register(db, "b", name="positional", every="1h", args=["s3cret", 8], kwargs={"channel": 7})
    tick(store, queue)
    fleet("new")
    positional, named = sorted(ticker.list_runs(db), key=lambda run: run.task_name, reverse=True)
    assert named.outcome == positional.outcome == "failed"
    assert named.reason.startswith("TypeError: the task's kwargs (chanel) do not fit b(run, channel): ")
    assert positional.reason.startswith(
        "TypeError: the task's 2 args and kwargs (channel) do not fit b(run, channel): "
    )
    assert "s3cret" not in positional.reason


@pytest.mark.slow
def test_a_type_error_of_the_function_itself_is_not_blamed_on_its_kwargs(db, store, queue, fleet):
    """`inspect.signature` looks through `functools.wraps`, and the decorator gives an argument that the task does not."""
    ticker.register(db, "decorated", every="1h", kwargs={"channel": 7})
    tick(store, queue)
    fleet("decorated")
    [run] = ticker.list_runs(db)
    assert run.reason == 'TypeError: can only concatenate str (not "int") to str'


@pytest.mark.slow
def test_announcements_are_forgotten_and_a_worker_announces_again(db, fleet):
    fleet("new")
    task = ticker.register(db, "c", every="1h")
    assert task.unknown_function
    db.execute("UPDATE ticker.functions SET announced_at = announced_at - interval '3 hours' WHERE name = 'a'")
    assert [function.name for function in overview.functions(db)] == ["b"]
    patch = "import wrappers.rq.between_jobs; wrappers.rq.between_jobs.ANNOUNCED_AGAIN = -1"
    code = f"{patch}\nfrom wrappers.pipeline import database\nimport wrappers.__main__ as m; m.announce = lambda *_, **_how: None; m.main()"
    command = [sys.executable, "-c", code, "--tasks", "old_tasks", "--burst", "polling"]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert [function.name for function in overview.functions(db)] == ["a", "b"]
    assert overview.functions(db)[0].announced_at > datetime.now(UTC) - timedelta(minutes=5)


@pytest.mark.slow
def test_a_worker_starts_while_a_transaction_declares_its_functions(db, store, queue, database_url, fleet):
    task = ticker.register(db, "a", every="1h")
    tick(store, queue)
    with connect(database_url) as other, other.transaction():
        other.execute("INSERT INTO ticker.functions (name, batch, concurrency) VALUES ('a', 10, 5)")
        fleet("old")
    assert [run.outcome for run in ticker.list_runs(db, task=task)] == ["succeeded"]


def test_an_announcement_that_fails_ends_no_worker_and_is_made_again_sooner(environ, db, redis, monkeypatch, caplog):
    worker = ours.Worker(["polling"], connection=redis)
    worker.register_birth()
    for schema, seconds in (("elsewhere", between_jobs.ANNOUNCED_AGAIN), ("ticker", between_jobs.ANNOUNCED_EVERY)):
        monkeypatch.setenv("TICKER_SCHEMA", schema)
        worker._announces_at = 0
        worker.heartbeat()
        assert worker._announces_at == worker.moved_at + seconds
    assert caplog.text.count("were not announced") == 1
