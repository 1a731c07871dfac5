"""Real workers: forked horses, real signals, real kills. Each test reads what the tables say afterwards."""

import subprocess
import sys
from datetime import timedelta

import pytest
from rq import Queue, SimpleWorker
from rq.job import Job

import ticker
from tests.factories import let_time_pass
from tests.harness import command
from tests.running import ROOT, is_alive, stock_worker, until, work, working
from tests.sentences import sentence
from ticker.db.connections import connect
from ticker.engine import jobs
from ticker.engine.tick import tick

ENDLESS = {"every": "3s", "box": "0.5s"}  # dead within 0.8 s of their start


def outcomes(db):
    """The outcome of each task's last run or drop, by the task's name."""
    return {run.task_name: run.outcome for run in reversed(ticker.list_runs(db))}


def last_run(db, name):
    return next(run for run in ticker.list_runs(db) if run.task_name == name)


@pytest.mark.promise("S9")
@pytest.mark.smoke
def test_functions_end_in_the_outcome_that_they_earned(traced, db, store, queue):
    ticker.register(db, "plain", every="1m", kwargs={"channel_id": 5})
    for name in ("async", "fails", "leaves.by.exit", "crashes", "kills.itself", "returns.odd", "unheard.of"):
        ticker.register(db, name, every="1m")
    tick(store, queue)
    done = work()
    assert outcomes(db) == {
        "plain": "succeeded", "async": "succeeded", "fails": "failed", "leaves.by.exit": "killed", "crashes": "killed",
        "kills.itself": "killed", "returns.odd": "succeeded",
    }  # fmt: skip
    assert traced("plain") == [{"channel_id": 5}]
    assert last_run(db, "plain").result == 5
    assert last_run(db, "returns.odd").result.startswith("{'when': <object object")
    failed = last_run(db, "fails")
    assert failed.reason == "ValueError: no � such host"
    assert failed.traceback.rstrip().endswith("ValueError: no � such host")
    assert ticker.get(db, "unheard.of").wait_reason == "unknown_here"
    assert [last_run(db, name).reason for name in ("leaves.by.exit", "crashes", "kills.itself")] == [
        "exited with status 0", "died of SIGSEGV", "killed by SIGKILL",
    ]  # fmt: skip
    assert "unknown_here task=" in done.stdout
    assert all(task.running_until is None and not task.waiting for task in ticker.list_tasks(db))


HELD = """
import os, psycopg
from tests.running import until
from tests.sample_tasks import trace
from wrappers import task

def wait_for_the_end():
    trace("began")
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
        until(lambda: db.execute("SELECT 1 FROM trace WHERE what = 'end'").fetchone(), "the end")

@task("alone")
def alone():
    wait_for_the_end()

@task("grouped", batch=2, concurrency=2)
def grouped():
    wait_for_the_end()
"""


@pytest.mark.slow
@pytest.mark.parametrize("function", ["alone", "grouped"])
def test_the_pid_of_a_run_at_work_is_never_that_of_another_process(function, traced, db, store, queue):
    """The worker asks for the start of a single run before its process exists: that pid is recorded with the end."""
    with working(patch=HELD):
        if function == "grouped":
            until(
                lambda: db.execute("SELECT 1 FROM ticker.functions WHERE name = 'grouped'").fetchone(),
                "it is announced",
            )
        ticker.register(db, function, every="1h", box="10m")
        tick(store, queue)
        until(lambda: traced("began"), "the run")
        [(pid,)] = db.execute("SELECT pid FROM trace").fetchall()
        [at_work] = ticker.list_runs(db)
        db.execute("INSERT INTO trace (what) VALUES ('end')")
        until(lambda: last_run(db, function).outcome, "its end")
    assert (at_work.pid, last_run(db, function).pid) == (pid if function == "grouped" else None, pid)


@pytest.mark.slow
def test_an_error_reaches_rqs_failed_registry_and_a_drop_does_not(traced, db, store, queue, redis):
    ticker.register(db, "fails", every="1m")
    ticker.register(db, "unheard.of", every="1m")
    tick(store, queue)
    work()
    [failed] = Queue("polling", connection=redis).failed_job_registry.get_job_ids()
    assert (
        Job.fetch(failed, connection=redis)
        .latest_result()
        .exc_string.rstrip()
        .endswith("ValueError: no \x00 such host")
    )


