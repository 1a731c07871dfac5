"""The outbox is the database: events become notices, and a notice waits in its row until it has arrived.

No lock and no transaction is held while a notice is under way: claiming it moves its time on, by `LEASE`. A ticker that
dies meanwhile leaves a row that is claimed again after that.
"""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

import psycopg

from ticker.db import connections, sql
from ticker.notify.message import NOTIFIED, Notice

BATCH = 1000  # events that are looked through at a time
LEASE = timedelta(minutes=2)  # a delivery takes 5 s at most; an entry point may take its time
FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=30), timedelta(hours=1)
GIVEN_UP = timedelta(days=3)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A notice that is ours until `LEASE` has passed; `tries` counts this one."""

    notice: Notice
    channel: str
    tries: int

    @property
    def wait(self) -> timedelta:
        """Until the next try: 30 s, doubled each time, up to an hour."""
        return min(FIRST_WAIT * (1 << min(self.tries - 1, 20)), LONGEST_WAIT)


class Outbox:
    """The statements, each in a short transaction on a connection of its own. `now` is None but for tests."""

    def __init__(self, url: str, schema: str) -> None:
        self._url, self._schema = url, schema
        self._host = socket.gethostname()
        self._connection: psycopg.Connection[Any] | None = None

    def fill(self, channels: Sequence[str], now: datetime | None = None) -> bool:
        """Turns new events into a notice for each channel, but for those older than `GIVEN_UP`; whether there may be more."""
        kinds = [*map(str, NOTIFIED)]
        rows = self._execute("make_notices", channels=list(channels), kinds=kinds, after=GIVEN_UP, limit=BATCH, now=now)
        return len(rows) == BATCH

    def claim(self, channel: str, now: datetime | None = None) -> Claimed | None:
        """The next notice of the channel that is due. Those of one task come in the order of their events."""
        rows = self._execute("claim_notice", channel=channel, lease=LEASE, now=now)
        if not rows:
            return None
        values = dict(rows[0])
        tries = values.pop("tries")
        return Claimed(Notice(**values, host=self._host, schema=self._schema), channel, tries)

    def remove(self, claimed: Claimed) -> None:
        """It has arrived."""
        self._execute("remove_notice", event_id=claimed.notice.id, channel=claimed.channel)

    def set_back(self, claimed: Claimed, error: str, now: datetime | None = None) -> None:
        event_id, channel = claimed.notice.id, claimed.channel
        self._execute("set_back_notice", event_id=event_id, channel=channel, error=error, wait=claimed.wait, now=now)

    def give_up(self, now: datetime | None = None) -> list[sql.Row]:
        """Removes notices older than `GIVEN_UP`, of every channel, `BATCH` at most: their event_id, channel, and error."""
        return self._execute("remove_old_notices", after=GIVEN_UP, limit=BATCH, now=now)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _execute(self, statement: str, **values: Any) -> list[sql.Row]:
        with self._transaction() as execute:
            return execute(statement, **values)

    @contextmanager
    def _transaction(self) -> Iterator[sql.Execute]:
        with connections.translated():
            if self._connection is None or self._connection.closed:
                self._connection = connections.connect(self._url, name="ticker notices")
            try:
                with self._connection.transaction():
                    yield sql.on(self._connection, self._schema)
            except psycopg.Error:
                self.close()
                raise


def waiting(db: Any, schema: str, limit: int) -> list[dict[str, Any]]:
    """What has not arrived yet, the oldest first: event, channel, tries, the last error, and when the next try is."""
    return cast(list[dict[str, Any]], [dict(row) for row in sql.on(db, schema)("waiting_notices", limit=limit)])
