"""What scrapes ask."""

import pytest

from ticker.metrics.servers import Servers
from ticker.settings import Settings


@pytest.fixture
def asked(environ: dict[str, str], settings: Settings) -> Servers:
    """Servers that are asked anew for each scrape."""
    return Servers(settings, fresh=0.0)
