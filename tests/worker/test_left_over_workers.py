"""A worker of the old application listens next to a good one: it is named, and what it cannot run starts in the other."""

import os
import re
import subprocess
import sys
from contextlib import contextmanager

import pytest

import ticker
from tests.harness import command
from tests.running import ROOT, Ticking, until, working
from tests.sentences import sentence
from ticker import settings
from ticker.queue.rq import RedisQueue
from ticker.read import health

pytestmark = pytest.mark.slow

CAUSES = {
    "knows no function": ("", sentence("health.knows_no_function", function="plain")),
    "cannot import ours": ("import sys; sys.modules['wrappers'] = None", sentence("health.ended_unstarted")),
    "has no settings": ("import os; del os.environ['DATABASE_URL']", sentence("errors.is_not_set", setting="DATABASE_URL")),
}  # fmt: skip


@contextmanager
def left_over(patch):
    """RQ's own worker, as a former deployment has started it."""
    program = [sys.executable, "-c", f"{patch}\nfrom rq.cli import main; main()"]
    environ = {name: value for name, value in os.environ.items() if name != "TICKER_TASKS"}
    with subprocess.Popen(
        [*program, "worker", "--url", os.environ["REDIS_URL"], "polling"], cwd=ROOT, env=environ,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()


def warnings():
    """Those of `ticker health`, `doctor` and the page."""
    return health.look(settings.from_environment()).warnings


@pytest.mark.parametrize(("patch", "why"), CAUSES.values(), ids=[*CAUSES])
def test_a_left_over_worker_is_named_and_its_jobs_run_in_a_good_one(patch, why, traced, db, monkeypatch):
    monkeypatch.setenv("TICKER_TICK", "1s")
    tasks = [ticker.register(db, "plain", name=str(n), every="10s") for n in range(4)]
    with Ticking(), left_over(patch) as stock:
        [named] = until(warnings, "a warning")
        text = {"pid": stock.pid, "host": os.uname().nodename, "queue": "polling", "age": re.compile(r"\d+")}
        refuses = sentence("health.refuses", why=re.compile(".+"), remedy="ticker worker --tasks ... polling", **text)
        assert refuses == named and why.within(named)
        assert refuses.within(command("doctor", code=1)[0])
        with working():
            until(lambda: all(ticker.get(db, task).last_success_at for task in tasks), "a run of each task")


def test_a_worker_that_does_not_know_the_function_of_a_group_is_named(traced, db, monkeypatch):
    monkeypatch.setenv("TICKER_TICK", "1s")
    db.execute(
        "INSERT INTO ticker.functions (name, batch, concurrency, announced_at) VALUES ('elsewhere', 2, 2, now())"
    )
    ticker.register_many(db, [{"function": "elsewhere", "name": str(n), "every": "10s"} for n in range(4)])
    with Ticking(), working():
        [named] = until(warnings, "a warning")
    assert sentence("health.knows_no_function", function="elsewhere").within(named)


def test_a_worker_is_not_named_for_a_function_that_no_worker_has_announced(traced, db, redis, monkeypatch):
    monkeypatch.setenv("TICKER_TICK", "1s")
    ticker.register(db, "unheard.of", every="10s")
    with Ticking(), working():
        until(lambda: RedisQueue(redis).refusing(), "a note")
        assert warnings() == ()
        db.execute("UPDATE ticker.functions SET name = 'unheard.of' WHERE name = 'plain'")
        [named] = warnings()
    assert sentence("health.knows_no_function", function="unheard.of").within(named)


def test_a_worker_that_refuses_nothing_is_not_named(traced, db):
    task = ticker.register(db, "fails", every="1m")
    with Ticking(), working():
        until(lambda: ticker.get(db, task).last_outcome == "failed", "a failure")
        assert warnings() == ()
