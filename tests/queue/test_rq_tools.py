"""RQ's own commands over our jobs, as real processes: what they show, and what they do."""

import os
import subprocess
import sys
from datetime import timedelta

import pytest
from rq import Queue
from rq.command import send_stop_job_command
from rq.job import Job

import ticker
from tests.running import PATIENCE, ROOT, stock_worker, until, work
from ticker.engine.tick import tick

ENDLESS = {"every": "3s", "box": "1s"}
SEVERAL = """
import os
from wrappers import task

@task("several", batch=3)
def several(dies): os._exit(3) if dies else None
"""


def rq(*arguments: str) -> str:
    """What `rq COMMAND ...` prints."""
    command = [sys.executable, "-m", "rq.cli", *arguments, "--url", os.environ["REDIS_URL"]]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


def failed(redis) -> list[str]:
    return Queue("polling", connection=redis).failed_job_registry.get_job_ids()


def said(db) -> list[tuple[str, str]]:
    """Kind and outcome of each run; of a drop, its reason. Oldest first."""
    return [
        (str(run.kind), run.reason if run.outcome == "dropped" else str(run.outcome))
        for run in reversed(ticker.list_runs(db))
    ]


@pytest.mark.slow
@pytest.mark.smoke
def test_rq_info_counts_our_jobs_before_and_after_a_stock_worker_ran_them(environ, db, store, queue):
    for name in ("fails", "has.nothing"):
        ticker.register(db, name, every="1m")
    ticker.register(db, "reports", every="1m", queue="reports")
    tick(store, queue)
    before = rq("info", "--raw").splitlines()
    assert sorted(before) == [
        "queue polling 2, 0 executing, 0 finished, 0 failed",
        "queue reports 1, 0 executing, 0 finished, 0 failed",
    ]
    stock_worker("polling")
    assert "queue polling 0, 0 executing, 0 finished, 1 failed" in rq("info", "--raw", "polling")


@pytest.mark.slow
@pytest.mark.parametrize("worker", [work, stock_worker])
def test_a_failed_job_tells_its_functions_error_and_none_of_our_layers(worker, environ, db, store, queue, redis):
    ticker.register(db, "fails", every="1m")
    ticker.register(db, "swallows.exceptions", **ENDLESS)
    tick(store, queue)
    worker()
    told = [Job.fetch(job_id, connection=redis).latest_result().exc_string for job_id in failed(redis)]
    classes = [text.rstrip().splitlines()[-1].partition(":")[0].rpartition(".")[2] for text in told]
    assert classes == ["ValueError", "TimedOut"]
    for text in told:
        assert "tests/sample_tasks.py" in text
        assert not any(f"wrappers/layers/{layer}.py" in text for layer in ("guard", "sentry", "box", "record"))


@pytest.mark.slow
def test_requeueing_what_has_run_runs_nothing_and_run_now_runs_it(environ, db, store, queue, redis):
    task = ticker.register(db, "fails", every="1m")
    tick(store, queue)
    work()
    rq("requeue", "--queue", "polling", *failed(redis))
    work()
    ticker.run_now(db, task)
    tick(store, queue)
    work()
    rq("requeue", "--queue", "polling", "--all")  # now it is the run by hand
    work()
    assert said(db) == [("scheduled", "failed"), ("manual", "failed")]
    again = db.execute("SELECT run_id FROM ticker.events WHERE what = 'redelivered' ORDER BY id").fetchall()
    assert again == [(run.id,) for run in reversed(ticker.list_runs(db))]
    assert failed(redis) == []


@pytest.mark.slow
def test_requeueing_what_never_began_lets_it_begin(environ, db, store, queue, redis):
    ticker.register(db, "has.nothing", every="1m")
    tick(store, queue)
    stock_worker(patch="import os; os.environ['TICKER_TASKS'] = 'no.such.module'")
    assert said(db) == []
    rq("requeue", "--queue", "polling", *failed(redis))
    work()
    assert said(db) == [("scheduled", "nothing_to_do")]


@pytest.mark.slow
def test_requeueing_a_job_of_several_tasks_runs_those_that_had_no_start(environ, db, store, queue, redis):
    db.execute("INSERT INTO ticker.functions (name, batch, announced_at) VALUES ('several', 3, clock_timestamp())")
    for number in range(3):
        ticker.register(db, "several", name=f"{number}", every="1m", kwargs={"dies": number == 1})
    tick(store, queue)
    work(patch=SEVERAL)
    assert [run.outcome for run in reversed(ticker.list_runs(db))] == ["succeeded", "killed"]
    rq("requeue", "--queue", "polling", *failed(redis))
    work(patch=SEVERAL)
    ends = [(run.task_name, str(run.outcome)) for run in reversed(ticker.list_runs(db))]
    assert ends == [("0", "succeeded"), ("1", "killed"), ("2", "succeeded")]


@pytest.mark.slow
def test_a_waiting_job_that_was_deleted_is_pushed_again(environ, db, store, queue, redis):
    ticker.register(db, "has.nothing", every="1m")
    tick(store, queue)
    [job_id] = Queue("polling", connection=redis).get_job_ids()
    Job.fetch(job_id, connection=redis).delete()
    assert tick(store, queue, store.now() + timedelta(seconds=35)).swept.repushed == 1
    assert Queue("polling", connection=redis).get_job_ids() == [job_id]


@pytest.mark.slow
def test_a_run_whose_job_is_stopped_is_killed(environ, db, store, queue, redis):
    ticker.register(db, "async.hangs", every="1h")
    tick(store, queue)
    [job_id] = Queue("polling", connection=redis).get_job_ids()
    worker = subprocess.Popen([sys.executable, "-m", "wrappers", "--tasks", "tests.sample_tasks", "polling"], cwd=ROOT)
    try:
        until(lambda: Job.fetch(job_id, connection=redis).get_status() == "started", "the job began")
        until(lambda: ticker.list_runs(db), "the run began")
        send_stop_job_command(redis, job_id)
        until(lambda: said(db) == [("scheduled", "killed")], "the run was killed")
    finally:
        worker.terminate()
        worker.wait(PATIENCE)
