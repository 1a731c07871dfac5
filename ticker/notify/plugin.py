"""Channels of anybody's: a Python entry point of the group `ticker.notices`, a callable that takes the notice as a dict.

It is loaded by the ticker, at its start, and called in the channel's own thread: one that hangs holds up this channel
alone.
"""

import inspect
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from ticker.errors import ConfigurationError, quoted
from ticker.notify import message
from ticker.notify.message import Notice
from ticker.settings import CHANNELS

GROUP = "ticker.notices"


class EntryPoint:
    """Calls the function; whatever it returns is success, whatever it raises is not."""

    def __init__(self, name: str, function: Callable[[dict[str, Any]], object]) -> None:
        self.name = name
        self._function = function

    def deliver(self, notice: Notice) -> str:
        self._function(message.data(notice))
        return "took it"


def load(name: str) -> EntryPoint:
    """ConfigurationError where there is none of that name, or it cannot be loaded or called."""
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        raise ConfigurationError(
            f"TICKER_NOTIFY: {quoted(name)} is not a channel; write {', '.join(CHANNELS)}, or the name of an"
            f" installed entry point of the group {GROUP}"
        )
    try:
        function = found.load()
    except Exception as error:
        raise ConfigurationError(
            f"TICKER_NOTIFY: the entry point {name} ({quoted(found.value)}) cannot be loaded:"
            f" {message.printable(f'{type(error).__name__}: {error}', 200)}"
        ) from error
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"TICKER_NOTIFY: the entry point {name} ({quoted(found.value)}) is no plain function;"
            " write one that takes a dict"
        )
    return EntryPoint(name, function)
