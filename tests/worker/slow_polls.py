"""Functions of large groups whose polls take their time, for workers of `test_group_recovery`."""

import asyncio

from wrappers import task

POLL = 0.8  # seconds, of a suspect
SLOW_POLL = 1.8  # seconds: three rounds of them nearly fill an interval of 6 s


@task("alone", concurrency=100)
async def alone() -> None:
    await asyncio.sleep(POLL)


@task("alone.again", concurrency=100, repeatable=True)
async def alone_again() -> None:
    await asyncio.sleep(POLL)


@task("filling", batch=40, concurrency=10)
async def filling() -> None:
    await asyncio.sleep(SLOW_POLL)
