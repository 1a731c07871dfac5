"""What a Redis server executes, as MONITOR tells it: a witness outside of all schedulers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis

from tests.running import until


@contextmanager
def monitored(url: str) -> Iterator[list[tuple[float, str]]]:
    """The commands so far, each with its time."""
    commands: list[tuple[float, str]] = []
    with Redis.from_url(url, socket_timeout=None) as redis, redis.monitor() as monitor:
        ready, over = threading.Event(), threading.Event()

        def listen() -> None:
            for command in monitor.listen():
                commands.append((command["time"], str(command["command"])))
                ready.set()
                if over.is_set():
                    return

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        with Redis.from_url(url) as other:
            until(lambda: other.ping() and ready.is_set(), "MONITOR")
            yield commands
            over.set()
            other.ping()
        thread.join()
