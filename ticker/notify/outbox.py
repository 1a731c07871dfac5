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
from ticker.notify.message import NOTIFIED, Notice

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
    def wait(self) -> timedelta:
        """The time until the next try: 30 s, doubled each time, up to an hour."""
        return min(FIRST_WAIT * (1 << min(self.tries - 1, 20)), LONGEST_WAIT)


class Outbox:
    """Runs each statement in a short transaction, on the outbox's own connection."""

    def __init__(self, url: str, schema: str) -> None:
        self._pool, self._schema = Pool(url, name="ticker notices"), schema
        self._host = socket.gethostname()

    def fill(self, channels: Sequence[str]) -> bool:
        """Turns each new event younger than `GIVEN_UP` into a notice per channel. Returns whether there may be more."""
        kinds = [*map(str, NOTIFIED)]
        rows = self._execute("make_notices", channels=list(channels), kinds=kinds, after=GIVEN_UP, limit=BATCH)
        return len(rows) == BATCH

    def claim(self, channel: str) -> Claimed | None:
        """Claims the next due notice of the channel, if any. Notices of one task keep the order of their events."""
        rows = self._execute("claim_notice", channel=channel, lease=LEASE)
        if not rows:
            return None
        values = dict(rows[0])
        tries = values.pop("tries")
        return Claimed(Notice(**values, host=self._host, schema=self._schema), channel, tries)

    def remove(self, claimed: Claimed) -> None:
        """Removes a delivered notice."""
        self._execute("remove_notice", event_id=claimed.notice.id, channel=claimed.channel)

    def set_back(self, claimed: Claimed, error: str) -> None:
        event_id, channel = claimed.notice.id, claimed.channel
        self._execute("set_back_notice", event_id=event_id, channel=channel, error=error, wait=claimed.wait)

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