@pytest.mark.promise("S2", "S3")
def test_what_overruns_its_box_is_ended_with_everything_it_left_behind(traced, db, store, queue):
    names = ("swallows", "swallows.exceptions", "long.c.call", "stops.itself", "async.hangs", "exhausts")
    for name in names:
        ticker.register(db, name, **ENDLESS)
    tick(store, queue)
    work()
    assert outcomes(db) == {
        "swallows": "killed", "swallows.exceptions": "timed_out", "long.c.call": "killed", "stops.itself": "killed",
        "async.hangs": "timed_out", "exhausts": "partial",
    }  # fmt: skip
    for run in ticker.list_runs(db):
        assert run.ended_at - run.started_at >= timedelta(seconds=0.4)  # 0.5 s from before the start was asked for
    for name in ("swallows", "long.c.call", "stops.itself"):
        assert last_run(db, name).reason == sentence("why.killed_at_hard_limit", limit="0.8 s")
    [pids] = traced("swallows")
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.promise("S7")
def test_the_next_run_goes_on_at_the_cursor(traced, db, store, queue):
    ticker.register(db, "resumes", every="1m")
    for _ in range(2):
        tick(store, queue, store.now() + timedelta(minutes=1))
        work()
        let_time_pass(db, 60)
        db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp()")
    assert traced("resumes") == [1, 2]


@pytest.mark.slow
def test_a_job_that_is_requeued_after_its_run_runs_nothing_and_is_an_event(traced, db, store, queue, redis):
    ticker.register(db, "fails", every="1m")
    tick(store, queue)
    work()
    let_time_pass(db, 60)  # spacing alone would let it run
    registry = Queue("polling", connection=redis).failed_job_registry
    registry.requeue(registry.get_job_ids()[0])
    work()
    [run] = ticker.list_runs(db)
    assert (run.outcome, run.reason[:9]) == ("failed", "ValueErro")
    assert ("redelivered", run.id) in db.execute("SELECT what, run_id FROM ticker.events").fetchall()


@pytest.mark.promise("S3")
@pytest.mark.smoke
def test_a_stock_worker_runs_the_jobs_and_kills_the_process_that_overruns(traced, db, store, queue):
    for name in ("plain", "async"):
        ticker.register(db, name, every="1m")
    for name in ("long.c.call", "swallows.exceptions"):
        ticker.register(db, name, **ENDLESS)
    tick(store, queue)
    stock_worker()
    assert outcomes(db) == {
        "plain": "succeeded",
        "async": "succeeded",
        "swallows.exceptions": "timed_out",
        "long.c.call": None,
    }
    tick(store, queue, store.now() + timedelta(seconds=3))  # nobody closed the killed run's record: the sweep does
    assert outcomes(db)["long.c.call"] == "lost"


@pytest.mark.slow
def test_a_worker_that_does_not_fork_is_refused(environ, db, store, queue, redis, function):
    calls = []
    function("plain")(lambda: calls.append(1))
    ticker.register(db, "plain", every="1m")
    tick(store, queue)
    SimpleWorker(["polling"], connection=redis).work(burst=True, logging_level="CRITICAL")
    assert calls == []
    [failed] = Queue("polling", connection=redis).failed_job_registry.get_job_ids()
    assert sentence("errors.worker_does_not_fork").within(
        Job.fetch(failed, connection=redis).latest_result().exc_string
    )
    assert tick(store, queue).swept.repushed == 1  # a worker that forks may still take it


@pytest.mark.slow
def test_a_function_may_delete_or_disable_its_own_owner_in_mid_run(traced, db, store, queue):
    from ticker import owners

    db.execute("CREATE TABLE mail_channels (id int PRIMARY KEY, enabled boolean NOT NULL DEFAULT true)")
    for statement in owners.triggers("mail_channels", active_when="enabled"):
        db.execute(statement)
    db.execute("INSERT INTO mail_channels VALUES (1), (2)")
    ticker.register(db, "deletes.owner", every="1m", owner=("mail_channels", "1"), kwargs={"channel_id": 1})
    ticker.register(db, "disables.owner", every="1m", owner=("mail_channels", "2"), kwargs={"channel_id": 2})
    tick(store, queue)
    work()
    assert outcomes(db) == {"deletes.owner": "succeeded", "disables.owner": "succeeded"}
    [left] = ticker.list_tasks(db)
    assert (left.name, left.owner_active, left.enabled, left.last_outcome) == (
        "disables.owner",
        False,
        True,
        "succeeded",
    )


@pytest.mark.promise("S6")
def test_the_waiting_job_of_a_deleted_owner_ends_as_gone_and_others_go_on(traced, db, store, queue):
    from ticker import owners

    db.execute("CREATE TABLE mail_channels (id int PRIMARY KEY)")
    for statement in owners.triggers("mail_channels"):
        db.execute(statement)
    db.execute("INSERT INTO mail_channels VALUES (1), (2)")
    for channel in ("1", "2"):
        ticker.register(db, "plain", every="1m", owner=("mail_channels", channel), kwargs={"id": channel})
    tick(store, queue)
    db.execute("DELETE FROM mail_channels WHERE id = 1")
    work()
    assert traced("plain") == [{"id": "2"}]
    assert sorted((run.outcome, run.reason) for run in ticker.list_runs(db)) == [("dropped", "gone"), ("succeeded", "")]


