"""Sends a notification when a task fails, recovers, is paused by the ticker, or has had no success for too long.

Read `deliver.Notifier.round` first. The setting TICKER_NOTIFY names the channels.
"""

import inspect
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import entry_points
from typing import Any

from ticker import clock
from ticker.errors import ConfigurationError, quoted
from ticker.notify import message
from ticker.notify.deliver import Notifier, in_words
from ticker.notify.mail import Mail
from ticker.notify.message import Channel, Notice, trial
from ticker.notify.outbox import Outbox, waiting
from ticker.notify.webhook import Webhook
from ticker.settings import ANY_CHANNEL, CHANNEL_GROUP, Settings

__all__ = ["channels", "start", "stop", "try_out", "waiting", "Channel", "Notice"]

log = logging.getLogger("ticker.notify")


def channels(settings: Settings) -> list[Channel]:
    """Returns the channels that TICKER_NOTIFY names. Raises ConfigurationError if one lacks a setting or does not
    exist.
    """
    return [_channel(name, settings) for name in settings.notify]


def start(settings: Settings, stopping: threading.Event) -> list[Notifier]:
    """Starts a thread per channel or, without channels, one that only clears events. They end soon after `stopping` is
    set.
    """
    chosen: list[Channel | None] = [*channels(settings)]
    outbox = partial(
        Outbox, settings.require_database(), settings.schema, settings.notify_by_cause, settings.page_url.rstrip("/")
    )
    notifiers = [Notifier(channel, settings.notify, outbox(), stopping) for channel in chosen or [None]]
    for notifier in notifiers:
        notifier.start()
    return notifiers


def stop(notifiers: Iterable[Notifier], seconds: float) -> None:
    """Waits up to `seconds` for deliveries in progress. An unfinished one is repeated after its lease has expired."""
    ends = clock.monotonic() + seconds
    for notifier in notifiers:
        notifier.join(max(ends - clock.monotonic(), 0.0))


def try_out(channel: Channel, settings: Settings) -> tuple[bool, str]:
    """Sends a test notice. Returns whether it was delivered, and the answer or the error."""
    try:
        return True, channel.deliver(trial(clock.python_utc(), socket.gethostname(), settings.schema))
    except BaseException as error:  # a user's function may also call sys.exit()
        if isinstance(error, KeyboardInterrupt):
            raise
        return False, in_words(error)


def _channel(name: str, settings: Settings) -> Channel:
    match name:
        case "log":
            return Log()
        case "webhook":
            _needs(name, TICKER_WEBHOOK_URL=settings.webhook_url)
            return Webhook(settings.webhook_url, settings.webhook_keys)
        case "mail":
            _needs(
                name,
                TICKER_SMTP_URL=settings.smtp_url,
                TICKER_MAIL_FROM=settings.mail_from,
                TICKER_MAIL_TO=settings.mail_to,
            )
            return Mail(settings.smtp_url, settings.mail_from, settings.mail_to)
    return load(name)


def _needs(channel: str, **values: object) -> None:
    for variable, value in values.items():
        if not value:
            raise ConfigurationError(f"{variable} is not set, but TICKER_NOTIFY names {channel}")


class Log:
    """Writes one warning line to the ticker's own log."""

    name = "log"

    def deliver(self, notice: Notice) -> str:
        log.warning(
            "notice event=%s what=%s task=%s: %s",
            notice.id,
            notice.what,
            notice.task_id,
            f"{message.text(notice)} {notice.digest.page if notice.digest else ''}".rstrip(),
            extra={"event": "notice", "fields": {"event_id": notice.id}},
        )
        return "logged"


class EntryPoint:
    """A channel of your own: an entry point in the group `ticker.notices`, which is a callable that takes a dict.

    Any return value means success; any exception means failure. The function is called in a thread of its own, so that
    one that hangs delays only itself.
    """

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
