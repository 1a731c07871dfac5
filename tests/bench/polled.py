"""The functions of our own that `python -m tests.bench polls`, `day` and `limits` run."""

import asyncio
import os
import re
import time

from tests.bench.poll import ask, poll, poll_async
from wrappers import SlowDown, task

WAIT = 14.0  # seconds, less than the box
BATCH, CONCURRENCY = (int(os.environ.get(name, "100")) for name in ("POLLS_BATCH", "POLLS_CONCURRENCY"))


@task("polls.one")
async def one() -> int:
    return await poll_async()


@task("polls.batch", batch=50)
async def batch() -> int:
    return await poll_async()


@task("polls.group50", batch=500, concurrency=50)
async def group50() -> int:
    return await poll_async()


@task("polls.group100", batch=500, concurrency=100)
async def group100() -> int:
    return await poll_async()


@task("polls.group500", batch=500, concurrency=500)
async def group500() -> int:
    return await poll_async()


@task("polls.group1000", batch=1000, concurrency=1000)
async def group1000() -> int:
    return await poll_async()


@task("polls.threads", batch=200, concurrency=20)
def threads() -> int:
    return poll()


@task("polls.day", batch=BATCH, concurrency=CONCURRENCY)
async def day() -> int:
    return await poll_async()


async def poll_politely() -> int:
    received = await ask()
    if found := re.search(rb"Retry-After: (\S+)", received):
        raise SlowDown(until=found[1].decode())
    return len(received)


task("polls.limited")(poll_politely)
task("polls.limited_group", batch=BATCH, concurrency=CONCURRENCY)(poll_politely)


@task("polls.wait", batch=500, concurrency=500)
async def wait() -> None:
    """Waits, and needs no memory of its own."""
    await asyncio.sleep(WAIT)


@task("polls.wait_in_thread", batch=200, concurrency=100)
def wait_in_thread() -> None:
    time.sleep(WAIT)