@pytest.mark.slow
def test_the_watchdog_process_ends_a_run_where_there_are_no_kernel_timers(traced, db, store, queue, monkeypatch):
    monkeypatch.setenv("TICKER_HARD_LIMIT", "watchdog")
    for name in ("long.c.call", "swallows.exceptions"):
        ticker.register(db, name, **ENDLESS)
    tick(store, queue)
    work()
    assert outcomes(db) == {"long.c.call": "killed", "swallows.exceptions": "timed_out"}


@pytest.mark.promise("S7")
def test_the_box_never_outlasts_the_time_out_that_rq_was_told_at_the_push(traced, db, store, queue):
    """The row was edited after the push: RQ would end the job at 31 s, so the box is cut to what leaves its margin."""
    task = ticker.register(db, "exhausts", every="2s", box="0.5s")
    tick(store, queue)
    ticker.edit(db, task, every="10m", box="5m")
    work()
    run = last_run(db, "exhausts")
    assert run.outcome == "partial"
    assert run.ended_at - run.started_at < timedelta(seconds=30)


@pytest.mark.slow
def test_a_start_that_cannot_be_saved_runs_nothing(traced, db, store, queue):
    """The table of runs lacks a column: the start fails as a whole, and so does the job."""
    task = ticker.register(db, "plain", every="1m")
    tick(store, queue)
    db.execute("ALTER TABLE ticker.runs RENAME checked_at TO away")
    work()
    db.execute("ALTER TABLE ticker.runs RENAME away TO checked_at")
    assert traced("plain") == []
    assert ticker.get(db, task).last_run is None
    assert tick(store, queue).swept.repushed == 1
    work()
    assert last_run(db, "plain").outcome == "succeeded"


@pytest.mark.slow
def test_a_start_waits_for_a_row_that_a_long_transaction_holds(traced, db, store, queue, database_url):
    """Longer than the 2 s after which a wait for a lock ends."""
    task = ticker.register(db, "plain", every="1d")
    tick(store, queue)
    with connect(database_url) as other, working("--burst") as worker:
        with other.transaction():
            other.execute("SELECT FROM ticker.tasks WHERE id = %s FOR UPDATE", [task.id])
            until(lambda: sentence("logs.start_waits_for_a_row").within(worker.stdout.readline()), "the start waits")
        worker.communicate()
    assert outcomes(db) == {"plain": "succeeded"}


@pytest.mark.slow
def test_six_characters_that_look_like_a_nul_are_kept_and_a_nul_is_replaced(traced, db, store, queue):
    ticker.register(db, "returns.escapes", every="1m")
    tick(store, queue)
    work()
    run = last_run(db, "returns.escapes")
    assert (run.outcome, run.result) == ("succeeded", ["\\u0000", "�"])
    assert ticker.get(db, "returns.escapes").cursor == "\\u0000"


@pytest.mark.slow
def test_a_result_that_cannot_be_kept_as_it_is_says_so_in_its_record(traced, db, store, queue):
    for name in ("returns.odd", "returns.nan", "returns.much", "plain"):
        ticker.register(db, name, every="1m", kwargs={"channel_id": 5} if name == "plain" else {})
    tick(store, queue)
    work()
    runs = {run.task_name: run for run in ticker.list_runs(db)}
    assert {run.outcome for run in runs.values()} == {"succeeded"}
    assert {name: run.reason for name, run in runs.items()} == {
        "returns.odd": sentence("errors.result_not_json"),
        "returns.nan": sentence("errors.result_not_json"),
        "returns.much": sentence("errors.result_too_long"),
        "plain": "",
    }
    assert runs["returns.nan"].result == "nan" and len(runs["returns.much"].result) == 200
    shown, _ = command("runs", "--id", str(runs["returns.nan"].id))
    assert sentence("errors.result_not_json").within(shown)


@pytest.mark.slow
def test_a_cursor_that_is_no_json_is_refused_in_one_sentence(traced, db, store, queue):
    ticker.register(db, "odd.cursor", every="1m")
    tick(store, queue)
    work()
    run = last_run(db, "odd.cursor")
    assert run.outcome == "failed"
    assert sentence("why.no_cursor", field="checkpoint", type="str").begins(run.reason)


@pytest.mark.slow
def test_a_function_that_overlooks_its_soft_limit_and_returns_has_timed_out(traced, db, store, queue):
    ticker.register(db, "returns.late", **ENDLESS)
    tick(store, queue)
    work()
    assert outcomes(db) == {"returns.late": "timed_out"}


