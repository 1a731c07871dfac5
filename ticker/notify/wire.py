"""Opens a connection whose deadline holds even if the other side never answers, or sends one byte a second."""

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ticker import clock

SECONDS = 5.0  # for one delivery: connecting, TLS, and both directions together


@contextmanager
def connected(host: str, port: int, *, secure: bool = False) -> Iterator[tuple[socket.socket, threading.Event]]:
    """Yields a connection for SECONDS, with TLS if `secure`, and an event that is set when the time is up. Errors then
    become TimeoutError.

    A socket's own timeout starts again with each byte, so only a timer cuts the connection: two deadlines would race.
    The last read may return half an answer, as if the other side had hung up. Resolving the host's name is not bounded
    here: the system's resolver has its own timeouts.
    """
    ends = clock.monotonic() + SECONDS
    wire = _connect(host, port, ends)
    late = threading.Event()
    with wire, socket.socket(fileno=os.dup(wire.fileno())) as handle:  # TLS takes over `wire`; the handle stays
        timer = threading.Timer(max(ends - clock.monotonic(), 0.0), _cut, [handle, late])
        timer.daemon = True
        timer.start()
        try:
            if secure:
                wire = ssl.create_default_context().wrap_socket(wire, server_hostname=host)
            with wire:
                yield wire, late
        except Exception as error:
            if late.is_set() or isinstance(error, TimeoutError):
                raise TimeoutError(f"no answer within {SECONDS:g} s") from None
            raise
        finally:
            timer.cancel()


def _cut(handle: socket.socket, late: threading.Event) -> None:
    late.set()
    with suppress(OSError):  # it may have been closed just now
        handle.shutdown(socket.SHUT_RDWR)


def _connect(host: str, port: int, ends: float) -> socket.socket:
    """Connects to the first address that answers. Each gets a share of the time: a dead IPv6 route would use it all."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    problem: OSError = OSError("the host name has no address")
    for left, (family, kind, protocol, _, address) in zip(range(len(addresses), 0, -1), addresses, strict=True):
        wire = socket.socket(family, kind, protocol)
        try:
            wire.settimeout(max((ends - clock.monotonic()) / left, 0.01))
            wire.connect(address)
        except OSError as error:
            wire.close()
            problem = TimeoutError("no connection in time") if isinstance(error, TimeoutError) else error
        else:
            wire.settimeout(None)
            return wire
    raise problem
