"""Serves `/metrics` of a ticker over HTTP, in daemon threads."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from ticker.metrics import exposition
from ticker.metrics.servers import Servers
from ticker.metrics.ticks import Ticks
from ticker.settings import Settings
from ticker.small_server import SmallHandler, SmallServer, opened, running

log = logging.getLogger("ticker")

PATH = "/metrics"

Scrape = Callable[[str], tuple[bytes, str]]
"""Maps the Accept header to a page and its media type."""


class Server(SmallServer):
    """Serves one page."""

    def __init__(self, host: str, port: int, scrape: Scrape) -> None:
        self.scrape = scrape
        super().__init__(host, port, Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that disconnect before the answer."""
        if not isinstance(sys.exception(), OSError):
            log.exception("metrics: a scrape failed because of an internal error", extra={"event": "metrics_failed"})


class Handler(SmallHandler):
    """Answers GET requests for the one page."""

    server: Server

    def do_GET(self) -> None:  # noqa: N802 - the name is http.server's
        if urlsplit(self.path).path != PATH:
            self.send_error(404, f"only {PATH} is served here")
            return
        text, media_type = self.server.scrape(self.headers.get("Accept", ""))
        self.answer(200, media_type, text)


@contextmanager
def serving(settings: Settings, host: str, port: int) -> Iterator[Ticks]:
    """Serves all metrics within the block. Yields the observer that must be notified of ticks. Port 0 picks a free port.

    Raises ConfigurationError if the library is not installed, or if the port cannot be opened.
    """
    exposition.check()
    ticks, servers = Ticks(settings), Servers(settings)

    def scrape(accept: str) -> tuple[bytes, str]:
        return exposition.text({**ticks.figures(), **servers.figures()}, accept)

    server = opened("--metrics-port", host, port, lambda host, port: Server(host, port, scrape))
    with running(server, "ticker-metrics-server"):
        log.info("metrics at %s%s", server.url, PATH, extra={"event": "metrics_served"})
        yield ticks