COUNTS_FROZEN = """
import gc
from wrappers import task

@task("counts.frozen")
def counts_frozen():
    return gc.get_freeze_count() > 0.9 * (gc.get_freeze_count() + len(gc.get_objects()))
"""


@pytest.mark.slow
def test_a_collection_in_the_process_of_a_run_does_not_walk_what_its_worker_has_imported(environ, db, store, queue):
    ticker.register(db, "counts.frozen", every="1m")
    tick(store, queue)
    work(patch=COUNTS_FROZEN)
    assert db.execute("SELECT result::text FROM ticker.runs").fetchall()[0][0] == "true"


@pytest.mark.slow
def test_a_worker_without_a_queue_works_on_the_one_that_tasks_go_to(traced, db, store, queue):
    ticker.register(db, "plain", every="1m")
    tick(store, queue)
    command = [sys.executable, "-m", "wrappers", "--tasks", "tests.sample_tasks", "--burst"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    assert outcomes(db) == {"plain": "succeeded"}


@pytest.mark.slow
def test_the_job_carries_ids_only(environ, db, store, queue, redis):
    task = ticker.register(db, "plain", every="1m", kwargs={"password": "hunter2"})
    tick(store, queue)
    [job] = Queue("polling", connection=redis).get_jobs()
    assert (job.func_name, job.args, job.kwargs) == ("wrappers.run", (task.id, jobs.micros(task.next_run)), {})
    assert job.description == "plain"
    assert b"hunter2" not in b"".join(redis.hgetall(job.key).values())


LOCKS_ITS_ROW = """
import os, psycopg
from wrappers import task

@task("locks.its.row")
def locks_its_row():
    global kept
    kept = psycopg.connect(os.environ["DATABASE_URL"])
    kept.execute("SELECT FROM ticker.tasks FOR UPDATE")
"""


@pytest.mark.slow
def test_under_a_stock_worker_a_run_that_hangs_where_its_end_is_recorded_is_killed_too(traced, db, store, queue, redis):
    """It waits for a row that its own function has locked, and would wait for longer than its box."""
    ticker.register(db, "locks.its.row", **ENDLESS)
    tick(store, queue)
    stock_worker(patch=LOCKS_ITS_ROW)
    [failed] = Queue("polling", connection=redis).failed_job_registry.get_job_ids()
    assert "signal 9" in Job.fetch(failed, connection=redis).latest_result().exc_string
    # nobody is there to see to its record; the statement that waits in the server may still go through
    [run] = ticker.list_runs(db)
    assert run.outcome in (None, "succeeded")


@pytest.mark.slow
def test_under_our_worker_the_end_waits_for_the_death_that_frees_the_row(traced, db, store, queue):
    ticker.register(db, "locks.its.row", **ENDLESS)
    tick(store, queue)
    work(patch=LOCKS_ITS_ROW)
    assert outcomes(db)["locks.its.row"] == "succeeded"


LEAVES_CHILDREN = """
import os, subprocess
from tests.sample_tasks import trace
from wrappers import task

NULL = subprocess.DEVNULL

@task("leaves.children")
def leaves_children():
    child = subprocess.Popen(["sleep", "60"], stdin=NULL, stdout=NULL, stderr=NULL)
    start_daemon = "setsid sleep 60 </dev/null >/dev/null 2>&1 & echo $!"
    daemon = subprocess.run(["/bin/sh", "-c", start_daemon], stdout=subprocess.PIPE, check=True)
    trace("leaves.children", [child.pid, int(daemon.stdout)])
    os._exit(0)  # else the horse would end them itself
"""


@pytest.mark.slow
def test_what_a_run_left_behind_dies_by_the_workers_own_hand_long_before_its_box_is_over(traced, db, store, queue):
    """With `patch` the worker has no keeper, who would mend it at the worker's end."""
    ticker.register(db, "leaves.children", every="1m")
    tick(store, queue)
    work(patch=LEAVES_CHILDREN)
    [pids] = traced("leaves.children")
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "warnings"), [([], 1), (["-c", "wrappers.entry", "polling"], 0)])
def test_a_stock_worker_that_imports_us_in_each_run_warns_once(arguments, warnings, traced, db, store, queue):
    for name in ("first", "second"):
        ticker.register(db, "plain", name=name, every="1h")
    tick(store, queue)
    done = stock_worker(*arguments)
    assert set(outcomes(db).values()) == {"succeeded"} and len(outcomes(db)) == 2
    lines = (done.stdout + done.stderr).splitlines()
    assert sum(sentence("logs.imported_in_each_run").within(line) for line in lines) == warnings
