"""Functions that entries of other schedulers call. `calls` in Redis has one line for each call."""

import os
import time

from redis import Redis


def poll(channel_id: int = 0) -> None:
    with Redis.from_url(os.environ["REDIS_URL"]) as redis:
        redis.rpush("calls", f"{channel_id} {time.time()}")


def report(*regions: str, since: str = "") -> None: ...


class Report:
    def send(self) -> None: ...
