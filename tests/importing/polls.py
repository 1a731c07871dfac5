"""What both schedulers run: a poll leaves its channel and its time in a list of Redis, which nobody else writes."""

import os
import time

from redis import Redis

POLLS = "polls"


def poll(channel: int, seconds: float = 0.0) -> None:
    with Redis.from_url(os.environ["REDIS_URL"]) as redis:
        redis.rpush(POLLS, f"{channel} {time.time()}")
    time.sleep(seconds)
