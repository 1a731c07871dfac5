"""Loads user-defined channels: entry points in the group `ticker.notices`, each a callable that takes a dict.

The ticker loads a channel when it starts and calls it in a separate thread, so that a channel that hangs delays only
itself.
"""

import inspect
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from ticker.errors import ConfigurationError, quoted
from ticker.notify import message
from ticker.notify.message import Notice
from ticker.settings import ANY_CHANNEL, CHANNEL_GROUP


class EntryPoint:
    """Calls the function. Any return value means success; any exception means failure."""

    def __init__(self, name: str, function: Callable[[dict[str, Any]], object]) -> None:
        self.name = name
        self._function = function

    def deliver(self, notice: Notice) -> str:
        self._function(message.data(notice))
        return "accepted"


def load(name: str) -> EntryPoint:
    """Loads a channel. Raises ConfigurationError if it does not exist, or if it cannot be loaded or called."""
    entry_point = next(iter(entry_points(group=CHANNEL_GROUP, name=name)), None)
    if entry_point is None:
        installed = ", ".join(sorted(entry_points(group=CHANNEL_GROUP).names)) or "none"
        raise ConfigurationError(
            f"TICKER_NOTIFY: {quoted(name)} is not a channel; write {ANY_CHANNEL}"
            f" (installed: {message.printable(installed, 200)})"
        )
    try:
        function = entry_point.load()
    except Exception as error:
        raise ConfigurationError(
            f"TICKER_NOTIFY: the entry point {name} ({quoted(entry_point.value)}) cannot be loaded:"
            f" {message.printable(f'{type(error).__name__}: {error}', 200)}"
        ) from error
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"TICKER_NOTIFY: the entry point {name} ({quoted(entry_point.value)}) is not a plain function;"
            " write one that takes a dict"
        )
    return EntryPoint(name, function)
