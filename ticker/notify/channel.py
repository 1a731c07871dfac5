"""What a channel is: something that delivers a notice, or says why it could not.

A channel of your own is an entry point of a package: see `plugin`. One of ours is a class here, named in the `__init__` of this room.
"""

from typing import Protocol

from ticker.notify.message import Notice


class Channel(Protocol):
    """One way to send notices. It is used by one thread at a time."""

    name: str

    def deliver(self, notice: Notice) -> str:
        """What was answered. Whatever it raises means: not delivered; its text is shown, so it holds no secret."""


class NotDelivered(Exception):
    """The other side answered, and did not take the notice; the text says what it answered."""
