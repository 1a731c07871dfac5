"""Real workers: what child processes and C code write to the descriptors 1 and 2 is kept with the run, and blocks nothing."""

import subprocess

import pytest

import ticker
from tests.running import is_alive, supervised, until, work
from ticker.engine.tick import tick
from wrappers.pipeline.output import OF_GROUP
from wrappers.sandbox import ring_buffer
from wrappers.sandbox.output_pipes import Pipe
from wrappers.sandbox.ring_buffer import HALF, Ring

pytestmark = pytest.mark.slow

FUNCTIONS = """
import ctypes, faulthandler, logging, multiprocessing, os, signal, subprocess, sys, time
from pathlib import Path
from wrappers import task
from wrappers.sandbox import output_pipes

logging.getLogger().addHandler(logging.StreamHandler())  # sys.stderr of the worker
C = ctypes.CDLL(None)

def shell(command):
    subprocess.run(["sh", "-c", command], check=True)

def prints_and_logs():
    print("5 a fork")
    logging.getLogger("app").warning("logged in a fork")

@task("writes.in.all.ways")
def writes_in_all_ways():
    print("1 a print")
    shell("echo 2 a child; echo to the other >&2")
    print("3 a print")
    os.write(1, b"4 a descriptor\\n")
    fork = multiprocessing.get_context("fork").Process(target=prints_and_logs)
    fork.start()
    fork.join()
    sys.__stdout__.write("6 the first stream\\n")
    C.printf(b"7 a C library\\n")
    print("8 a print")
    C.printf(b"9 without an end of the line")

@task("in.order")
def in_order(times):
    for number in range(times):
        print(number)
        os.write(1, b"%d\\n" % number)

@task("logs")
def logs():
    logging.getLogger("of.the.app").warning("to the worker")

@task("says.nothing")
def says_nothing():
    pass

@task("closes.its.output")
def closes_its_output():
    os.close(1)

@task("replaces.our.pipes")
def replaces_our_pipes(path):
    links = {file: os.readlink(f"/proc/self/fd/{file}") for file in range(3, 100) if os.path.exists(f"/proc/self/fd/{file}")}
    for file in links:
        if links[file].startswith("pipe:") and file not in output_pipes._own:
            os.close(file)
    opened = [os.open(path, os.O_RDWR | os.O_APPEND) for _ in range(60)]
    print("afterwards")
    return max(os.lseek(file, 0, os.SEEK_CUR) for file in opened)

@task("child.crashes")
def crashes():
    shell("echo last words of a child")
    faulthandler.enable()
    ctypes.string_at(0)

@task("child.executes")
def executes():
    os.execlp("sh", "sh", "-c", "echo last words of a program; exec sleep 1000")

@task("child.floods")
def floods(megabytes):
    shell(f"yes 0123456789abcde | head -c {megabytes * 2**20}")
    os.write(2, b"end")

def signalled(signum):
    "Sends the worker a signal, and waits until all of its threads have obeyed: on a busy machine, they run on at first."
    worker = os.getppid()
    os.kill(worker, signum)
    while os.getppid() == worker and any(state_of(thread) not in "TXZ" for thread in Path("/proc").glob(f"{worker}/task/*")):
        time.sleep(0.001)
    return worker

def state_of(thread):
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"

@task("floods.past.a.stopped.worker")
def floods_past_a_stopped_worker(megabytes):
    worker = signalled(signal.SIGSTOP)
    floods(megabytes)
    os.kill(worker, signal.SIGCONT)

@task("floods.past.a.dead.worker")
def floods_past_a_dead_worker(megabytes):
    signalled(signal.SIGKILL)
    floods(megabytes)
    os._exit(1)
"""


def outputs(db):
    """Output and error output of each task's run, by the task's name."""
    return {name: found for name, *found in db.execute("SELECT task_name, output, error_output FROM ticker.runs")}


def run(db, store, queue, *names, patch=FUNCTIONS, **fields):
    for name in names:
        ticker.register(db, name, **({"every": "1m"} | fields))
    tick(store, queue)
    return work(patch=patch)


def test_all_ways_to_write_are_kept_in_their_order(environ, db, store, queue):
    done = run(db, store, queue, "writes.in.all.ways", "says.nothing")
    output, errors = outputs(db)["writes.in.all.ways"]
    lines = output.split("\n")
    assert [line[0] for line in lines] == list("123456789")
    assert lines[0] == "1 a print" and lines[-1] == "9 without an end of the line"
    assert errors.startswith("to the other\n") and errors.endswith("Z WARNING app: logged in a fork\n")
    assert outputs(db)["says.nothing"] == ["", ""]
    assert "a child" not in done.stdout and "the other" not in done.stderr


