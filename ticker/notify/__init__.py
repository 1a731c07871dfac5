"""Sends a notification when a task fails, recovers, is paused by the ticker, or has had no success for too long.

Read `deliver.Notifier.round` first. The setting TICKER_NOTIFY names the channels.
"""

import socket
import threading
from collections.abc import Iterable

from ticker import clock
from ticker.errors import ConfigurationError, quoted
from ticker.notify import plugin
from ticker.notify.channel import Channel, NotDelivered
from ticker.notify.deliver import Notifier, in_words
from ticker.notify.log import Log
from ticker.notify.mail import Mail
from ticker.notify.message import NOTIFIED, Notice, trial
from ticker.notify.outbox import Outbox, waiting
from ticker.notify.webhook import Webhook
from ticker.settings import CHANNELS, Settings

__all__ = ["channels", "start", "stop", "try_out", "waiting", "Channel", "Notice", "NotDelivered", "NOTIFIED"]


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
    notifiers = [
        Notifier(channel, settings.notify, Outbox(settings.require_database(), settings.schema), stopping)
        for channel in chosen or [None]
    ]
    for notifier in notifiers:
        notifier.start()
    return notifiers


def stop(notifiers: Iterable[Notifier], seconds: float) -> None:
    """Waits up to `seconds` for deliveries in progress. An unfinished delivery is repeated after its lease has expired."""
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
                name, TICKER_SMTP_URL=settings.smtp_url, TICKER_MAIL_FROM=settings.mail_from,
                TICKER_MAIL_TO=settings.mail_to,
            )  # fmt: skip
            return Mail(settings.smtp_url, settings.mail_from, settings.mail_to)
    if name in CHANNELS:
        raise ConfigurationError(
            f"TICKER_NOTIFY: {quoted(name)} is in CHANNELS of ticker.settings, but _channel in ticker/notify/__init__.py"
            " has no case for it"
        )
    return plugin.load(name)


def _needs(channel: str, **values: object) -> None:
    for variable, value in values.items():
        if not value:
            raise ConfigurationError(f"{variable} is not set, but TICKER_NOTIFY names {channel}")
