"""What the runs of `test_ways_of_running` do, in every way of running.

A deed is a coroutine that waits with `pause` alone, so a plain function can drive it to its end without an event loop.
"""

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import rq

from wrappers import NOTHING_TO_DO, Run, SlowDown, SoftLimit, task

Deed = Callable[[Run], Coroutine[Any, Any, Any]]

DEEDS: dict[str, Deed] = {}
HOOKS: list[Any] = []  # audit hooks that were added in this process
IS_ASYNC, SLOTS = False, 1


def register(is_async: bool, slots: int, **said: Any) -> None:
    """Registers the functions of one way in a worker: `said` are the arguments of `@task`."""
    import sentry_sdk  # noqa: F401 - our code labels runs for Sentry only if it is loaded

    global IS_ASYNC, SLOTS
    IS_ASYNC, SLOTS = is_async, slots
    add_hook = sys.addaudithook
    sys.addaudithook = lambda hook: (HOOKS.append(hook), add_hook(hook))[1]
    for name in ("deeds", "deadly", "sleepy"):
        task(name, **said)(coroutine if is_async else plain)
    in_turn = said if slots == 1 else {}
    task("awaits", **in_turn)(awaits)
    task("in.pieces", **in_turn)(Pieces)


def plain(run: Run, deed: str) -> Any:
    try:
        DEEDS[deed](run).send(None)
    except StopIteration as end:
        return end.value


async def coroutine(run: Run, deed: str) -> Any:
    return await DEEDS[deed](run)


async def awaits(run: Run, deed: str) -> str:
    with suppress(asyncio.CancelledError if deed == "awaits_on" else ()):
        await asyncio.sleep(0 if deed == "awaits" else 1000)
    return threading.current_thread().name


class Pieces:
    def generate(self, run: Run, deed: str) -> Iterator[int]:
        yield from (1, 2)

    def process(self, piece: int, deed: str) -> int:
        if piece == 2:
            raise ValueError("no such piece")
        return piece


def deed(function: Deed) -> Deed:
    DEEDS[function.__name__] = function
    return function


def file(name: str) -> Path:
    return Path(os.environ["GROUP_FOLDER"], name)


async def pause() -> None:
    await asyncio.sleep(0.01) if IS_ASYNC else time.sleep(0.01)


async def wait(name: str = "never") -> None:
    file(f"{name} waits").touch()
    while not file(name).exists():
        await pause()


# ------------------------------------------------------------------------------------------------------------ outcomes


@deed
async def is_stopped(run: Run) -> None:
    await wait("go")


@deed
async def returns(run: Run) -> dict[str, int]:
    sys.stdout.write("printed\n")
    logging.getLogger("app").warning("logged")
    return {"a": 1}


@deed
async def finds_nothing(run: Run) -> Any:
    return NOTHING_TO_DO


@deed
async def exhausts(run: Run) -> None:
    while not run.quota.exceeded:
        await pause()


@deed
async def raises(run: Run) -> None:
    raise ValueError("no such host")


@deed
async def exits(run: Run) -> None:
    raise SystemExit(4)


@deed
async def overruns(run: Run) -> None:
    await wait()


@deed
async def returns_late(run: Run) -> int:
    with suppress(SoftLimit, asyncio.CancelledError):
        await wait()
    return 5


@deed
async def converts(run: Run) -> None:
    try:
        await wait()
    except (SoftLimit, asyncio.CancelledError):
        raise OSError("the connection was closed") from None


@deed
async def sleeps(run: Run) -> None:
    time.sleep(1000)


@deed
async def swallows(run: Run) -> None:
    while True:
        with suppress(BaseException):
            await pause()


@deed
async def follows(run: Run) -> None:
    """Is a neighbour of `swallows` in a group, and runs after it otherwise."""
    while SLOTS > 1:
        await pause()


@deed
async def retries(run: Run) -> None:
    if run.attempt == 1:
        raise ValueError("not yet")


# ------------------------------------------------------------------------------------------------- what a run may ask


@deed
async def resumes(run: Run) -> int:
    run.checkpoint((run.cursor or 0) + 1)
    return run.cursor  # type: ignore[no-any-return]


@deed
async def asks_again(run: Run) -> str:
    return str(run.again("90m"))


@deed
async def slows(run: Run) -> None:
    raise SlowDown(until="10m")


@deed
async def holds_off(run: Run) -> None:
    run.slow_down("off", "10m")


@deed
async def has_more_than_its_first_box(run: Run) -> bool:
    return run.quota.remaining > 60


# -------------------------------------------------------------------------------------------- where the function runs


@deed
async def thread(run: Run) -> str:
    return threading.current_thread().name.rstrip("_0123456789")


@deed
async def other_threads(run: Run) -> bool:
    return any(thread.name.startswith("ticker-") for thread in threading.enumerate())


@deed
async def audit_hooks(run: Run) -> int:
    return len(HOOKS)


@deed
async def asyncio_run(run: Run) -> str:
    inner = asyncio.sleep(0, "runs")
    try:
        return asyncio.run(inner)
    except RuntimeError as error:
        inner.close()
        return str(error)


@deed
async def process(run: Run) -> int:
    return os.getpid()


@deed
async def current_job(run: Run) -> str | None:
    job = rq.get_current_job()
    return job and job.id


@deed
async def labels(run: Run) -> list[Any]:
    import sentry_sdk

    scope = sentry_sdk.get_current_scope()
    return [scope._transaction, scope._tags["ticker.run"] == str(run.id)]


@deed
async def span(run: Run) -> list[int]:
    from opentelemetry import trace

    here = trace.get_current_span().get_span_context()
    return [here.trace_id, here.span_id]


# ------------------------------------------------------------------------------------- what it returns and leaves


@deed
async def awaitable(run: Run) -> Awaitable[str]:
    return asyncio.sleep(0, "awaited")


@deed
async def generator(run: Run) -> Iterator[int]:
    def yields() -> Iterator[int]:
        yield 1

    return yields()


@deed
async def leaves_a_child(run: Run) -> int:
    child = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    file("child.new").write_text(str(child.pid))
    file("child.new").rename(file("child"))
    return child.pid


@deed
async def meets_the_child(run: Run) -> str:
    """In a group, waits for its end. Otherwise, the run that left it is over."""
    while SLOTS > 1 and not file("child").exists():
        await pause()
    process = Path("/proc", file("child").read_text())
    while SLOTS > 1 and process.exists():
        await pause()
    return "alive" if process.exists() else "dead"


@deed
async def leaves_a_coroutine(run: Run) -> Awaitable[None]:
    async def left() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            file("cancelled").touch()

    async def leave() -> None:
        keep = asyncio.create_task(left())
        await asyncio.sleep(0)
        assert not keep.done()

    return leave()


@deed
async def leaves_a_thread(run: Run) -> None:
    threading.Thread(target=threading.Event().wait, name="follower").start()


@deed
async def meets_the_thread(run: Run) -> bool:
    return "follower" in [one.name for one in threading.enumerate()]
