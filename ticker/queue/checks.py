"""Checks both servers before a process begins to work. Each refusal is one sentence that names the setting and what to
do.
"""

import logging
from collections.abc import Sequence
from contextlib import closing

from ticker.db.checks import check_database
from ticker.db.store import PostgresStore
from ticker.errors import ConfigurationError, Unavailable
from ticker.queue import rq
from ticker.settings import Settings

log = logging.getLogger("ticker")


def check(settings: Settings, queues: Sequence[str] | None = None) -> None:
    """Checks both servers. Raises ConfigurationError with one sentence that names the setting and what to do.

    `queues` are those to which a worker listens. None means the queues of all tasks, as for a ticker.
    """
    try:
        here, warning = check_database(settings)
        if warning:
            log.warning(warning, extra={"event": "configuration"})
        check_redis(settings, here, queues_of_tasks(settings) if queues is None else queues)
    except Unavailable as error:
        raise ConfigurationError(str(error)) from None


def queues_of_tasks(settings: Settings) -> list[str]:
    with closing(PostgresStore(settings.require_database(), settings.schema)) as store:
        return store.queues()


def check_redis(settings: Settings, here: str, queues: Sequence[str]) -> None:
    queue = rq.RedisQueue.from_url(settings.require_redis())
    try:
        queue.check()
        for name, holder in queue.holders(queues).items():
            if holder != here:
                raise ConfigurationError(
                    f"REDIS_URL: {rq.leased(name, holder)}; use another queue, another database of this Redis, or another Redis"
                )
    finally:
        queue.close()
