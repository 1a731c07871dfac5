"""One RQ job carries several due tasks of a function; each has its own start, box, record and outcome."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rq import Queue

import ticker
from tests.doubles import INSTALLATION, NOW
from tests.harness import finish, start
from tests.running import stock_worker, until, work, working
from tests.worker.grouped import due
from ticker.db.connections import connect
from ticker.engine import jobs as engine_jobs
from ticker.engine.sweep import Swept
from ticker.engine.tick import tick
from ticker.errors import BadInput
from ticker.model import DueTask
from wrappers.pipeline import payload, registry

FUNCTIONS = """
import os, subprocess, time
from wrappers import task

@task("many", batch=4)
def many(run, deed="returns"):
    print(deed)
    if deed == "raises":
        raise ValueError(deed)
    if deed == "dies":
        os._exit(3)
    if deed == "exits":
        raise SystemExit(4)
    if deed == "hangs":
        time.sleep(1000)
    if deed == "waits":
        waits()
    if deed == "stays":
        subprocess.Popen(["sleep", "60"])
    return deed
"""


WAITS = """
from pathlib import Path

def waits(folder=Path("{folder}")):
    (folder / "began").touch()
    while not (folder / "locked").exists():
        time.sleep(0.01)
"""


@pytest.fixture
def announced(environ: dict[str, str], db: Any) -> None:
    db.execute("INSERT INTO ticker.functions (name, batch, announced_at) VALUES ('many', 4, clock_timestamp())")


def register(db: Any, *deeds: str, **fields: Any) -> list[ticker.Task]:
    said = {"every": "1m", **fields}
    return [
        ticker.register(db, "many", name=f"{n} {deed}", kwargs={"deed": deed}, **said) for n, deed in enumerate(deeds)
    ]


def outcomes(db: Any) -> dict[str, list[str]]:
    """Of each task, in the order of their records."""
    found: dict[str, list[str]] = {}
    for run in reversed(ticker.list_runs(db)):
        found.setdefault(run.task_name, []).append(str(run.outcome))
    return found


# ------------------------------------------------------------------------------------------------------- the ticker's


def test_tasks_of_a_function_share_jobs_and_others_have_their_own():
    tasks = [
        due(1),
        *(due(n, batch=2, function="b") for n in (2, 3, 4)),
        due(5),
        due(6, batch=2, function="b", queue="q"),
    ]
    packed = engine_jobs.packed(INSTALLATION, tasks)
    assert [[task.id for task in job.tasks] for job in packed] == [[1], [2, 3], [4], [5], [6]]
    assert [bool(job.batch_job_id) for job in packed] == [False, True, False, False, False]
    assert packed[2].spec == engine_jobs.for_occurrence(
        INSTALLATION, due(4, batch=2, function="b")
    )  # alone, it is an ordinary job


def test_a_job_of_several_names_what_it_carries_and_has_the_time_of_all_of_them():
    tasks = [due(1, batch=3), due(2, batch=3)]
    [(job, carried)] = engine_jobs.packed(INSTALLATION, tasks)
    assert carried == tasks
    assert job == engine_jobs.packed(INSTALLATION, tasks)[0].spec
    assert job.job_id != engine_jobs.packed(INSTALLATION, [due(1, batch=3), due(3, batch=3)])[0].spec.job_id
    assert (job.entry, job.args) == ("wrappers.run_batch", (1, engine_jobs.micros(NOW), 2, engine_jobs.micros(NOW)))
    assert (job.timeout, job.description) == (2 * 31 + 30, "mail.fetch x 2")


@pytest.mark.slow
def test_a_tick_pushes_due_tasks_in_batches_and_notes_the_job_of_each(announced, db, store, queue, redis):
    tasks = register(db, *["returns"] * 6)
    report = tick(store, queue)
    assert (report.due.due, report.due.enqueued) == (6, 6)
    jobs = Queue("polling", connection=redis).get_jobs()
    assert [len(job.args) for job in jobs] == [8, 4]
    batch_jobs = db.execute("SELECT batch_jobs, waiting[1] FROM ticker.tasks ORDER BY id").fetchall()
    ids = [jobs[0].id] * 4 + [jobs[1].id] * 2
    assert [found for found, _ in batch_jobs] == [
        {str(engine_jobs.micros(due)): id_} for (_, due), id_ in zip(batch_jobs, ids, strict=True)
    ]
    assert all(ticker.get(db, task).waiting for task in tasks)


@pytest.mark.slow
def test_a_job_that_waits_is_not_pushed_again_and_one_that_is_lost_is_with_a_job_for_each(
    announced, db, store, queue, redis
):
    register(db, "returns", "returns")
    assert tick(store, queue).swept.repushed == 0
    assert tick(store, queue).swept.repushed == 0
    redis.flushdb()
    assert tick(store, queue).swept.repushed == 2
    assert sorted(job.id[0] for job in Queue("polling", connection=redis).get_jobs()) == ["t", "t"]
    assert db.execute("SELECT count(*) FROM ticker.tasks WHERE batch_jobs IS NOT NULL").fetchone() == (0,)
    assert tick(store, queue).swept.repushed == 0


@pytest.mark.slow
def test_the_id_of_a_job_that_has_started_is_removed_by_the_next_push(announced, db, store, queue):
    [now] = db.execute("SELECT clock_timestamp()").fetchone()
    tasks = register(db, "returns", "returns", first=now)
    tick(store, queue, now)
    for task in tasks:
        started = start(db, task, now, now, pushed=False, functions=["many"])
        assert finish(db, task, str(started["token"]), now=now)
    db.execute("UPDATE ticker.functions SET batch = 1")
    assert tick(store, queue, now + timedelta(minutes=1)).due.enqueued == 2
    assert db.execute("SELECT DISTINCT batch_jobs FROM ticker.tasks").fetchall() == [(None,)]


@pytest.fixture
def mixed_backlog(announced: None, db: Any, store: Any, queue: Any) -> datetime:
    """A, every 5 s, and B, every hour, in one job; 5 s later A again, in a job of its own. No worker. The last tick's time."""
    [(now,)] = db.execute("SELECT clock_timestamp()").fetchall()
    register(db, "returns", every="5s", first=now)
    ticker.register(db, "many", name="B", kwargs={"deed": "returns"}, every="1h", first=now)
    assert tick(store, queue, now).due.enqueued == 2
    later = now + timedelta(seconds=5)
    assert tick(store, queue, later).due.enqueued == 1
    return later


