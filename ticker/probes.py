"""Serves `/livez` and `/readyz` of a process over HTTP, for an orchestrator outside systemd.

`/livez` fails only for what a restart of the process cures. `/readyz` fails while the process cannot do its work.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from ticker.errors import BadInput
from ticker.small_server import SmallHandler, SmallServer, opened, running

log = logging.getLogger("ticker")

HERE = "127.0.0.1"

Probe = Callable[[], str]
"""Returns why the probe fails, or an empty text."""


class Server(SmallServer):
    """Answers the probes."""

    def __init__(self, host: str, port: int, probes: dict[str, Probe]) -> None:
        self.probes = probes
        super().__init__(host, port, Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that disconnect before the answer. An error of a probe reaches the client as no answer."""


class Handler(SmallHandler):
    """Answers with 200 and `ok`, or with 503 and the reason."""

    server: Server

    def do_GET(self) -> None:  # noqa: N802 - the name is http.server's
        probe = self.server.probes.get(urlsplit(self.path).path)
        if probe is None:
            self.send_error(404, f"only {' and '.join(self.server.probes)} are served here")
            return
        problem = probe()
        self.answer(503 if problem else 200, "text/plain; charset=utf-8", f"{problem or 'ok'}\n".encode())

    do_HEAD = do_GET  # noqa: N815 - the name is http.server's


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
    probes = {"/livez": live, "/readyz": ready}
    server = opened("--health-port", host or HERE, port, lambda host, port: Server(host, port, probes))
    os.register_at_fork(after_in_child=server.socket.close)
    with running(server, "ticker-probes"):
        log.info("probes at %s/livez and /readyz", server.url, extra={"event": "probes_served"})
        yield
