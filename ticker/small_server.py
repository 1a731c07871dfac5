"""What our small HTTP servers share: the metrics of a ticker, and the probes. Each request has a daemon thread."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

from ticker.errors import ConfigurationError

log = logging.getLogger("ticker")

POLL = 0.1  # seconds until a server notices that it should stop; a whole ticker has 5 to stop
S = TypeVar("S", bound="SmallServer")


class SmallServer(ThreadingHTTPServer):
    """Listens on an address of IPv4 or IPv6."""

    daemon_threads = True

    def __init__(self, host: str, port: int, handler: type["SmallHandler"]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)

    @property
    def url(self) -> str:
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class SmallHandler(BaseHTTPRequestHandler):
    """Answers with whole texts."""

    timeout = 5.0  # seconds for the request, so that a silent client does not hold a thread for ever

    def answer(self, status: int, media_type: str, text: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        log.debug(format, *args, extra={"event": "request"})


def opened(option: str, host: str, port: int, make: Callable[[str, int], S]) -> S:
    """Returns the server. Raises ConfigurationError, which names the option, if the port cannot be opened."""
    try:
        return make(host, port)
    except OSError as error:
        raise ConfigurationError(
            f"{option}: {port} on {host} cannot be opened ({error.strerror or error}); choose another"
        ) from None


@contextmanager
def running(server: SmallServer, name: str) -> Iterator[None]:
    """Serves in a thread of this name within the block."""
    threading.Thread(target=server.serve_forever, args=(POLL,), name=name, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
