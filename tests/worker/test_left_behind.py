"""What a run of a group leaves behind ends with the run, and no neighbour is disturbed. Each test ticks by hand."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ticker
from tests.running import is_alive, until, work, working
from tests.sentences import sentence
from tests.worker.grouped import outcomes, register
from ticker.engine.tick import tick

pytestmark = pytest.mark.slow

FUNCTIONS = """
import asyncio, contextvars, multiprocessing, os, pty, signal, subprocess, sys, threading, time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from wrappers import shared, task

FOLDER = Path(os.environ["GROUP_FOLDER"])
KEPT = {}
POOL = ProcessPoolExecutor(2)

def note(name, text=""):
    (FOLDER / name).with_suffix(".new").write_text(text)
    (FOLDER / name).with_suffix(".new").rename(FOLDER / name)

async def noted(*names):
    while not all((FOLDER / name).exists() for name in names):
        await asyncio.sleep(0.01)

async def lives(name):
    try:
        await noted("go")
        note(f"{name} ended")
    except asyncio.CancelledError:
        note(f"{name} cancelled")
        raise

async def fetch():
    process = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    note("fetching")
    await asyncio.create_task(lives("inner"))
    return (await process.communicate(b"the token"))[0].decode()

async def swallows():
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            note("swallowed")

async def resolves(future):
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        future.cancel()
        raise

def is_gone(name):
    try:
        os.kill(int((FOLDER / name).read_text()), 0)
    except ProcessLookupError:
        return True
    return False

def stay(name):
    note(name, str(os.getpid()))
    time.sleep(1000)
    os._exit(0)

def daemonize(name):
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            stay(name)
        os._exit(0)
    os.waitpid(child, 0)

def start(name, **options):
    note(name, str(subprocess.Popen(["sleep", "1000"], **options).pid))

def spawn(env):
    try:
        return os.waitpid(os.posix_spawn("/bin/true", ["true"], env), 0)[1]
    except TypeError as error:
        return str(error)

SPAWNED = spawn(None)
BEGUN = ["child", "without an environment", "forked", "daemon", "shell's daemon", "of multiprocessing", "spawned", "in a pty"]
BEGUN += ["by posix_spawnp"]