def test_the_order_is_kept_however_fast_the_two_alternate(environ, db, store, queue):
    run(db, store, queue, "in.order", kwargs={"times": 2000})
    lines = outputs(db)["in.order"][0].split("\n")
    assert lines == [*(str(number) for number in range(2000) for _ in range(2)), ""]


def test_bytes_on_their_way_from_the_pipe_to_the_memory_count_as_news(monkeypatch):
    """A print meanwhile waits for them, so that it does not overtake them."""
    pipe = Pipe(1, arrived := Ring(bytearray(ring_buffer.room(8)), 8))
    arrived.empty(mark=arrived.mark + 1)
    read, news = pipe.read, []

    def noted(size):
        data = read(size)
        news.append((data, pipe.has_news()))
        return data

    monkeypatch.setattr(pipe, "read", noted)
    pipe.ring()
    pipe.take_in()
    assert news == [(b".", True), (b"", True)]


def test_log_handlers_of_the_application_write_to_the_worker_as_before(environ, db, store, queue):
    done = run(db, store, queue, "logs")
    output, errors = outputs(db)["logs"]
    assert output == "" and errors.endswith("WARNING of.the.app: to the worker\n") and errors.count("\n") == 1
    assert done.stderr.count("to the worker\n") == 1


def test_after_a_function_that_closes_its_output_everything_is_as_before(environ, db, store, queue):
    done = run(db, store, queue, "closes.its.output", "writes.in.all.ways")
    assert outputs(db)["writes.in.all.ways"][0].startswith("1 a print\n2 a child\n")
    assert done.stdout.count("run succeeded") == 2


def test_a_file_that_has_the_number_of_one_of_our_pipes_is_neither_read_nor_written(
    environ, db, store, queue, tmp_path
):
    (path := tmp_path / "file").write_text("of the application")
    run(db, store, queue, "replaces.our.pipes", kwargs={"path": str(path)})
    [kept] = db.execute("SELECT outcome, result::text, output FROM ticker.runs").fetchall()
    assert tuple(kept) == ("succeeded", "0", "afterwards\n")
    assert path.read_text() == "of the application"


PRINTS_AFTERWARDS = f"""
{FUNCTIONS}
from wrappers.sandbox import child_processes

child_processes.kill = lambda: os.write(1, b"written afterwards")
"""


def test_what_is_written_after_a_function_goes_to_the_worker(environ, db, store, queue):
    done = run(db, store, queue, "says.nothing", patch=PRINTS_AFTERWARDS)
    assert outputs(db)["says.nothing"] == ["", ""]
    assert "written afterwards" in done.stdout


def test_the_last_words_of_a_child_are_in_the_record_of_a_run_that_died(environ, db, store, queue):
    run(db, store, queue, "child.crashes", "child.executes", patch=supervised(FUNCTIONS), every="3s", box="0.5s")
    assert outputs(db)["child.crashes"][0] == "last words of a child\n"
    assert outputs(db)["child.crashes"][1].startswith("Fatal Python error: Segmentation fault")
    assert outputs(db)["child.executes"][0] == "last words of a program\n"


