"""One process runs many tasks of a function at the same time; each has its own start, box, record and outcome."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import ticker
from tests.running import stock_worker, until, work, working
from tests.sentences import sentence
from tests.worker.grouped import FUNCTIONS, SECOND_THREAD_CANNOT_START, outcomes, register
from tests.worker.horses import Say, horse, sleep
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.errors import BadInput
from ticker.queue.rq import RedisQueue
from wrappers.group import slots
from wrappers.pipeline import registry
from wrappers.sandbox import limits, shared_state

pytestmark = pytest.mark.slow

RUN = 1, "00000000-0000-0000-0000-000000000001"  # a task and a token
TELLS_OF_RQS_TIMEOUT = """
import signal
from rq.worker import Worker
from wrappers import task

@task("together", batch=10, concurrency=10)
async def together(run, deed):
    return signal.getitimer(signal.ITIMER_REAL)[0]

monitor = Worker.monitor_work_horse

def monitored(worker, job, *arguments):
    print("RQ's timeout:", job.timeout)
    monitor(worker, job, *arguments)

Worker.monitor_work_horse = monitored
"""


@pytest.fixture(autouse=True)
def announced(environ: dict[str, str], db: Any, folder: Path) -> None:
    names = ["together", "two", "threads"]
    db.execute(
        "INSERT INTO ticker.functions (name, batch, announced_at)"
        " SELECT name, 10, clock_timestamp() FROM unnest(%(names)s::text[]) AS name", {"names": names}
    )  # fmt: skip


@pytest.mark.parametrize("worker", [work, stock_worker], ids=["ours", "stock"])
def test_runs_that_wait_for_each_other_all_end_each_with_its_own_record(worker, db, store, queue):
    deeds = ["returns", "raises", "idles", "exits", "checkpoints"]
    tasks = register(db, "together", *deeds, kwargs={"number": 5})
    tick(store, queue)
    worker(patch=FUNCTIONS)
    assert outcomes(db) == {
        "0 returns": "succeeded", "1 raises": "failed", "2 idles": "nothing_to_do", "3 exits": "failed", "4 checkpoints": "succeeded",
    }  # fmt: skip
    rows = db.execute("SELECT task_name, output, error_output, result, reason FROM ticker.runs").fetchall()
    for name, output, error_output, result, reason in rows:
        deed = name.split()[1]
        assert output == f"{deed}\n" and f"logged {deed}" in error_output
        assert (result, reason) == {
            "raises": (None, "ValueError: raises"), "exits": (None, "SystemExit: 4"), "idles": (None, ""),
        }.get(deed, (deed, ""))  # fmt: skip
    assert ticker.get(db, tasks[4]).cursor == {"at": tasks[4].id}
    assert all(task.running_until is None and not task.waiting for task in ticker.list_tasks(db))


@pytest.mark.parametrize("worker", [work, stock_worker], ids=["ours", "stock"])
def test_rqs_timeout_ends_no_run_of_a_group(worker, db, store, queue):
    """It counts from the first run of the job. Each run has its own limits, however late it begins."""
    register(db, "together", "returns", "returns")
    tick(store, queue)
    output = worker(patch=TELLS_OF_RQS_TIMEOUT).stdout
    assert db.execute("SELECT DISTINCT result FROM ticker.runs").fetchall() == [(0.0,)]
    assert worker is stock_worker or "RQ's timeout: -1" in output


def test_a_process_that_hangs_outside_of_its_runs_is_killed(monkeypatch):
    monkeypatch.setattr(slots, "OUTSIDE", 0.05)

    def hangs(_: Say) -> None:
        slots.Slots(1).take([RUN])
        sleep()

    assert horse(hangs)[0] == -signal.SIGKILL


def test_a_process_may_live_for_a_while_after_its_last_run(monkeypatch):
    monkeypatch.setattr(shared_state, "_page", None)
    shared_state.share()
    own, at = slots.Slots(1, kills=False), limits.now() + 100
    [slot] = own.take([RUN])
    assert at < shared_state.deadline() <= limits.now() + slots.OUTSIDE
    own.begin(slot, *RUN, 7, soft_at=at, deadline=at, hard_limit=99)
    own.give_back(slot)
    assert shared_state.deadline() == at + slots.OUTSIDE


def test_plain_functions_run_in_threads_no_more_than_the_concurrency(db, store, queue):
    register(db, "threads", "returns", "raises", "returns", "returns", "returns")
    tick(store, queue)
    work(patch=FUNCTIONS)
    assert sorted(outcomes(db).values()) == ["failed", *["succeeded"] * 4]


def test_an_exception_that_a_future_cannot_hold_ends_only_its_own_run(db, store, queue):
    register(db, "threads", "stops", "returns")
    tick(store, queue)
    work(patch=FUNCTIONS)
    assert outcomes(db) == {"0 stops": "failed", "1 returns": "succeeded"}


def test_a_function_whose_thread_could_not_start_is_not_called_after_its_run_has_failed(db, store, queue, folder):
    first, _ = register(db, "threads", "leaves a trace", "leaves a trace")
    tick(store, queue)
    work(patch=FUNCTIONS + SECOND_THREAD_CANNOT_START)
    assert outcomes(db) == {"0 leaves a trace": "succeeded", "1 leaves a trace": "failed"}
    assert [trace.name for trace in folder.iterdir()] == [str(first.id)]


def test_threads_store_their_cursors_on_one_connection(db, store, queue):
    tasks = register(db, "threads", *["checkpoints"] * 6)
    tick(store, queue)
    work(patch=FUNCTIONS)
    assert set(outcomes(db).values()) == {"succeeded"}
    assert [ticker.get(db, task).cursor for task in tasks] == [49] * 6


def test_nothing_is_kept_of_the_output_if_it_is_to_be_passed_on(db, store, queue, monkeypatch):
    monkeypatch.setenv("TICKER_OUTPUT", "pass")
    register(db, "together", "returns", "returns")
    tick(store, queue)
    done = work(patch=FUNCTIONS)
    assert set(outcomes(db).values()) == {"succeeded"}
    assert db.execute("SELECT DISTINCT output, error_output FROM ticker.runs").fetchall() == [("", "")]
    assert "returns" in done.stdout


def test_each_run_is_cancelled_at_its_own_soft_limit(db, store, queue):
    register(db, "together", "returns", "waits", "stays", every="4s", box="1s")
    tick(store, queue)
    work(patch=FUNCTIONS)
    assert outcomes(db) == {"0 returns": "succeeded", "1 waits": "timed_out", "2 stays": "partial"}


def test_a_thread_is_interrupted_in_its_code_and_in_a_socket_that_never_answers(db, store, queue):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        register(db, "threads", "returns", "sleeps", "receives", kwargs={"port": port}, every="4s", box="1s")
        tick(store, queue)
        work(patch=FUNCTIONS)
    assert outcomes(db) == {"0 returns": "succeeded", "1 sleeps": "timed_out", "2 receives": "timed_out"}


@pytest.mark.parametrize("deed", ["blocks", "swallows"])
def test_what_ignores_its_limits_is_killed_and_its_neighbours_are_interrupted(deed, db, store, queue):
    """The neighbour has a longer box, and is active when the process dies."""
    register(db, "together", deed, kwargs={"number": 2}, every="4s", box="1s")
    ticker.register(db, "together", name="neighbour", every="1h", kwargs={"deed": "waits", "number": 2})
    tick(store, queue)
    lines = work(patch=FUNCTIONS).stdout
    assert outcomes(db) == {f"0 {deed}": "killed", "neighbour": "interrupted"}
    found = {run.task_name: run for run in ticker.list_runs(db)}
    assert all(f"run={run.id} job={run.job_id}: {run.reason}" in lines for run in found.values())
    killed = found[f"0 {deed}"]
    assert sentence("why.killed_at_hard_limit", limit="1.4 s") == killed.reason
    assert sentence("why.interrupted_by_a_neighbour", task=killed.task_id) == found["neighbour"].reason
    printed = dict(db.execute("SELECT task_name, output FROM ticker.runs").fetchall())
    assert printed == {f"0 {deed}": f"{deed}\n", "neighbour": "waits\n"}
    [neighbour] = [task for task in ticker.list_tasks(db) if task.name == "neighbour"]
    assert (neighbour.failures, neighbour.last_outcome) == (0, "interrupted")


def test_nothing_new_begins_in_a_process_that_will_be_killed(db, store, queue):
    """Its soft limit is over at 1.25 s, and its hard limit at 1.5 s. In between, the second run's slot is free for the third."""
    for deed, box in (("swallows", "0.5s"), ("ends before the kill", "3s"), ("third", "0.5s")):
        ticker.register(db, "two", name=deed, every="1h", box=box, kwargs={"deed": deed})
    tick(store, queue)
    work(patch=FUNCTIONS)
    assert outcomes(db)["swallows"] == "killed"
    assert "third" not in outcomes(db)
    report = tick(store, queue)
    assert report.due.enqueued + report.swept.repushed == 1


