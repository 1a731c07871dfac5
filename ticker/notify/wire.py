"""A connection that ends in time, whatever the other side does: never answers, or sends a byte a second."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ticker import clock

SECONDS = 5.0  # of one delivery: for connecting, TLS, and both directions together


@contextmanager
def connected(host: str, port: int, seconds: float = SECONDS) -> Iterator[tuple[socket.socket, threading.Event]]:
    """A TCP connection for so many seconds, and whether they are over; what fails from then on is a TimeoutError.

    A socket's own time-out begins anew with each byte, so a timer cuts the line, and it alone: two deadlines would
    race. What was read last may be half of an answer, as if the other side had hung up. Only the question for the host's
    address is not bounded here: the system's resolver has its own time-outs.
    """
    ends = clock.monotonic() + seconds
    wire = _connect(host, port, ends)
    late = threading.Event()
    with wire, socket.socket(fileno=os.dup(wire.fileno())) as handle:  # TLS takes `wire` over, the handle stays
        timer = threading.Timer(max(ends - clock.monotonic(), 0.0), _cut, [handle, late])
        timer.daemon = True
        timer.start()
        try:
            yield wire, late
        except Exception as error:
            if late.is_set() or isinstance(error, TimeoutError):
                raise TimeoutError(f"no answer within {seconds:g} s") from None
            raise
        finally:
            timer.cancel()


def _cut(handle: socket.socket, late: threading.Event) -> None:
    late.set()
    with suppress(OSError):  # it may have been closed just now
        handle.shutdown(socket.SHUT_RDWR)


def _connect(host: str, port: int, ends: float) -> socket.socket:
    """To the first address that answers; each has its share of the time, or a dead IPv6 route would use it all."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    problem: OSError = OSError("its name has no address")
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
