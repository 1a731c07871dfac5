"""A function of groups that does what its task says, and what tests of groups share."""

from typing import Any

import ticker
from tests.doubles import NOW
from ticker.model import DueTask

FUNCTIONS = """
import asyncio, logging, os, time
from pathlib import Path
from wrappers import NOTHING_TO_DO, task

FOLDER = Path(os.environ.get("GROUP_FOLDER", "/nonexistent"))

class Closed(logging.Handler):
    def emit(self, record):
        if getattr(record, "event", "") == "soft_limit_ignored":
            (FOLDER / "closed").touch()

logging.getLogger("ticker.run").addHandler(Closed())

async def all_are_here(run, number):
    \"\"\"Waits until all `number` runs are active.\"\"\"
    (FOLDER / str(run.task_id)).touch()
    while len(list(FOLDER.iterdir())) < number:
        await asyncio.sleep(0.01)

async def swallows_cancellation():
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass

@task("together", batch=10, concurrency=10)
async def together(run, deed="returns", number=0):
    print(deed)
    logging.getLogger("app").warning("logged %s", deed)
    await all_are_here(run, number)
    if deed == "raises":
        raise ValueError(deed)
    if deed == "idles":
        return NOTHING_TO_DO
    if deed == "dies":
        os._exit(3)
    if deed == "exits":
        raise SystemExit(4)
    if deed == "waits":
        await asyncio.sleep(1000)
    if deed == "blocks":
        time.sleep(1000)
    if deed == "swallows":
        await swallows_cancellation()
    if deed == "checkpoints":
        run.checkpoint({"at": run.task_id})
    if deed == "stays":
        await asyncio.sleep(run.quota.remaining)
        run.quota.exceeded
    return deed

@task("two", batch=3, concurrency=2)
async def two(run, deed):
    (FOLDER / deed).touch()
    if deed == "swallows":
        await swallows_cancellation()
    if deed == "tidies up":
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(3)
            return
    if deed == "naps":
        await asyncio.sleep(1.35)
        return
    awaited = FOLDER / ("closed" if deed == "ends before the kill" else "go")
    while not awaited.exists():
        await asyncio.sleep(0.01)

@task("threads", batch=10, concurrency=3)
def threads(run, deed="returns", port=0):
    print(deed)
    if deed == "raises":
        raise ValueError(deed)
    if deed == "stops":
        next(iter(()))
    if deed == "checkpoints":
        for number in range(50):
            run.checkpoint(number)
    if deed == "leaves a trace":
        (FOLDER / str(run.task_id)).touch()
        while len(STARTED) < 2:
            time.sleep(0.01)
    if deed == "sleeps":
        while True:
            time.sleep(0.01)
    if deed == "receives":
        import socket
        with socket.create_connection(("127.0.0.1", port)) as open_:
            return len(open_.recv(10))
    return deed
"""

SECOND_THREAD_CANNOT_START = """
import threading

STARTED, start_thread = [], threading.Thread.start

def start(thread):
    if thread.name.startswith("ticker-run"):
        STARTED.append(thread)
        if len(STARTED) == 2:
            raise RuntimeError("can't start new thread")
    start_thread(thread)

threading.Thread.start = start
"""


def register(
    db: Any, function: str, *deeds: str, kwargs: dict[str, Any] | None = None, **fields: Any
) -> list[ticker.Task]:
    said = {"every": "1h", **fields}
    return [
        ticker.register(db, function, name=f"{n} {deed}", kwargs={"deed": deed, **(kwargs or {})}, **said)
        for n, deed in enumerate(deeds)
    ]


def outcomes(db: Any) -> dict[str, str]:
    return {run.task_name: str(run.outcome) for run in ticker.list_runs(db)}


def due(number: int, *, batch: int = 1, function: str = "mail.fetch", queue: str = "polling") -> DueTask:
    return DueTask(number, NOW, queue, function, every_ms=60_000, box_ms=30_000, grace_ms=1000, batch=batch)
