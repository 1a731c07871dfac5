"""A run at work is stopped: real workers, whose processes get the request through Redis. Each test ticks by hand."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import ticker
from tests.running import is_alive, stock_worker, until, working
from tests.sentences import sentence
from tests.worker.grouped import FUNCTIONS as GROUPS
from tests.worker.grouped import register
from ticker.engine.ports import RunAtWork
from ticker.engine.tick import tick
from ticker.read.tasks import RunRecord

pytestmark = pytest.mark.slow

Db = psycopg.Connection[Any]
Stop = Callable[..., RunRecord]
FUNCTIONS = """
import os, signal, time
from pathlib import Path
from wrappers import SoftLimit, task

FOLDER = Path(os.environ["GROUP_FOLDER"])

def wait(name):
    (FOLDER / f"{name} waits").touch()
    while not (FOLDER / name).exists():
        time.sleep(0.01)

@task("waits")
def waits(name):
    wait(name)

@task("converts")
def converts():
    try:
        wait("never")
    except SoftLimit:
        raise OSError("the connection was closed")

@task("returns.anyway")
def returns_anyway():
    try:
        wait("never")
    except SoftLimit:
        return 5

@task("one.by.one", batch=10)
def one_by_one(name):
    wait(name)
"""


@pytest.fixture(autouse=True)
def announced(environ: dict[str, str], db: Db, folder: Path) -> None:
    names = ["together", "two", "threads", "one.by.one"]
    db.execute(
        "INSERT INTO ticker.functions (name, batch, announced_at)"
        " SELECT name, 10, clock_timestamp() FROM unnest(%(names)s::text[]) AS name", {"names": names}
    )  # fmt: skip


@pytest.fixture
def stop(db: Db, store: Any, queue: Any) -> Stop:
    """Stops the run of the task with this name when it is at work, and returns it when it has ended."""

    def stopped(name: str) -> RunRecord:
        run = until(lambda: at_work(db, name), f"a run of {name}")
        ticker.stop(db, run.id, by="ann")
        tick(store, queue)
        return until(lambda: ended(db, run.id), f"the end of {name}")  # type: ignore[no-any-return]

    return stopped


def at_work(db: Db, name: str) -> RunRecord | None:
    return next((run for run in ticker.list_runs(db) if run.task_name == name and run.state == "running"), None)


def ended(db: Db, run_id: int) -> RunRecord | None:
    run = ticker.get_run(db, run_id).run
    return run if run.outcome else None


def is_stopped(run: RunRecord) -> bool:
    return (run.outcome, run.reason) == ("interrupted", "stopped by ann")


# -------------------------------------------------------------------------------------------------- a single run


@pytest.mark.parametrize(
    ("function", "traces"),
    [("exhausts", False), ("swallows.exceptions", False), ("async.hangs", False), ("swallows", True), ("long.c.call", True),
     ("stops.itself", True)],
)  # fmt: skip
def test_a_run_is_stopped_whatever_its_function_does_and_is_no_failure(
    function: str, traces: bool, stop: Stop, traced: Any, db: Db, store: Any, queue: Any
) -> None:
    ticker.register(db, function, every="1h", retries=3, pause_after=1)
    tick(store, queue)
    with working():
        if traces:
            until(lambda: traced(function), function)
        run = stop(function)
    assert is_stopped(run) and (run.stop_requested_by, run.pid is None) == ("ann", False)
    tick(store, queue)
    [task] = ticker.list_tasks(db)
    assert (task.failures, task.failed, task.paused_by, task.running_until) == (0, 0, None, None)
    assert len(ticker.list_runs(db)) == 1
    for pid in (traced(function) or [None])[0] or []:
        until(lambda pid=pid: not is_alive(pid), f"process {pid}")


@pytest.mark.parametrize("function", ["converts", "returns.anyway"])
def test_what_a_function_makes_of_the_stop_does_not_matter(
    function: str, stop: Stop, db: Db, store: Any, queue: Any, folder: Path
) -> None:
    ticker.register(db, function, every="1h")
    tick(store, queue)
    with working(patch=FUNCTIONS):
        until((folder / "never waits").exists, function)
        run = stop(function)
    assert is_stopped(run)
    assert run.result == (5 if function == "returns.anyway" else None)
    assert ("OSError: the connection was closed" in run.traceback) == (function == "converts")


def test_the_worker_goes_on_with_its_next_job(stop: Stop, db: Db, store: Any, queue: Any, folder: Path) -> None:
    ticker.register(db, "waits", every="1h", kwargs={"name": "go"})
    tick(store, queue)
    with working(patch=FUNCTIONS) as worker:
        assert is_stopped(stop("waits"))
        (folder / "go").touch()
        ticker.register(db, "waits", name="next", every="1h", kwargs={"name": "go"})
        tick(store, queue)
        until(lambda: {"succeeded"} & {run.outcome for run in ticker.list_runs(db)}, "the next run")
        assert worker.poll() is None


def test_a_request_for_a_run_that_has_ended_stops_no_other(db: Db, store: Any, queue: Any, folder: Path) -> None:
    """The tick has read the request, and the run ends before the worker receives it."""
    ticker.register(db, "waits", every="1h", kwargs={"name": "go"})
    tick(store, queue)
    with working(patch=FUNCTIONS):
        first = until(lambda: at_work(db, "waits"), "the first run")
        [[token]] = db.execute("SELECT token FROM ticker.runs").fetchall()
        (folder / "go").touch()
        until(lambda: ended(db, first.id), "the first end")
        ticker.register(db, "waits", name="other", every="1h", kwargs={"name": "later"})
        tick(store, queue)
        until((folder / "later waits").exists, "the other run")
        queue.stop([RunAtWork(first.worker, str(token))])
        (folder / "later").touch()
        until(lambda: at_work(db, "other") is None, "the other end")
    assert [run.outcome for run in ticker.list_runs(db)] == ["succeeded", "succeeded"]


def test_of_the_runs_one_after_another_in_a_job_only_the_current_one_is_stopped(
    stop: Stop, db: Db, store: Any, queue: Any, folder: Path
) -> None:
    for name in ("first", "second"):
        ticker.register(db, "one.by.one", name=name, every="1h", kwargs={"name": name})
    tick(store, queue)
    (folder / "second").touch()
    with working(patch=FUNCTIONS):
        until((folder / "first waits").exists, "the first run")
        first = stop("first")
        until(lambda: len(ticker.list_runs(db)) == 2 and ended(db, ticker.list_runs(db)[0].id), "the second run")
    second = ticker.list_runs(db)[0]
    assert is_stopped(first) and (second.outcome, second.pid) == ("succeeded", first.pid)


def test_a_piece_that_makes_nothing_of_it_is_stopped_with_its_run(
    stop: Stop, traced: Any, db: Db, store: Any, queue: Any
) -> None:
    ticker.register(db, "pieces", every="1h", retries=2, kwargs={"pieces": ["exhausts", 1, 2]})
    tick(store, queue)
    with working():
        run = until(lambda: next((run for run in ticker.list_runs(db) if run.state == "processing"), None), "pieces")
        tick(store, queue)
        until(lambda: traced("piece"), "the first piece")
        ticker.stop(db, run.id, by="ann")
        tick(store, queue)
        pieces = lambda: ticker.get_run(db, run.id).pieces  # noqa: E731
        until(lambda: all(piece.outcome for piece in pieces()), "their ends")
    tick(store, queue)
    assert [(piece.outcome, piece.reason) for piece in pieces()] == [
        ("interrupted", "stopped by ann"), ("dropped", "stopped"), ("dropped", "stopped"),
    ]  # fmt: skip
    over = ticker.get_run(db, run.id).run
    assert (over.outcome, over.reason) == ("interrupted", "stopped by ann, 2 of 3 pieces dropped")
    assert ticker.list_tasks(db)[0].failures == 0


def test_a_stock_worker_ignores_the_request_and_the_run_ends_by_itself(
    db: Db, store: Any, queue: Any, folder: Path
) -> None:
    ticker.register(db, "waits", every="1h", kwargs={"name": "go"})
    tick(store, queue)
    with ThreadPoolExecutor() as pool:
        done = pool.submit(stock_worker, patch=FUNCTIONS)
        until((folder / "go waits").exists, "the run")
        [run] = ticker.list_runs(db)
        ticker.stop(db, run.id, by="ann")
        tick(store, queue)
        (folder / "go").touch()
        done.result()
    [run] = ticker.list_runs(db)
    assert (run.outcome, run.stop_requested_by) == ("succeeded", "ann")


# ------------------------------------------------------------------------------------------------------ in groups


def test_a_coroutine_is_stopped_and_its_neighbour_goes_on(
    stop: Stop, db: Db, store: Any, queue: Any, folder: Path
) -> None:
    register(db, "two", "a", "b")
    tick(store, queue)
    with working(patch=GROUPS):
        until(lambda: (folder / "a").exists() and (folder / "b").exists(), "both runs")
        assert is_stopped(first := stop("0 a"))
        neighbour = at_work(db, "1 b")
        assert neighbour is not None
        (folder / "go").touch()
        until(lambda: ended(db, neighbour.id), "its end")
    neighbour = ticker.get_run(db, neighbour.id).run
    assert (neighbour.outcome, neighbour.pid) == ("succeeded", first.pid)
    assert all(task.failures == 0 for task in ticker.list_tasks(db))


def test_a_thread_is_stopped_in_its_code_and_in_a_socket_that_never_answers(
    stop: Stop, db: Db, store: Any, queue: Any
) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        register(db, "threads", "sleeps", "receives", kwargs={"port": silent.getsockname()[1]})
        tick(store, queue)
        with working(patch=GROUPS):
            received = stop("1 receives")
            assert at_work(db, "0 sleeps")
            slept = stop("0 sleeps")
    assert is_stopped(received) and is_stopped(slept) and received.pid == slept.pid


def test_a_run_of_a_group_that_ignores_the_stop_has_until_its_box(
    stop: Stop, db: Db, store: Any, queue: Any, folder: Path
) -> None:
    """It takes longer than the process of a single run may."""
    register(db, "two", "tidies up", "neighbour")
    tick(store, queue)
    with working(patch=GROUPS):
        until(lambda: (folder / "tidies up").exists() and (folder / "neighbour").exists(), "both runs")
        assert is_stopped(stop("0 tidies up"))
        assert at_work(db, "1 neighbour")


def test_a_run_of_a_group_that_ignores_the_stop_is_killed_at_its_box_and_is_no_failure(
    stop: Stop, db: Db, store: Any, queue: Any, folder: Path
) -> None:
    [task] = register(db, "two", "swallows", every="12s", box="3s")
    register(db, "two", "neighbour")
    tick(store, queue)
    with working(patch=GROUPS):
        until(lambda: (folder / "swallows").exists() and (folder / "neighbour").exists(), "both runs")
        assert is_stopped(stop("0 swallows"))
        until(lambda: at_work(db, "0 neighbour") is None, "its end")
    [neighbour] = [run for run in ticker.list_runs(db) if run.task_name == "0 neighbour"]
    assert neighbour.outcome == "interrupted"
    assert sentence("why.interrupted_by_a_neighbour", task=task.id).within(neighbour.reason)
    stopped = ticker.get(db, task)
    assert (stopped.failures, stopped.alone_until) == (0, None)
