"""Metrics for Prometheus: what the ticks of a process did, how things stand in the database and in Redis, and what ended.

Read `families` first: every metric stands there. `ticker run --metrics-port` serves all of them (`server`), the page's
`/metrics` those that the servers tell (`page`).
"""

from ticker.metrics import exposition
from ticker.metrics.families import Figures
from ticker.metrics.servers import Servers
from ticker.settings import Settings

__all__ = ["Figures", "Page"]


class Page:
    """What is scraped of a process without ticks of its own."""

    def __init__(self, settings: Settings) -> None:
        self._servers = Servers(settings)

    def __call__(self, accept: str = "") -> tuple[bytes, str]:
        """The text and its media type. ConfigurationError where the library is not installed."""
        return exposition.text(self._servers.figures(), accept)
