import os
import sys

from huey import RedisHuey
from redis import ConnectionPool

from tests.bench import poll as polls

# Its own pool has fewer connections than there are greenlets, and raises then.
POOL = ConnectionPool.from_url(os.environ["POLLS_REDIS"], max_connections=500)

huey = RedisHuey("polls", connection_pool=POOL, results=polls.RECORD)


@huey.task(timeout=polls.BOX)
def poll() -> int:
    return polls.poll()


if __name__ == "__main__":
    from tests.bench.pollers import huey_polls

    for _ in range(int(sys.argv[1])):
        huey_polls.huey.enqueue(huey_polls.poll.s())
