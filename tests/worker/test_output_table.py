"""Real workers: where what a function writes is kept, as the table in docs/guides/output.md says, way by way."""

from collections.abc import Iterator

import pytest

import ticker
from tests.running import ROOT, stock_worker, work
from ticker.engine.tick import tick
from wrappers.pipeline.output import OF_GROUP

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "guides" / "output.md"
SINGLE, GROUP, STOCK = 1, 2, 3  # the columns of the table

# Writes `text`, a line with a number, in each of the ways that the table lists.
WAYS = {
    "`print(...)`": "print(text, end='')",
    "`sys.stdout.write(...)`": "sys.stdout.write(text)",
    "bytes into `sys.stdout.buffer`": "sys.stdout.buffer.write(text.encode())",
    "the same with `sys.stderr`": "print(text, end='', file=sys.stderr)",
    "`warnings.warn(...)`": "warnings.warn(text)",
    "`logging`": "logging.getLogger('app').warning(text)",
    "`print(...)` in a thread": "in_thread(print, text)",
    "the traceback of a thread": "in_thread(int, text)",
    "`print(...)` in a fork": "in_fork(print, text)",
    "child processes": "subprocess.run(['echo', text], check=True)",
    "`os.write(1, ...)`": "os.write(1, text.encode())",
    "`sys.__stdout__`": "sys.__stdout__.write(text)",
    "C libraries": "C.printf(text.encode())",
    "the same with descriptor 2": "os.write(2, text.encode())",
    "`faulthandler`": "exec(f'def {text.strip()}(): faulthandler.dump_traceback()\\n{text.strip()}()')",
    "a log handler that was there before the run": "logging.getLogger('old').warning(text)",
}

FUNCTIONS = f"""
import asyncio, ctypes, faulthandler, logging, multiprocessing, os, subprocess, sys, threading, warnings
from pathlib import Path
from wrappers import task

C = ctypes.CDLL(None)
FOLDER = Path(os.environ["GROUP_FOLDER"])
old = logging.getLogger("old")
old.propagate = False
old.addHandler(logging.StreamHandler())

def in_thread(function, text):
    thread = threading.Thread(target=function, args=(text,))
    thread.start()
    thread.join()

def in_fork(function, text):
    fork = multiprocessing.get_context("fork").Process(target=function, args=(text,))
    fork.start()
    fork.join()

def write_in_all_ways():
    for number, way in enumerate({[*WAYS.values()]!r}):
        exec(way, globals() | {{"text": f"way_{{number}}_\\n"}})

@task("single")
def single():
    write_in_all_ways()

async def until(name):
    while not (FOLDER / name).exists():
        await asyncio.sleep(0.01)

@task("group", batch=10, concurrency=2)
async def group(run):
    (FOLDER / run.name).touch()
    await until("neighbour")
    if run.name == "group":
        write_in_all_ways()
        (FOLDER / "written").touch()
    await until("written")
"""


def rows(column: int) -> Iterator[tuple[str, str]]:
    """What the table says: each way to write, and where it goes."""
    lines = PAGE.read_text().split("\n")
    begin = lines.index("|---|---|---|---|") + 1
    for line in lines[begin : lines.index("", begin)]:
        cells = line.strip("|").split("|")
        for way in cells[0].split(";"):
            yield way.strip(), cells[column].strip()


def places(db, worker: str) -> dict[str, str]:
    """Where the text of each way is."""
    records = db.execute("SELECT task_name, output, error_output FROM ticker.runs").fetchall()
    [(output, errors)] = [kept for name, *kept in records if name != "neighbour"]
    own, shared = output.partition(OF_GROUP)[::2]
    own_errors, shared_errors = errors.partition(OF_GROUP)[::2]
    for name, *kept in records:
        assert name != "neighbour" or kept == [OF_GROUP + shared, OF_GROUP + shared_errors]
    texts = {
        "output": own,
        "error output": own_errors,
        "output of each run": shared,
        "error output of each run": shared_errors,
        "the worker": worker,
    }
    return {
        way: " and ".join(place for place, text in texts.items() if f"way_{number}_" in text)
        for number, way in enumerate(WAYS)
    }


@pytest.mark.parametrize("column", [SINGLE, GROUP, STOCK], ids=["single", "group", "stock"])
def test_what_is_written_is_where_the_table_says(column, environ, db, store, queue, folder):
    name = "group" if column == GROUP else "single"
    db.execute("INSERT INTO ticker.functions (name, batch, announced_at) VALUES ('group', 10, clock_timestamp())")
    ticker.register(db, name, every="1m")
    if column == GROUP:
        ticker.register(db, name, name="neighbour", every="1m")
    tick(store, queue)
    done = (stock_worker if column == STOCK else work)(patch=FUNCTIONS)
    assert places(db, done.stdout + done.stderr) == dict(rows(column))
