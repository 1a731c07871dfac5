"""What a process checks before it works: both servers answer, and the tables are there. One sentence each."""

from ticker import enqueue, store
from ticker.errors import ConfigurationError, Unavailable
from ticker.settings import Settings


def check(settings: Settings) -> None:
    """ConfigurationError in one sentence that names the setting and what to do."""
    try:
        check_database(settings)
        check_redis(settings)
    except Unavailable as error:
        raise ConfigurationError(str(error)) from None


def check_database(settings: Settings) -> None:
    url = settings.require_database()
    with store.translated(), store.connect(url) as connection:
        version = connection.info.server_version // 10_000
        found = connection.execute("SELECT to_regclass(%s)", [f'"{settings.schema}".tasks']).fetchone()
    if version < store.OLDEST_POSTGRESQL:
        raise ConfigurationError(
            f"DATABASE_URL: PostgreSQL {version} is too old; {store.OLDEST_POSTGRESQL} or newer is needed"
        )
    if found is None or found[0] is None:
        raise ConfigurationError(f"DATABASE_URL: schema {settings.schema!r} has no tables; run: ticker db upgrade")


def check_redis(settings: Settings) -> None:
    queue = enqueue.RedisQueue.from_url(settings.require_redis())
    try:
        queue.check()
    finally:
        queue.close()
