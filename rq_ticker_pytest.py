"""Defines the pytest fixtures of the test kit.

pytest imports this module in every session, even in a project with its own package `ticker`. So the module is outside our
package, and imports it only when a fixture is used.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ticker.testing import Kit, Servers


@pytest.fixture(scope="session")
def ticker_servers() -> "Iterator[Servers]":
    """PostgreSQL and Redis for the kits of this session: those of DATABASE_URL and REDIS_URL, or embedded ones."""
    from ticker.testing import servers

    with servers() as running:
        yield running


@pytest.fixture
def ticker_kit(ticker_servers: "Servers") -> "Iterator[Kit]":
    """A ticker and a worker in this process, without tasks or jobs, on a clock that only the kit moves."""
    from ticker.testing import Kit

    with Kit(ticker_servers) as kit:
        yield kit