@pytest.mark.slow
def test_an_older_occurrence_is_not_given_up_while_the_job_that_it_shares_waits(mixed_backlog, db, store, queue):
    """Each waiting occurrence knows its own job, and not the newest one alone."""
    assert tick(store, queue, mixed_backlog).swept == Swept()
    work(patch=FUNCTIONS)
    assert outcomes(db) == {"0 returns": ["succeeded", "dropped"], "B": ["succeeded"]}
    assert [run.reason for run in ticker.list_runs(db) if run.reason] == ["too_early"]
    assert db.execute("SELECT count(*) FROM ticker.events").fetchone() == (0,)


@pytest.mark.slow
def test_after_a_wipe_what_shared_a_job_is_pushed_again_or_given_up_at_once(mixed_backlog, db, store, queue, redis):
    redis.flushdb()
    swept = tick(store, queue, mixed_backlog).swept
    assert (swept.repushed, swept.expired) == (2, 1)
    work(patch=FUNCTIONS)
    assert outcomes(db) == {"0 returns": ["dropped", "succeeded"], "B": ["succeeded"]}


@pytest.mark.slow
def test_a_queue_that_refuses_a_batch_sets_all_its_tasks_back(announced, db, store, queue, redis):
    tasks = register(db, "returns", "returns")
    redis.set("rq:queue:polling", "no list")
    assert tick(store, queue).due.errors == 2
    assert all("WRONGTYPE" in ticker.get(db, task).push_error and not ticker.get(db, task).waiting for task in tasks)


# ------------------------------------------------------------------------------------------------------- the worker's


@pytest.mark.slow
@pytest.mark.parametrize("worker", [work, stock_worker], ids=["ours", "stock"])
@pytest.mark.smoke
def test_each_task_has_its_own_outcome(worker, announced, db, store, queue):
    register(db, "returns", "raises", "exits", "returns")
    tick(store, queue)
    worker(patch=FUNCTIONS)
    assert outcomes(db) == {
        "0 returns": ["succeeded"],
        "1 raises": ["failed"],
        "2 exits": ["failed"],
        "3 returns": ["succeeded"],
    }
    runs = {run.task_name: run for run in ticker.list_runs(db)}
    assert runs["0 returns"].result == "returns" and runs["1 raises"].reason == "ValueError: raises"
    assert db.execute("SELECT output FROM ticker.runs WHERE id = %s", [runs["1 raises"].id]).fetchone() == ("raises\n",)
    assert len({run.job_id for run in runs.values()}) == 1
    assert all(task.running_until is None and not task.waiting for task in ticker.list_tasks(db))


