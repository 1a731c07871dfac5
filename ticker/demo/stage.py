"""What the demo sets up around itself, and takes down again: signals, the environment, tables, an RQ of its own.

Servers that you name are left as they were found: the tables have schemas of their own, and a Redis database that RQ
works in already is refused, since your workers would take the demo's jobs, and its workers yours.
"""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

from ticker import migrations, settings
from ticker.db import connections
from ticker.demo import application
from ticker.errors import ConfigurationError, Unavailable
from ticker.queue import rq
from ticker.signals import Noted, noted

TICKERS_SCHEMA = "ticker_demo"
SCHEMAS = (application.SCHEMA, TICKERS_SCHEMA)
TICK = "0.5s"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RQ_KEYS = "rq:*"


class Interrupted(Exception):
    """A signal asks the demo to end."""


class Interruption:
    """Signals are noted, and obeyed in `pause`: never in the middle of starting or ending something."""

    def __init__(self, noted: Noted) -> None:
        self._noted = noted

    def pause(self, seconds: float) -> None:
        """Sleeps; Interrupted as soon as there is, or was, a signal."""
        if self._noted.wait(seconds):
            raise Interrupted


@contextmanager
def signals() -> Iterator[Interruption]:
    """Within the block, Ctrl-C and SIGTERM are noted, however often they come."""
    with noted(SIGNALS) as found:
        yield Interruption(found)


@contextmanager
def prepared(servers: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Both servers made ready, and named to this process and those that it starts; what is new in its environment."""
    chosen = {**servers, "TICKER_SCHEMA": TICKERS_SCHEMA, "TICKER_TICK": TICK}
    news = {name: value for name, value in chosen.items() if os.environ.get(name) != value}
    with ExitStack() as at_the_end:
        at_the_end.enter_context(environment(chosen))
        database_url, redis_url = (found := settings.from_environment()).require_database(), found.require_redis()
        refuse_what_is_in_use(database_url, redis_url)
        at_the_end.callback(clear, database_url, redis_url)
        migrations.upgrade(database_url, TICKERS_SCHEMA)
        application.create()
        yield news


@contextmanager
def environment(chosen: Mapping[str, str]) -> Iterator[None]:
    """Within the block, these are the settings, and there are no others."""
    before = dict(os.environ)
    for name in before:
        if name.startswith("TICKER_"):
            del os.environ[name]
    os.environ.update(chosen)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def refuse_what_is_in_use(database_url: str, redis_url: str) -> None:
    """ConfigurationError, in a sentence, before anything is written."""
    try:
        used = schemas_in_use(database_url)
        busy = is_used_by_rq(redis_url)
    except Unavailable as error:
        raise ConfigurationError(str(error)) from None
    if used:
        raise ConfigurationError(
            f"DATABASE_URL: there are schemas of a demo that runs, or was killed; if none runs: "
            f"DROP SCHEMA {', '.join(used)} CASCADE"
        )
    if busy:
        raise ConfigurationError(
            "REDIS_URL: RQ works in this database already, and its workers and the demo's would take each other's jobs; "
            "name another one, such as redis://localhost:6379/9, or none"
        )


def schemas_in_use(database_url: str) -> list[str]:
    with connections.translated(), connections.connect(database_url) as connection:
        found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname = ANY (%s)", [list(SCHEMAS)])
        return [name for (name,) in found]


def is_used_by_rq(redis_url: str) -> bool:
    with rq.translated(), closing(rq.connect(redis_url)) as connection:
        return next(connection.scan_iter(RQ_KEYS, count=1000), None) is not None


def workers_on(queue: str) -> int:
    """How many RQ workers listen to it."""
    with closing(rq.connect(settings.from_environment().require_redis())) as connection:
        return int(connection.scard(f"rq:workers:{queue}"))


def clear(database_url: str, redis_url: str) -> None:
    """Leaves the servers as they were found."""
    application.sessions.cache_clear()
    with connections.connect(database_url) as connection:
        connection.run(f"DROP SCHEMA IF EXISTS {', '.join(SCHEMAS)} CASCADE", [])
    with closing(rq.connect(redis_url)) as redis:
        for pattern in (RQ_KEYS, f"{rq.LEASE_PREFIX}*"):
            for key in redis.scan_iter(pattern, count=1000):
                redis.unlink(key)
