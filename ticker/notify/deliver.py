"""Takes notices to their channel: one thread for each, with its own connection, next to the ticks and never in one.

A channel that hangs or fails holds up nobody: not the ticks, not the other channels. After a failure it is left alone for
a while, so that a dead endpoint costs one try in 30 s, however many notices wait for it.
"""

import logging
import threading
from collections.abc import Sequence
from datetime import datetime

from ticker.db.sql import Row
from ticker.errors import TickerError
from ticker.notify.channel import Channel
from ticker.notify.message import printable
from ticker.notify.outbox import Claimed, Outbox

log = logging.getLogger("ticker.notify")

IDLE = 2.0  # seconds between two looks for notices
AFTER_FAILURE = 30.0  # seconds that a channel is left alone
WITHOUT_DATABASE = 5.0  # seconds


class Notifier(threading.Thread):
    """One channel's thread, until `stopping`; without a channel it only sees that events are not kept for one."""

    def __init__(
        self, channel: Channel | None, channels: Sequence[str], outbox: Outbox, stopping: threading.Event
    ) -> None:
        self.channel_name = channel.name if channel else "none"
        super().__init__(name=f"ticker-notify-{self.channel_name}", daemon=True)
        self._channel, self._channels, self._outbox, self._stopping = channel, tuple(channels), outbox, stopping
        self._trouble = ""
        self._arrived: Claimed | None = None

    def run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = self.try_round()
        self._outbox.close()

    def try_round(self) -> float:
        """Seconds until the next round. Nothing that a round raises leaves here."""
        try:
            return self.round()
        except TickerError as error:
            self._is("notices of channel %s wait: %s", printable(str(error)))
        except Exception as error:  # an error of our own: the thread goes on, and says it once
            self._is("notices of channel %s wait, on an error of the ticker's own: %s", printable(repr(error)), error)
        return WITHOUT_DATABASE

    def round(self, now: datetime | None = None) -> float:
        """Makes notices of new events, gives old ones up, and delivers what is due; seconds until the next round."""
        self._settle()
        while self._outbox.fill(self._channels, now) and not self._stopping.is_set():
            pass
        self._give_up(now)
        while not self._stopping.is_set():
            claimed = self._outbox.claim(self._channel.name, now) if self._channel else None
            if claimed is None:
                return IDLE
            if not self._deliver(claimed, now):
                return AFTER_FAILURE
        return 0.0

    def _deliver(self, claimed: Claimed, now: datetime | None) -> bool:
        assert self._channel is not None
        try:
            self._channel.deliver(claimed.notice)
        except BaseException as error:  # a function of anybody's may also call sys.exit()
            self._failed(claimed, in_words(error), now)
            return False
        self._arrived = claimed
        self._settle()
        self._is("")
        return True

    def _settle(self) -> None:
        """Notes what has arrived; again in the next round, if the database went away just then."""
        if self._arrived is not None:
            self._outbox.remove(self._arrived)
            self._arrived = None

    def _failed(self, claimed: Claimed, error: str, now: datetime | None) -> None:
        self._is("channel %s fails: %s; notices wait and are tried again (ticker notices)", error)
        self._outbox.set_back(claimed, error, now)

    def _give_up(self, now: datetime | None) -> None:
        """Before anything is claimed: after an outage of days, nobody wants a storm of what was."""
        while not self._stopping.is_set() and (old := self._outbox.give_up(now)):
            for channel in sorted({row["channel"] for row in old}):
                _warn_of(channel, [row for row in old if row["channel"] == channel])

    def _is(self, trouble: str, words: str = "", error: Exception | None = None) -> None:
        """Logs when trouble begins, changes its kind, or ends; not each time."""
        if trouble and trouble != self._trouble:
            log.warning(trouble, self.channel_name, words, exc_info=error)
        elif not trouble and self._trouble:
            log.info("channel %s works again", self.channel_name)
        self._trouble = trouble


def _warn_of(channel: str, given_up: Sequence[Row]) -> None:
    events = [row["event_id"] for row in given_up]
    error = next((row["error"] for row in given_up if row["error"]), "none")
    log.warning(
        "notices older than three days given up on channel %s: %s, of the events %s to %s; an error of theirs: %s",
        channel, len(given_up), min(events), max(events), error,
    )  # fmt: skip


def in_words(error: BaseException) -> str:
    """One line of at most 300 characters, for the log and `ticker notices`."""
    words = str(error) or type(error).__name__
    named = isinstance(error, OSError) or type(error).__name__ in ("NotDelivered", words)
    return printable(words if named else f"{type(error).__name__}: {words}", 300)
