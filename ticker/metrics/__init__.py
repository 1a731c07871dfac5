"""Provides metrics for Prometheus: the ticks of a process, the state of the database and Redis, and ended runs.

Read `families` first, which lists every metric. `ticker run --metrics-port` serves all of them (`server`); `/metrics` of
the page serves those read from the database and Redis (`Page`).
"""

from ticker.metrics import exposition
from ticker.metrics.families import Figures
from ticker.metrics.servers import Servers
from ticker.settings import Settings

__all__ = ["Figures", "Page"]


class Page:
    """The metrics of a process without ticks of its own."""

    def __init__(self, settings: Settings) -> None:
        self._servers = Servers(settings)

    def __call__(self, accept: str = "") -> tuple[bytes, str]:
        """Returns the text and its media type. Raises ConfigurationError if the library is not installed."""
        return exposition.text(self._servers.figures(), accept)
