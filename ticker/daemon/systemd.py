"""Reports the ticker's state to systemd: started, alive or stopping, and what the last tick did. Needs no library.

systemd sets two environment variables: where it listens (NOTIFY_SOCKET), and after how long it considers a silent
service dead (WATCHDOG_USEC). If they are not set, nothing is sent.
"""

import logging
import math
import os
import socket
from collections.abc import Mapping

from ticker import clock

log = logging.getLogger("ticker")

PATIENCE = 1.0  # seconds for one message: systemd accepts it at once, or is not there


class Systemd:
    """The ticker as a systemd service. Raises nothing, because a tick does not depend on systemd."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._address = address(environ.get("NOTIFY_SOCKET", ""))
        self._every = half_of_watchdog(environ)
        self._next_ping = -math.inf
        self._status = ""
        self._deaf = False

    def begun(self) -> None:
        self._send("READY=1")

    def ends(self) -> None:
        self._send("STOPPING=1\nSTATUS=stopping")

    def report(self, alive: bool, status: str) -> float:
        """Sends a new status, and a watchdog ping if one is due and the ticker is `alive`.

        Returns the number of seconds within which the next call is due.
        """
        if self._address is None:
            return math.inf
        status = " ".join(status.split())  # a line of the message is a field
        if status != self._status:
            self._status = status
            self._send(f"STATUS={status}")
        if self._every is None or not alive:
            return math.inf
        if clock.monotonic() >= self._next_ping:
            self._next_ping = clock.monotonic() + self._every
            self._send("WATCHDOG=1")
        return max(self._next_ping - clock.monotonic(), 0.0)

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as wire:
                wire.settimeout(PATIENCE)
                wire.sendto(message.encode(), self._address)
            self._deaf = False
        except OSError as error:
            if not self._deaf:
                log.warning(
                    "systemd (NOTIFY_SOCKET) does not receive our messages: %s",
                    error.strerror or error,
                    extra={"event": "systemd_unreachable"},
                )
            self._deaf = True


def address(text: str) -> str | None:
    """Returns a path, or a name in the abstract namespace, which systemd writes with an @. Returns None for anything
    else.
    """
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else None


def half_of_watchdog(environ: Mapping[str, str]) -> float | None:
    """Returns the seconds between two pings, or None if systemd expects none: the variables may be meant for our
    parent.
    """
    microseconds = environ.get("WATCHDOG_USEC", "")
    meant_for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    if not meant_for_us or not microseconds.isascii() or not microseconds.isdigit() or len(microseconds) > 18:
        return None
    return int(microseconds) / 2e6 or None
