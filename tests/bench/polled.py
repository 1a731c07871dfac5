"""The functions of `python -m tests.bench polls`: each asks a local server that answers after 200 ms."""

import asyncio
import os
import urllib.request

from wrappers import task

PORT = int(os.environ.get("POLLS_PORT", "0"))


async def poll() -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return len(answer)


@task("polls.one")
async def one() -> int:
    return await poll()


@task("polls.batch", batch=50)
async def batch() -> int:
    return await poll()


@task("polls.together", batch=500, concurrency=100)
async def together() -> int:
    return await poll()


@task("polls.threads", batch=200, concurrency=20)
def threads() -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/") as answer:
        return len(answer.read())