def test_a_run_that_blocks_the_loop_pays_for_a_neighbour_that_cannot_end(db, store, queue):
    """The neighbour's box is shorter. Its soft limit cannot reach it, because the event loop is blocked."""
    register(db, "together", "blocks", kwargs={"number": 2})
    ticker.register(db, "together", name="neighbour", every="4s", box="1.5s", kwargs={"deed": "waits", "number": 2})
    tick(store, queue)
    done = work(patch=FUNCTIONS)
    assert outcomes(db) == {"0 blocks": "killed", "neighbour": "interrupted"}
    [blocker] = [run for run in ticker.list_runs(db) if run.outcome == "killed"]
    assert sentence("why.killed_at_a_hard_limit_of_another", limit="1.9 s").within(blocker.reason)
    assert sentence("logs.blocks_the_event_loop", task=blocker.task_id).within(done.stdout + done.stderr)


def test_a_neighbour_with_little_time_left_is_not_killed_for_a_blocked_loop(db, store, queue):
    register(db, "together", "blocks", kwargs={"number": 2})
    ticker.register(db, "together", name="neighbour", every="4s", box="0.5s", kwargs={"deed": "waits", "number": 2})
    tick(store, queue)
    work(patch=FUNCTIONS)
    assert outcomes(db) == {"0 blocks": "killed", "neighbour": "interrupted"}


