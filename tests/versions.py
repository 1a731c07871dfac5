"""`python -m tests.versions LANE RESULT [PAGE]` prints the row of a lane: the versions in this environment, and the result.

With PAGE, the row takes the place of the lane's former one there.
"""

import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path

import psycopg
from redis import Redis

from tests.running import servers_or_given

PACKAGES = ("rq", "sqlalchemy", "redis", "starlette", "psycopg")


def row(lane: str, result: str) -> str:
    with (
        servers_or_given() as servers,
        psycopg.connect(servers.database_url) as database,
        Redis.from_url(servers.redis_url) as redis,
    ):
        server, info = database.info.server_version, redis.info("server")
    postgres = f"{server // 10_000}.{server % 10_000}"
    store = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"
    cells = (lane, platform.python_version(), *map(version, PACKAGES), postgres, store, result)
    return f"| {' | '.join(cells)} |"


def put(row: str, page: Path) -> None:
    lane = row[: row.index("|", 1) + 1]
    text, count = re.subn(
        rf"^{re.escape(lane)}.*$", lambda _: row, page.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert count == 1, f"{page} has {count} rows that begin with {lane}"
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    new = row(*sys.argv[1:3])
    sys.stdout.write(f"{new}\n")
    if sys.argv[3:]:
        put(new, Path(sys.argv[3]))
