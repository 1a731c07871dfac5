"""Serves `/metrics` of a ticker over HTTP, in daemon threads."""

import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from ticker.errors import ConfigurationError
from ticker.metrics import exposition
from ticker.metrics.servers import Servers
from ticker.metrics.ticks import Ticks
from ticker.settings import Settings

log = logging.getLogger("ticker")

PATH = "/metrics"
POLL = 0.1  # seconds until the server notices that it should stop; the whole ticker has 5 to stop

Scrape = Callable[[str], tuple[bytes, str]]
"""Maps the Accept header to a page and its media type."""


class Server(ThreadingHTTPServer):
    """Serves one page, with a thread for each request."""

    def __init__(self, host: str, port: int, scrape: Scrape) -> None:
        self.scrape = scrape
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)

    @property
    def url(self) -> str:
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that disconnect before the answer."""
        if not isinstance(sys.exception(), OSError):
            log.exception("metrics: a scrape failed because of an internal error", extra={"event": "metrics_failed"})


class Handler(BaseHTTPRequestHandler):
    """Answers GET requests for the one page."""

    server: Server
    timeout = 5.0  # seconds for the request, so that a silent client does not hold a thread for ever

    def do_GET(self) -> None:
        if urlsplit(self.path).path != PATH:
            self.send_error(404, f"only {PATH} is served here")
            return
        text, media_type = self.server.scrape(self.headers.get("Accept", ""))
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        log.debug(format, *args, extra={"event": "request"})


@contextmanager
def serving(settings: Settings, host: str, port: int) -> Iterator[Ticks]:
    """Serves all metrics within the block. Yields the observer that must be notified of ticks. Port 0 picks a free port.

    Raises ConfigurationError if the library is not installed, or if the port cannot be opened.
    """
    exposition.check()
    ticks, servers = Ticks(settings), Servers(settings)
    server = opened(host, port, lambda accept: exposition.text({**ticks.figures(), **servers.figures()}, accept))
    threading.Thread(target=server.serve_forever, args=(POLL,), name="ticker-metrics-server", daemon=True).start()
    log.info("metrics at %s", server.url, extra={"event": "metrics_served"})
    try:
        yield ticks
    finally:
        server.shutdown()
        server.server_close()


def opened(host: str, port: int, scrape: Scrape) -> Server:
    try:
        return Server(host, port, scrape)
    except OSError as error:
        raise ConfigurationError(
            f"--metrics-port: {port} on {host} cannot be opened ({error.strerror or error}); choose another"
        ) from None