def test_a_worker_that_is_told_to_stop_begins_nothing_new_and_what_is_left_is_pushed_again(db, store, queue, folder):
    register(db, "two", "first", "second", "third")
    tick(store, queue)
    with working(patch=FUNCTIONS) as process:
        until(lambda: len(list(folder.iterdir())) == 2, "two runs")
        process.terminate()
        until(lambda: "warm shut down" in process.stdout.readline(), "the worker has heard it")
        (folder / "go").touch()
        process.communicate()
    assert len(outcomes(db)) == 2
    assert tick(store, queue).due.enqueued == 1
    work(patch=FUNCTIONS)
    assert set(outcomes(db).values()) == {"succeeded"} and len(outcomes(db)) == 3


def test_when_the_process_dies_by_itself_all_at_work_are_interrupted_and_no_occurrence_runs_twice(db, store, queue):
    register(db, "together", "dies", "waits", "returns", kwargs={"number": 3})
    tick(store, queue)
    work(patch=FUNCTIONS)
    tick(store, queue)
    work(patch=FUNCTIONS)
    ended = outcomes(db)
    assert (ended["0 dies"], ended["1 waits"]) == ("interrupted", "interrupted")
    assert len(ticker.list_runs(db)) == 3


def test_only_a_task_with_retries_is_attempted_again_after_an_interruption(db, store, queue, tmp_path):
    register(db, "together", "dies", kwargs={"number": 3})
    ticker.register(db, "together", name="once", every="1h", kwargs={"deed": "waits", "number": 3})
    ticker.register(
        db, "together", name="again", every="1h", kwargs={"deed": "waits", "number": 3}, retries=1, backoff="1s"
    )
    tick(store, queue)
    work(patch=FUNCTIONS)
    tick(store, queue)
    attempts = {run.task_name for run in ticker.list_runs(db) if run.attempt == 2}
    assert attempts == {"again"}
    assert {task.failures for task in ticker.list_tasks(db)} == {0}


def test_a_locked_row_is_skipped_and_runs_later(environ, db, store, queue):
    first, _ = register(db, "together", "returns", "returns")
    tick(store, queue)
    with ThreadPoolExecutor() as pool, connect(environ["DATABASE_URL"]) as holder:
        with holder.transaction():
            holder.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            holder.execute("SELECT FROM ticker.tasks WHERE id = %s FOR UPDATE", [first.id])
            done = pool.submit(work, patch=FUNCTIONS)
            until(lambda: outcomes(db).get("1 returns") == "succeeded", "the other one")
            assert "0 returns" not in outcomes(db)
        done.result()
    assert outcomes(db) == {"0 returns": "succeeded", "1 returns": "succeeded"}


def test_a_server_that_goes_away_costs_no_run_at_work_and_what_is_left_is_pushed_again(
    own_servers, folder, monkeypatch
):
    """One run is active when the next start finds no server. It ends with its own outcome when the server is back."""
    postgres, _ = own_servers
    with connect(postgres.url) as db:
        db.execute("INSERT INTO ticker.functions (name, batch, announced_at) VALUES ('two', 10, clock_timestamp())")
        for deed in ("first", "naps", "third"):
            ticker.register(db, "two", name=deed, every="1h", kwargs={"deed": deed})
        with (
            closing(PostgresStore(postgres.url)) as store,
            closing(RedisQueue.from_url(os.environ["REDIS_URL"])) as queue,
        ):
            tick(store, queue)
    short = "from wrappers.pipeline import start; start.PATIENCE = 1.0\n"
    with working("--burst", patch=short + FUNCTIONS) as process:
        until(lambda: len(list(folder.iterdir())) == 2, "two runs")
        postgres.kill()
        until(lambda: "nothing new begins" in process.stdout.readline(), "the next start fails")
        postgres.start()
        (folder / "go").touch()
        process.communicate()
    with connect(postgres.url) as db:
        assert outcomes(db) == {"first": "succeeded", "naps": "succeeded"}
        with (
            closing(PostgresStore(postgres.url)) as store,
            closing(RedisQueue.from_url(os.environ["REDIS_URL"])) as queue,
        ):
            assert tick(store, queue).swept.repushed == 1


@pytest.mark.parametrize("concurrency", [0, -1, 11, "50", True, 1.5, None])
def test_a_concurrency_is_a_number_of_tasks_of_a_batch(concurrency):
    with pytest.raises(BadInput, match="concurrency"):
        registry.task("x", batch=10, concurrency=concurrency)
