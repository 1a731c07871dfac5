"""Delivers notices outside the ticks, in one thread for each channel, each with its own connection.

A channel that hangs or fails delays neither the ticks nor other channels. After a failure it pauses, so that a dead
endpoint costs one try every 30 s, however many notices are waiting.
"""

import logging
import threading
from collections.abc import Sequence

from ticker.db.sql import Row
from ticker.errors import TickerError
from ticker.notify.message import Channel, printable
from ticker.notify.outbox import Claimed, Outbox

log = logging.getLogger("ticker.notify")

IDLE = 2.0  # seconds between two checks for notices
AFTER_FAILURE = 30.0  # seconds that a channel pauses
WITHOUT_DATABASE = 5.0  # seconds


class Notifier(threading.Thread):
    """A thread that serves a channel until `stopping` is set. Without a channel, it only clears events."""

    def __init__(
        self, channel: Channel | None, channels: Sequence[str], outbox: Outbox, stopping: threading.Event
    ) -> None:
        self.channel_name = channel.name if channel else "none"
        super().__init__(name=f"ticker-notify-{self.channel_name}", daemon=True)
        self._channel, self._channels, self._outbox, self._stopping = channel, tuple(channels), outbox, stopping
        self._trouble = ""
        self._delivered: Claimed | None = None

    def run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = self.try_round()
        self._outbox.close()

    def try_round(self) -> float:
        """Runs a round and returns the seconds until the next one. Logs any exception that the round raises."""
        try:
            return self.round()
        except TickerError as error:
            self._log_change("notices of channel %s are waiting: %s", printable(str(error)))
        except Exception as error:  # an internal error: the thread continues, and logs it once
            self._log_change(
                "notices of channel %s are waiting because of an internal error: %s", printable(repr(error)), error
            )
        return WITHOUT_DATABASE

    def round(self) -> float:
        """Turns new events into notices, gives up old ones, and delivers those due. Returns the seconds until the next
        round.
        """
        self._remove_delivered()
        while self._outbox.fill(self._channels) and not self._stopping.is_set():
            pass
        self._give_up()
        while not self._stopping.is_set():
            claimed = self._outbox.claim(self._channel.name) if self._channel else None
            if claimed is None:
                return IDLE
            if not self._deliver(claimed):
                return AFTER_FAILURE
        return 0.0

    def _deliver(self, claimed: Claimed) -> bool:
        assert self._channel is not None
        try:
            self._channel.deliver(claimed.notice)
        except BaseException as error:  # a user's function may also call sys.exit()
            words = in_words(error)
            self._log_change("channel %s fails: %s; its notices wait and are retried (ticker notify)", words)
            self._outbox.try_later(claimed, words)
            return False
        self._delivered = claimed
        self._remove_delivered()
        self._log_change("")
        return True

    def _remove_delivered(self) -> None:
        """Removes the delivered notice. If the database is unavailable, the next round tries again."""
        if self._delivered is not None:
            self._outbox.remove(self._delivered)
            self._delivered = None

    def _give_up(self) -> None:
        """Gives up old notices before any is claimed, so that a long outage is not followed by a flood of them."""
        while not self._stopping.is_set() and (old := self._outbox.give_up()):
            for channel in sorted({row["channel"] for row in old}):
                _warn_of(channel, [row for row in old if row["channel"] == channel])

    def _log_change(self, trouble: str, words: str = "", error: Exception | None = None) -> None:
        """Logs when trouble begins, changes or ends, but does not repeat itself."""
        if trouble and trouble != self._trouble:
            log.warning(trouble, self.channel_name, words, exc_info=error, extra={"event": "channel_failed"})
        elif not trouble and self._trouble:
            log.info("channel %s works again", self.channel_name, extra={"event": "channel_recovered"})
        self._trouble = trouble


def _warn_of(channel: str, given_up: Sequence[Row]) -> None:
    events = [row["event_id"] for row in given_up]
    error = next((row["error"] for row in given_up if row["error"]), "none")
    log.warning(
        "gave up notices older than three days on channel %s: %s, of events %s to %s; one of their errors: %s",
        channel, len(given_up), min(events), max(events), error, extra={"event": "notices_given_up"},
    )  # fmt: skip


def in_words(error: BaseException) -> str:
    """Describes the error in one line of at most 300 characters, for the log and `ticker notify`."""
    words = str(error) or type(error).__name__
    named = isinstance(error, OSError) or type(error).__name__ in ("NotDelivered", words)
    return printable(words if named else f"{type(error).__name__}: {words}", 300)