SMALL = "from wrappers.sandbox import handoff as ends; ends._SIZE = 2000"
UNHEARD = "from wrappers.sandbox import handoff as ends; ends.wait = lambda horse, seconds=None: False"


@pytest.mark.slow
@pytest.mark.parametrize(
    "patch", [SMALL, f"{UNHEARD}\n{SMALL}"], ids=["the worker writes ends", "it does nothing while the horse lives"]
)
def test_each_end_is_written_with_what_its_own_run_printed(announced, db, store, queue, patch):
    """There is room for some ends in shared memory: a horse that finds none writes its end itself."""
    db.execute("UPDATE ticker.functions SET batch = 12")
    deeds = ["returns", "raises", *(f"{n}" for n in range(10))]
    register(db, *deeds)
    tick(store, queue)
    work(patch=FUNCTIONS + patch)
    found = db.execute("SELECT task_name, outcome, output, result FROM ticker.runs").fetchall()
    assert {name.split()[1]: rest for name, *rest in found} == {
        deed: ["succeeded", f"{deed}\n", deed] for deed in deeds
    } | {"raises": ["failed", "raises\n", None]}
    assert len(found) == len(deeds)


TOGETHER = """
import time
from wrappers.pipeline.database import Database
from wrappers.rq import worker
from wrappers.sandbox import handoff
worker.COLLECT = 60.0
leave, left = handoff.leave, []
def taken_up(end):  # the first end; a worker that does not listen yet would leave it to its horse
    while not left and not handoff._is_heard(): time.sleep(0.001)
    is_left = leave(end)
    while not left and handoff.left(): time.sleep(0.001)
    left.append(end)
    return is_left
handoff.leave = taken_up
finish_all = Database.finish_all
def counted(self, ends):
    print("written together:", len(ends), flush=True)
    return finish_all(self, ends)
Database.finish_all = counted
"""


@pytest.mark.slow
def test_the_ends_of_a_batch_are_written_together_and_at_once_when_its_process_is_gone(announced, db, store, queue):
    register(db, *["returns"] * 4)
    tick(store, queue)
    written = work(patch=f"{TOGETHER}\n{FUNCTIONS}", timeout=50.0).stdout
    assert sum(map(int, re.findall(r"written together: (\d+)", written))) == 4
    assert written.count("written together") == 2, "the first end at once, the others when their process has ended"


@pytest.mark.slow
def test_an_end_that_is_not_written_yet_when_the_next_one_dies_is_kept(announced, db, store, queue):
    register(db, "returns", "dies")
    tick(store, queue)
    work(patch=FUNCTIONS + UNHEARD)
    assert outcomes(db) == {"0 returns": ["succeeded"], "1 dies": ["killed"]}


@pytest.mark.slow
def test_a_locked_row_keeps_no_other_end_waiting_and_has_its_own_behind_them(
    announced, environ, db, store, queue, tmp_path
):
    first, *_ = register(db, "waits", "returns", "raises", every="1h")
    tick(store, queue)
    others_ended = "SELECT count(*) = 2 FROM ticker.runs WHERE task_id <> %s AND state = 'ended'"
    with ThreadPoolExecutor() as pool:
        done = pool.submit(work, patch=WAITS.format(folder=tmp_path) + FUNCTIONS)
        until((tmp_path / "began").exists, "the first one runs")
        with connect(environ["DATABASE_URL"]) as holder, holder.transaction():
            holder.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            holder.execute("SELECT FROM ticker.tasks WHERE id = %s FOR UPDATE", [first.id])
            (tmp_path / "locked").touch()
            until(lambda: db.execute(others_ended, [first.id]).fetchone()[0], "the others have ended")
        done.result()
    assert outcomes(db) == {"0 waits": ["succeeded"], "1 returns": ["succeeded"], "2 raises": ["failed"]}


@pytest.mark.slow
def test_one_that_overruns_its_box_is_interrupted_and_those_behind_it_run_on(announced, db, store, queue):
    register(db, "returns", "hangs", "returns", every="3s", box="1s")
    tick(store, queue)
    work(patch=FUNCTIONS)
    assert outcomes(db) == {"0 returns": ["succeeded"], "1 hangs": ["timed_out"], "2 returns": ["succeeded"]}


