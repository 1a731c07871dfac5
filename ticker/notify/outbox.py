"""Keeps the outbox in the database: events become notices, and a notice waits in its row until it is delivered.

No lock or transaction is held during a delivery. Instead, claiming a notice postpones it by `LEASE`; if the ticker
dies, the notice is claimed again after that.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from ticker.db import sql
from ticker.db.connections import Pool
from ticker.model import EventKind
from ticker.notify.message import NOTIFIED, Digest, Notice

BATCH = 1000  # events examined at a time
LEASE = timedelta(minutes=2)  # a delivery takes at most 5 s, but an entry point may take longer
FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=30), timedelta(hours=1)
GIVEN_UP = timedelta(days=3)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A notice that is ours until `LEASE` has passed. `tries` includes this try."""

    notice: Notice
    channel: str
    tries: int

    @property
    def cause(self) -> str:
        return self.notice.digest.cause if self.notice.digest else ""

    @property
    def wait(self) -> timedelta:
        """The time until the next try: 30 s, doubled each time, up to an hour."""
        return min(FIRST_WAIT * (1 << min(self.tries - 1, 20)), LONGEST_WAIT)


class Outbox:
    """Runs each statement in a short transaction, on the outbox's own connection.

    The channels in `by_cause` get one notice for each cause. `page` is the address of the page, if it is known.
    """

    def __init__(self, url: str, schema: str, by_cause: Sequence[str] = (), page: str = "") -> None:
        self._by_cause, self._page = tuple(by_cause), page
        self._pool, self._schema = Pool(url, name="ticker notices"), schema
        self._host = socket.gethostname()

    def fill(self, channels: Sequence[str]) -> bool:
        """Turns each new event younger than `GIVEN_UP` into a notice per channel. Returns whether there may be more."""
        kinds = [*map(str, NOTIFIED)]
        names, by_cause = list(channels), list(self._by_cause)
        rows = self._execute(
            "make_notices", channels=names, by_cause=by_cause, kinds=kinds, after=GIVEN_UP, limit=BATCH
        )
        return len(rows) == BATCH

    def claim(self, channel: str) -> Claimed | None:
        """Claims the next due notice of the channel, if any. Notices of one task keep the order of their events."""
        rows = self._execute("claim_notice", channel=channel, lease=LEASE)
        digest = None
        if not rows and channel in self._by_cause:
            self._execute("note_causes", channel=channel)
            rows = self._execute("claim_cause", channel=channel, lease=LEASE)
        if not rows:
            return None
        values = dict(rows[0])
        tries = values.pop("tries")
        if "cause" in values:
            facts = {name: values.pop(name) for name in ("cause", "tasks", "paused", "series", "examples")}
            digest = Digest(**facts, page=f"{self._page}/tasks?state=failing" if self._page else "")
        return Claimed(Notice(**values, host=self._host, schema=self._schema, digest=digest), channel, tries)

    def remove(self, claimed: Claimed) -> None:
        """Removes a delivered notice. That of a cause stays, with what was sent."""
        event_id, channel, cause = claimed.notice.id, claimed.channel, claimed.cause
        if cause:
            fails = claimed.notice.what != EventKind.RECOVERED
            self._execute("keep_cause", event_id=event_id, channel=channel, cause=cause, fails=fails)
        else:
            self._execute("remove_notice", event_id=event_id, channel=channel)

    def try_later(self, claimed: Claimed, error: str) -> None:
        event_id, channel, cause, wait = claimed.notice.id, claimed.channel, claimed.cause, claimed.wait
        self._execute("try_notice_later", event_id=event_id, channel=channel, cause=cause, error=error, wait=wait)

    def give_up(self) -> list[sql.Row]:
        """Removes up to `BATCH` notices older than `GIVEN_UP`. Returns their event_id, channel and error."""
        return self._execute("remove_old_notices", after=GIVEN_UP, limit=BATCH)

    def close(self) -> None:
        self._pool.close()

    def _execute(self, statement: str, **values: Any) -> list[sql.Row]:
        with self._pool.connection() as connection:
            return sql.on(connection, self._schema)(statement, **values)


def waiting(db: Any, schema: str, limit: int) -> list[dict[str, Any]]:
    """Returns undelivered notices, oldest first, with event, channel, tries, last error and time of the next try."""
    return cast(list[dict[str, Any]], [dict(row) for row in sql.on(db, schema)("waiting_notices", limit=limit)])