@pytest.mark.parametrize(
    "name", ["child.floods", "floods.past.a.stopped.worker", "floods.past.a.dead.worker"], ids=lambda name: name
)
def test_a_flood_is_bounded_and_waits_for_no_worker(name, environ, db, store, queue):
    kwargs = {"megabytes": 20}
    if name.endswith("dead.worker"):
        with pytest.raises(subprocess.CalledProcessError):
            run(db, store, queue, name, patch=supervised(FUNCTIONS), kwargs=kwargs)
    else:
        run(db, store, queue, name, patch=supervised(FUNCTIONS), kwargs=kwargs)
    mark = f"[... {20 * 2**20 - 2 * HALF} bytes left out ...]\n"
    assert outputs(db)[name] == ["0123456789abcde\n" * (HALF // 16) + mark + "0123456789abcde\n" * (HALF // 16), "end"]


WRITES_AN_END_MEANWHILE = f"""
{FUNCTIONS}
from wrappers.pipeline import finish

HAS_FLOODED = Path(os.environ["HAS_FLOODED"])
take_left = finish.take_left

def take_left_late(*arguments):
    while not HAS_FLOODED.exists():
        time.sleep(0.01)
    take_left(*arguments)

finish.take_left = take_left_late

@task("one.of.two", batch=2)
def one_of_two(floods):
    if floods:
        shell("yes 0123456789abcde | head -c 1000000")
        HAS_FLOODED.touch()
"""


def test_a_flood_does_not_wait_for_a_worker_that_writes_an_end(environ, db, store, queue, monkeypatch, tmp_path):
    monkeypatch.setenv("HAS_FLOODED", str(tmp_path / "has flooded"))
    db.execute("INSERT INTO ticker.functions (name, batch, announced_at) VALUES ('one.of.two', 2, clock_timestamp())")
    for name in ("first", "second"):
        ticker.register(db, "one.of.two", name=name, every="20s", kwargs={"floods": name == "second"})
    tick(store, queue)
    work(patch=WRITES_AN_END_MEANWHILE)
    outcomes = db.execute("SELECT task_name, outcome, length(output) > 60000 FROM ticker.runs").fetchall()
    assert sorted(outcomes) == [("first", "succeeded", False), ("second", "succeeded", True)]


A_CHILD_STAYS = f"""
{FUNCTIONS}
from wrappers.sandbox import child_processes, subreaper

child_processes.kill = lambda: None  # as for a child of another user
subreaper.kill_new_children = lambda *_, **__: 0

@task("leaves.a.child")
def leaves_a_child():
    child = subprocess.Popen(["sh", "-c", "while :; do echo left behind; done"])
    print(child.pid, file=sys.stderr)
"""


def test_a_child_that_keeps_the_pipe_keeps_neither_its_run_nor_the_next_one(environ, db, store, queue):
    ticker.register(db, "leaves.a.child", every="1m")
    ticker.register(db, "writes.in.all.ways", every="1m")
    tick(store, queue)
    work(patch=A_CHILD_STAYS)
    pid = int(outputs(db)["leaves.a.child"][1])
    assert outputs(db)["writes.in.all.ways"][0].startswith("1 a print\n2 a child\n3 a print\n4 a descriptor\n")
    until(lambda: not is_alive(pid), "the child dies, because its pipe is closed")


def test_with_the_setting_pass_children_write_where_the_worker_does(environ, db, store, queue, monkeypatch):
    monkeypatch.setenv("TICKER_OUTPUT", "pass")
    done = run(db, store, queue, "writes.in.all.ways")
    assert outputs(db)["writes.in.all.ways"] == ["", ""]
    assert "1 a print\n" in done.stdout and "2 a child\n" in done.stdout
    assert "to the other\n" in done.stderr and "logged in a fork\n" in done.stderr


A_GROUP = """
import asyncio, os
from pathlib import Path
from wrappers import task

FOLDER = Path(os.environ["GROUP_FOLDER"])

async def until(*names):
    while not all((FOLDER / name).exists() for name in names):
        await asyncio.sleep(0.01)

@task("group", batch=10, concurrency=2)
async def group(run, dies=False):
    print("printed by", run.name)
    (FOLDER / run.name).touch()
    await until("first", "second")
    if run.name == "first":
        child = await asyncio.create_subprocess_exec("echo", "of a child")
        await child.wait()
        os.write(1, b"of the first run")
        if dies:
            os._exit(1)
        (FOLDER / "written").touch()
    await until("written")
"""


def run_group(db, store, queue, *names, **kwargs):
    db.execute("INSERT INTO ticker.functions (name, batch, announced_at) VALUES ('group', 10, clock_timestamp())")
    for name in names:
        ticker.register(db, "group", name=name, every="1m", kwargs=kwargs)
    tick(store, queue)
    work(patch=A_GROUP)


def test_in_a_group_each_run_of_that_time_keeps_it_and_says_so(environ, db, store, queue, folder):
    run_group(db, store, queue, "first", "second", "third")
    for name in ("first", "second"):
        assert outputs(db)[name] == [f"printed by {name}\n{OF_GROUP}\nof a child\nof the first run", ""]
    assert outputs(db)["third"] == ["printed by third\n", ""]


def test_of_a_group_that_died_it_is_kept_too(environ, db, store, queue, folder):
    run_group(db, store, queue, "first", "second", dies=True)
    for name in ("first", "second"):
        assert outputs(db)[name] == [f"printed by {name}\n{OF_GROUP}\nof a child\nof the first run", ""]
