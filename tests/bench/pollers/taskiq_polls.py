import asyncio
import os
import sys

from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

from tests.bench import poll as polls

URL = os.environ["POLLS_REDIS"]

broker = ListQueueBroker(URL)
if polls.RECORD:
    broker = broker.with_result_backend(RedisAsyncResultBackend(URL, result_ex_time=3600))


@broker.task("poll", timeout=polls.BOX)
async def poll() -> int:
    return await polls.poll_async()


async def enqueue(count: int) -> None:
    await broker.startup()
    for _ in range(count):
        await poll.kiq()
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(enqueue(int(sys.argv[1])))
