import os
import sys

from huey import RedisHuey

from tests.bench import poll as polls

huey = RedisHuey("polls", url=os.environ["POLLS_REDIS"], results=polls.RECORD)


@huey.task()
def poll() -> int:
    return polls.poll()


if __name__ == "__main__":
    from tests.bench.pollers import huey_polls

    for _ in range(int(sys.argv[1])):
        huey_polls.huey.enqueue(huey_polls.poll.s())
