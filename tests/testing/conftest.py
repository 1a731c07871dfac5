"""A kit on the database and the queues of the test."""

from collections.abc import Iterator

import pytest

from ticker.testing import Kit, Servers


@pytest.fixture
def kit(environ: dict[str, str]) -> Iterator[Kit]:
    servers = Servers(environ["DATABASE_URL"], environ["REDIS_URL"], "ticker", empties_tables=False)
    with Kit(servers) as kit:
        yield kit
