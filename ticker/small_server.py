"""Serves small pages of a process over HTTP, in daemon threads: its probes, and the metrics of a ticker.

Needs only the standard library.
"""

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from ticker.errors import BadInput, ConfigurationError

log = logging.getLogger("ticker")

HERE = "127.0.0.1"
POLL = 0.1  # seconds until a server notices that it should stop; a whole ticker has 5 to stop

Page = Callable[[str], tuple[int, str, bytes]]
"""Maps the Accept header of a request to the status, the media type and the text of the answer."""

Probe = Callable[[], str]
"""Returns why the probe fails, or an empty text."""


class SmallServer(ThreadingHTTPServer):
    """Listens on an address of IPv4 or IPv6. `pages` maps paths to pages."""

    daemon_threads = True

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.pages = pages
        super().__init__((host, port), Handler)

    @property
    def url(self) -> str:
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that disconnect before the answer. After any other error, the client gets no answer."""
        if not isinstance(sys.exception(), OSError):
            log.exception("an answer failed because of an internal error", extra={"event": "answer_failed"})


class Handler(BaseHTTPRequestHandler):
    """Answers requests for the pages of its server."""

    timeout = 5.0  # seconds for the request, so that a silent client does not hold a thread for ever
    server: SmallServer

    def do_GET(self) -> None:
        pages = self.server.pages
        page = pages.get(urlsplit(self.path).path)
        if page is None:
            self.send_error(404, f"only {' and '.join(pages)} {'is' if len(pages) == 1 else 'are'} served here")
            return
        status, media_type, text = page(self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_HEAD = do_GET  # noqa: N815 - the name is http.server's

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        log.debug(format, *args, extra={"event": "request"})


@contextmanager
def serving(name: str, host: str | None, port: int | None, pages: Mapping[str, Page]) -> Iterator[str]:
    """Serves the pages within the block, if a port is given. Yields the address, or "" without a port.

    Port 0 picks a free port. Forks of this process do not keep the port. Raises BadInput or ConfigurationError, which
    names the option: `--NAME-host` or `--NAME-port`.
    """
    if port is None:
        if host is not None:
            raise BadInput(f"--{name}-host", host, f"needs a port; add --{name}-port")
        yield ""
        return
    host = host or HERE
    try:
        server = SmallServer(host, port, pages)
    except OSError as error:
        problem = f"{port} on {host} cannot be opened ({error.strerror or error})"
        raise ConfigurationError(f"--{name}-port: {problem}; choose another") from None
    os.register_at_fork(after_in_child=server.socket.close)
    threading.Thread(target=server.serve_forever, args=(POLL,), name=f"ticker-{name}", daemon=True).start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def serving_probes(host: str | None, port: int | None, live: Probe, ready: Probe) -> Iterator[None]:
    """Answers `/livez` and `/readyz` within the block, for an orchestrator outside systemd, if a port is given.

    `/livez` fails only for what a restart of the process cures. `/readyz` fails while the process cannot do its work.
    """
    with serving("health", host, port, {"/livez": probed(live), "/readyz": probed(ready)}) as url:
        if url:
            log.info("probes at %s/livez and /readyz", url, extra={"event": "probes_served"})
        yield


def probed(probe: Probe) -> Page:
    """Returns a page that answers with 200 and `ok`, or with 503 and the reason."""

    def page(_: str) -> tuple[int, str, bytes]:
        problem = probe()
        return 503 if problem else 200, "text/plain; charset=utf-8", f"{problem or 'ok'}\n".encode()

    return page
