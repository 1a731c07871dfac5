"""Tells systemd how the ticker is: it has begun, lives, ends, and what its last tick did. No library is needed for it.

systemd says in variables of its own, which are no settings of ours, where it listens (NOTIFY_SOCKET) and how soon it takes a
silent service for dead (WATCHDOG_USEC). Where they are not set, nothing is sent.
"""

import logging
import math
import os
import socket
from collections.abc import Mapping

from ticker import clock

log = logging.getLogger("ticker")

PATIENCE = 1.0  # seconds for one message: systemd takes it at once, or is not there


class Systemd:
    """One service. Nothing is raised: whether systemd hears is no concern of a tick's."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = address(environ.get("NOTIFY_SOCKET", ""))
        self._every = half_of_watchdog(environ)
        self._next_ping = -math.inf
        self._status = ""
        self._deaf = False

    def begun(self) -> None:
        self._send("READY=1")

    def ends(self) -> None:
        self._send("STOPPING=1\nSTATUS=stopping")

    def look(self, alive: bool, status: str) -> float:
        """Says what is new, and that all is well when it is time to and `alive` holds. Seconds until it wants to be asked
        again, at most."""
        if self._address is None:
            return math.inf
        self._show(" ".join(status.split()))  # a line of the message is a field
        if self._every is None or not alive:
            return math.inf
        if clock.monotonic() >= self._next_ping:
            self._next_ping = clock.monotonic() + self._every
            self._send("WATCHDOG=1")
        return max(self._next_ping - clock.monotonic(), 0.0)

    def _show(self, status: str) -> None:
        if status != self._status:
            self._status = status
            self._send(f"STATUS={status}")

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
                log.warning("systemd (NOTIFY_SOCKET) does not hear us: %s", error.strerror or error)
            self._deaf = True


def address(text: str) -> str | None:
    """A path, or a name in the abstract space, which systemd writes with an @; None for what is no socket of this host."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else None


def half_of_watchdog(environ: Mapping[str, str]) -> float | None:
    """Seconds between two pings; None where nobody waits for ours: the variables may be meant for our parent."""
    microseconds = environ.get("WATCHDOG_USEC", "")
    meant_for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    if not meant_for_us or not microseconds.isascii() or not microseconds.isdigit() or len(microseconds) > 18:
        return None
    return int(microseconds) / 2e6 or None
