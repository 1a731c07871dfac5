"""Serves `/livez` and `/readyz` of a process over HTTP, for an orchestrator outside systemd.

`/livez` fails only for what a restart of the process cures. `/readyz` fails while the process cannot do its work.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from ticker.errors import BadInput, ConfigurationError

log = logging.getLogger("ticker")

HERE = "127.0.0.1"
POLL = 0.1  # seconds until the server notices that it should stop

Probe = Callable[[], str]
"""Returns why the probe fails, or an empty text."""


class Server(ThreadingHTTPServer):
    """Answers the probes, with a thread for each request."""

    daemon_threads = True

    def __init__(self, host: str, port: int, probes: dict[str, Probe]) -> None:
        self.probes = probes
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that disconnect before the answer. An error of a probe reaches the client as no answer."""


class Handler(BaseHTTPRequestHandler):
    """Answers with 200 and `ok`, or with 503 and the reason."""

    server: Server
    timeout = 5.0  # seconds for the request, so that a silent client does not hold a thread for ever

    def do_GET(self) -> None:
        probe = self.server.probes.get(urlsplit(self.path).path)
        if probe is None:
            self.send_error(404, f"only {' and '.join(self.server.probes)} are served here")
            return
        problem = probe()
        text = f"{problem or 'ok'}\n".encode()
        self.send_response(503 if problem else 200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_HEAD = do_GET  # noqa: N815 - the name is http.server's

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        log.debug(format, *args, extra={"event": "request"})


@contextmanager
def serving(host: str | None, port: int | None, live: Probe, ready: Probe) -> Iterator[None]:
    """Answers the probes within the block, if a port is given. Port 0 picks a free port, which the log names.

    Forks of this process do not keep the port. Raises BadInput or ConfigurationError, which names the option.
    """
    if port is None:
        if host is not None:
            raise BadInput("--health-host", host, "needs a port; add --health-port")
        yield
        return
    server = opened(host or HERE, port, {"/livez": live, "/readyz": ready})
    os.register_at_fork(after_in_child=server.socket.close)
    threading.Thread(target=server.serve_forever, args=(POLL,), name="ticker-probes", daemon=True).start()
    name = str(server.server_address[0])
    log.info(
        "probes at http://%s:%s/livez and /readyz",
        f"[{name}]" if ":" in name else name,
        server.server_address[1],
        extra={"event": "probes_served"},
    )
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def opened(host: str, port: int, probes: dict[str, Probe]) -> Server:
    try:
        return Server(host, port, probes)
    except OSError as error:
        raise ConfigurationError(
            f"--health-port: {port} on {host} cannot be opened ({error.strerror or error}); choose another"
        ) from None