@pytest.mark.slow
def test_those_behind_one_that_dies_are_pushed_again_and_run(announced, db, store, queue):
    register(db, "returns", "dies", "returns", "returns")
    tick(store, queue)
    work(patch=FUNCTIONS)
    assert outcomes(db) == {"0 returns": ["succeeded"], "1 dies": ["killed"]}
    assert tick(store, queue).swept.repushed == 2
    work(patch=FUNCTIONS)
    assert outcomes(db) == {
        "0 returns": ["succeeded"], "1 dies": ["killed"], "2 returns": ["succeeded"], "3 returns": ["succeeded"],
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("result_ttl", ["0", "60"])
def test_those_behind_the_one_at_work_go_back_when_the_worker_is_told_to_stop(
    result_ttl, announced, db, store, queue, tmp_path, monkeypatch
):
    """If RQ keeps the result, the job is `finished` for the ticker, which gives up occurrences of such a job after a while."""
    monkeypatch.setenv("TICKER_RESULT_TTL", result_ttl)
    register(db, "waits", "returns", "returns")
    tick(store, queue)
    with working(patch=WAITS.format(folder=tmp_path) + FUNCTIONS) as process:
        until((tmp_path / "began").exists, "the first one runs")
        process.terminate()
        until(lambda: "warm shut down" in process.stdout.readline(), "the worker has heard it")
        (tmp_path / "locked").touch()
        process.communicate()
    assert outcomes(db) == {"0 waits": ["succeeded"]}
    assert [task.wait_reason for task in ticker.list_tasks(db)].count("no_slot") == 2
    assert tick(store, queue).due.enqueued == 2


@pytest.mark.slow
def test_each_is_asked_right_before_its_own_start(announced, db, store, queue):
    """Disabled while the job waits: the others run."""
    tasks = register(db, "returns", "returns", "returns")
    tick(store, queue)
    ticker.edit(db, tasks[1], enabled=False)
    db.execute('UPDATE ticker.tasks SET kwargs = \'{"deed": "raises"}\' WHERE id = %s', [tasks[2].id])
    work(patch=FUNCTIONS)
    assert outcomes(db) == {"0 returns": ["succeeded"], "1 returns": ["dropped"], "2 returns": ["failed"]}


@pytest.mark.slow
def test_a_hardened_worker_runs_batches_that_the_ticker_signed(announced, db, store, redis, monkeypatch):
    from ticker.queue.rq import RedisQueue

    monkeypatch.setenv("TICKER_SIGNING_KEY", "k" * 40)
    register(db, *["returns"] * 4)
    tick(store, RedisQueue(redis, signing_key=os.environ["TICKER_SIGNING_KEY"]))
    done = work("--hardened", "polling", patch=FUNCTIONS)
    assert "forged" not in done.stdout
    assert list(outcomes(db).values()) == [["succeeded"]] * 4


def test_the_largest_batch_is_read_within_the_hardened_workers_limit():
    from ticker.queue import bulk

    late = datetime(9999, 12, 31, tzinfo=UTC)
    tasks = [DueTask(2**63 - 1 - n, late, "q", "f", 60_000, 30_000, 1000, batch=1000) for n in range(1000)]
    [(job, _)] = engine_jobs.packed(INSTALLATION, tasks)
    packed = bulk.packed(bulk.payload(job))
    assert len(packed) <= payload.AT_MOST
    assert payload.call(job.job_id, bulk.payload(job)) == ("wrappers.run_batch", job.args)


# ------------------------------------------------------------------------------------------------- what is announced


@pytest.mark.slow
def test_a_launcher_announces_its_functions_and_their_batches(environ, db, store, queue):
    work(patch=FUNCTIONS)
    found = dict(db.execute("SELECT name, batch FROM ticker.functions").fetchall())
    assert found["many"] == 4 and found["plain"] == 1
    register(db, "returns", "returns")
    tick(store, queue)
    assert db.execute("SELECT count(DISTINCT value) FROM ticker.tasks, jsonb_each_text(batch_jobs)").fetchone() == (1,)


@pytest.mark.parametrize("batch", [0, -1, 1001, "50", True, 1.5])
def test_a_batch_is_a_number_of_tasks(batch):
    with pytest.raises(BadInput, match="batch"):
        registry.task("x", batch=batch)


@pytest.mark.parametrize(("given", "batch"), [({}, 1), ({"concurrency": 100}, 1000), ({"batch": 7}, 7)])
def test_a_batch_is_the_upper_bound_of_a_group_unless_it_is_given(given, batch, function):
    function("x", **given)(lambda: None)
    assert registry.functions()["x"].batch == batch