def begin_processes():
    start("child")
    start("without an environment", env={})
    note("its environment", subprocess.run(["env"], env={}, capture_output=True, text=True).stdout)
    note("spawned", str(os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "1000")))
    note("by posix_spawnp", str(os.posix_spawnp("sleep", ["sleep", "1000"], os.environ)))
    child, _ = pty.fork()
    if child == 0:
        os.execlp("sleep", "sleep", "1000")
    note("in a pty", str(child))
    assert spawn(None) == SPAWNED
    daemonize("daemon")
    if os.fork() == 0:
        stay("forked")
    subprocess.run(["sh", "-c", "setsid sleep 1000 & echo $! >pid && mv pid \\"shell's daemon\\""], cwd=FOLDER, check=True)
    multiprocessing.get_context("fork").Process(target=stay, args=["of multiprocessing"]).start()
    with shared():
        start("shared child")

@task("leaves", batch=10, concurrency=5)
async def leaves(run, deed):
    if deed == "tasks":
        KEPT["token"] = asyncio.create_task(fetch())
        await noted("joined", "fetching")
        KEPT["left"] = asyncio.create_task(lives("left"))
        KEPT["copied"] = asyncio.create_task(lives("copied"), context=contextvars.copy_context())
        with shared():
            KEPT["shared"] = asyncio.create_task(lives("shared"))
        await asyncio.sleep(0.05)
    if deed == "joins":
        while "token" not in KEPT:
            await asyncio.sleep(0.01)
        note("joined")
        return await asyncio.shield(KEPT["token"])
    if deed == "lets go":
        await noted("left cancelled")
        note("go")
        await noted("copied ended", "shared ended")
    if deed == "swallower":
        KEPT["swallows"] = asyncio.create_task(swallows())
        await asyncio.sleep(0)
    if deed == "processes":
        begin_processes()
        await noted(*BEGUN)
    if deed == "uses the pool":
        return await asyncio.wrap_future(POOL.submit(abs, -1))
    if deed == "uses it, too":
        try:
            return await asyncio.wrap_future(POOL.submit(abs, -1))
        finally:
            note("go")
    if deed == "goes last":
        await noted("go")
    if deed == "keeps":
        start("kept")
        await noted(*BEGUN)
        while not all(map(is_gone, BEGUN)):
            await asyncio.sleep(0.01)
        assert not is_gone("kept") and not is_gone("shared child")
    if deed == "threads":
        KEPT["event"] = threading.Event()
        threading.Thread(target=KEPT["event"].wait, name="follower").start()
        threading.Thread(target=KEPT["event"].wait, name="a daemon", daemon=True).start()
        with shared():
            threading.Thread(target=KEPT["event"].wait, name="a shared one").start()
        await asyncio.to_thread(time.time)
        await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80)
    if deed == "cancels all":
        await noted("asleep")
        for one in asyncio.all_tasks():
            one.cancel()
        await asyncio.sleep(1)
    if deed == "resolves":
        KEPT["future"] = asyncio.get_running_loop().create_future()
        KEPT["resolves"] = asyncio.create_task(resolves(KEPT["future"]))
        await noted("awaited")
    if deed == "awaits":
        while "future" not in KEPT:
            await asyncio.sleep(0.01)
        note("awaited")
        await KEPT["future"]
    if deed == "fails when cancelled":
        note("asleep")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            raise ValueError("its own")
    if deed == "sleeps":
        note("asleep")
        await asyncio.sleep(1000)
    return deed

@task("leaves.plainly", batch=10, concurrency=5)
def leaves_plainly(run, deed):
    if deed in ("processes", "keeps"):
        return asyncio.run(leaves(run, deed))
    if deed == "threads":
        threading.Thread(target=threading.Event().wait, name="follower").start()
    return deed

@task("two.only", batch=3, concurrency=2)
async def two_only(run, deed):
    return await leaves(run, deed)
"""
PLEASANT = """
import httpx2, redis.asyncio

POLLS = 1000

async def token():
    if "token" not in KEPT:
        KEPT["token"] = asyncio.create_task(new_token())
    return await asyncio.shield(KEPT["token"])

async def new_token():
    await asyncio.sleep(0.2)
    return (await KEPT["http"].get(os.environ["POLLED"])).text

@task("polls", batch=POLLS, concurrency=200)
async def polls(run, deed):
    if "http" not in KEPT:
        KEPT["http"] = httpx2.AsyncClient(timeout=60)
        KEPT["redis"] = redis.asyncio.Redis.from_url(os.environ["REDIS_URL"], max_connections=50)
        KEPT["redis"].connection_pool = redis.asyncio.BlockingConnectionPool.from_url(os.environ["REDIS_URL"], timeout=60)
        with shared():
            KEPT["pool"] = ProcessPoolExecutor(2, multiprocessing.get_context("fork"))
            KEPT["pool"].submit(int, 1)
    number = int(deed)
    assert await token() == "answer"
    assert await KEPT["redis"].ping()
    if number % 5 == 0:
        assert (await KEPT["http"].get(os.environ["POLLED"])).text == "answer"
        assert await asyncio.to_thread(abs, -number) == number
    if number % 100 == 0:
        assert await asyncio.wrap_future(KEPT["pool"].submit(abs, -number)) == number
        subprocess.Popen(["sleep", "1000"])
    if number % 10 == 0:
        KEPT[number] = asyncio.create_task(asyncio.sleep(1000))
"""


@pytest.fixture(autouse=True)
def announced(environ: dict[str, str], db: Any, folder: Path) -> None:
    names = {"leaves": 10, "leaves.plainly": 10, "two.only": 10, "polls": 1000}
    db.execute(
        "INSERT INTO ticker.functions (name, batch, announced_at)"
        " SELECT name, batch, clock_timestamp() FROM unnest(%(names)s::text[], %(batches)s::int[]) AS t (name, batch)",
        {"names": [*names], "batches": [*names.values()]},
    )


@pytest.fixture
def polled() -> Iterator[str]:
    """The address of a server that answers each request with `answer`."""
    loop, address = asyncio.new_event_loop(), []
    is_up = threading.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswer")

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1000)
        address.append("http://127.0.0.1:{1}/".format(*server.sockets[0].getsockname()))
        is_up.set()

    loop.set_exception_handler(lambda *_: None)  # clients close their connections without a further request
    loop.create_task(serve())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    is_up.wait()
    yield address[0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def test_coroutines_end_with_their_run_unless_they_are_shared_or_awaited_by_another_run(db, store, queue, folder):
    register(db, "leaves", "tasks", "joins", "lets go")
    tick(store, queue)
    done = work(patch=FUNCTIONS)
    assert outcomes(db) == {"0 tasks": "succeeded", "1 joins": "succeeded", "2 lets go": "succeeded"}
    results = dict(db.execute("SELECT task_name, result FROM ticker.runs").fetchall())
    assert results["1 joins"] == "the token"
    noted = {path.name for path in folder.iterdir()}
    assert noted == {"joined", "fetching", "go", "left cancelled", "inner ended", "copied ended", "shared ended"}
    assert "left asyncio tasks" in done.stdout


def test_a_coroutine_that_ignores_its_cancellation_keeps_its_run_open_until_the_process_is_killed(
    db, store, queue, folder
):
    register(db, "leaves", "swallower", "returns", every="4s", box="1s")
    tick(store, queue)
    work(patch=FUNCTIONS)
    [run] = [run for run in ticker.list_runs(db) if run.task_name == "0 swallower"]
    assert (run.outcome, run.reason) == ("killed", sentence("why.killed_at_hard_limit", limit="1.4 s"))


@pytest.mark.parametrize("function", ["leaves", "leaves.plainly"])
def test_processes_end_with_their_run_and_those_of_neighbours_and_shared_ones_stay(function, db, store, queue, folder):
    register(db, function, "processes", "keeps")
    tick(store, queue)
    done = work(patch=FUNCTIONS)
    assert set(outcomes(db).values()) == {"succeeded"}, done.stdout + done.stderr
    begun = [path for path in folder.iterdir() if path.read_text().strip().isdigit()]
    assert len(begun) >= 10 and not any(is_alive(int(path.read_text())) for path in begun)
    assert [line.partition("=")[0] for line in (folder / "its environment").read_text().splitlines()] == ["TICKER_RUN"]


def test_a_pool_of_processes_outlives_the_run_that_used_it_first(db, store, queue):
    """The third run begins after the first."""
    register(db, "two.only", "uses the pool", "goes last", "uses it, too")
    tick(store, queue)
    done = work(patch=FUNCTIONS)
    assert set(outcomes(db).values()) == {"succeeded"}, done.stdout


@pytest.mark.parametrize("function", ["leaves", "leaves.plainly"])
def test_threads_that_outlive_their_run_are_named_and_those_of_executors_and_daemons_are_not(
    function, db, store, queue
):
    register(db, function, "threads", "returns")
    tick(store, queue)
    done = work(patch=FUNCTIONS)
    [run] = [run for run in ticker.list_runs(db) if run.task_name == "0 threads"]
    assert (run.outcome, run.reason) == ("succeeded", sentence("why.threads_left", names="follower"))
    assert sentence("why.threads_left", names="follower").within(done.stdout)


def test_a_run_that_cancels_all_tasks_of_the_loop_interrupts_its_neighbours_and_is_named(db, store, queue):
    """The third run begins after that."""
    register(db, "two.only", "cancels all", "sleeps", "returns")
    tick(store, queue)
    done = work(patch=FUNCTIONS)
    assert outcomes(db) == {"0 cancels all": "failed", "1 sleeps": "interrupted", "2 returns": "succeeded"}
    runs = {run.task_name: run for run in ticker.list_runs(db)}
    by = runs["0 cancels all"].task_id
    assert runs["1 sleeps"].reason == sentence("why.cancelled_by_a_neighbour", task=by)
    assert sentence("why.cancelled_by_a_neighbour", task=by).within(done.stdout)


def test_a_run_that_fails_after_a_neighbour_cancelled_it_has_failed(db, store, queue):
    register(db, "leaves", "cancels all", "fails when cancelled")
    tick(store, queue)
    work(patch=FUNCTIONS)
    [run] = [run for run in ticker.list_runs(db) if run.task_name == "1 fails when cancelled"]
    assert (run.outcome, run.reason) == ("failed", "ValueError: its own")


def test_a_run_is_interrupted_if_only_what_it_awaited_was_cancelled(db, store, queue):
    register(db, "leaves", "resolves", "awaits")
    tick(store, queue)
    work(patch=FUNCTIONS)
    [run] = [run for run in ticker.list_runs(db) if run.task_name == "1 awaits"]
    assert (run.outcome, run.reason) == ("interrupted", sentence("why.what_it_awaited_was_cancelled"))


def test_a_thousand_polls_share_clients_a_token_and_a_pool_and_none_is_disturbed(db, store, queue, polled, monkeypatch):
    monkeypatch.setenv("POLLED", polled)
    monkeypatch.setenv("TICKER_TICK", "10m")  # nothing is given back
    with db.transaction():
        register(db, "polls", *map(str, range(1000)), every="1d", box="1h")
    tick(store, queue)
    work(patch=FUNCTIONS + PLEASANT, timeout=110)
    ended = ticker.list_runs(db, limit=1000)
    assert {(run.outcome, run.reason) for run in ended} == {("succeeded", "")} and len(ended) == 1000


def test_after_a_second_signal_to_stop_the_record_says_that_the_worker_killed_the_run(db, store, queue, folder):
    register(db, "leaves", "sleeps", "sleeps")
    tick(store, queue)
    at_once = "import rq.worker.base as base, datetime; base.timedelta = lambda seconds: datetime.timedelta(0)\n"
    with working(patch=at_once + FUNCTIONS) as process:
        until(lambda: len(ticker.list_runs(db)) == 2 and (folder / "asleep").exists(), "the runs")
        process.terminate()
        until(lambda: "warm shut down" in process.stdout.readline(), "the worker has heard it")
        process.send_signal(signal.SIGTERM)
        process.communicate()
    runs = ticker.list_runs(db)
    assert [run.outcome for run in runs] == ["interrupted"] * 2
    assert all(sentence("why.killed_by_its_worker").within(run.reason) for run in runs)
    assert db.execute("SELECT count(*) FROM ticker.tasks WHERE alone_until IS NOT NULL").fetchall() == [(0,)]
