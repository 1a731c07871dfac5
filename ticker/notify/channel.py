"""Defines the interface of channels, which deliver a notice or report why they could not.

A channel of your own is an entry point of a package: see `plugin`. A built-in channel is a class in this package,
listed in its `__init__`.
"""

from typing import Protocol

from ticker.notify.message import Notice


class Channel(Protocol):
    """A way to send notices. It is used by one thread at a time."""

    name: str

    def deliver(self, notice: Notice) -> str:
        """Delivers a notice and returns the answer.

        Any exception means that delivery failed. Its text must not contain secrets.
        """


class NotDelivered(Exception):
    """Raised if the other side did not accept the notice. The text contains the other side's answer."""
