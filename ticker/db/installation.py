"""Identifies the installation of the tables, and lets another installation adopt them.

The tables carry a mark: the cluster's system identifier, the database's oid and the oid of the table `installation`. The mark
survives the promotion of a standby, but not a dump or a copy. The id of every job contains the installation's short id.
"""

from typing import Any, NamedTuple

from ticker import clock
from ticker.db import sql
from ticker.errors import ConfigurationError

ROWS_AT_A_TIME = 2_000  # pausing so many tasks takes 0.5 s on a busy machine; PostgreSQL ends a statement after 5 s


class Installation(NamedTuple):
    """The installation's row. `is_here` means that its mark matches this database."""

    id: str
    environment: str
    is_here: bool

    @property
    def owner(self) -> str:
        return f"the environment {self.environment!r}" if self.environment else "an installation without an environment"


class Adopted(NamedTuple):
    """The result of `adopt`. `former` and `id` are the installations before and after."""

    former: str
    id: str
    paused: int
    dropped: int
    lost: int


def read(execute: sql.Execute) -> Installation:
    """Reads the row in one statement. Tables without a row count as foreign, because they have no mark to compare."""
    rows = execute("installation")
    return Installation(**rows[0]) if rows else Installation("", "", False)


def foreign(row: Installation, environment: str = "") -> str:
    """Returns why these tables must not be used, or an empty string if they may be used. `environment` is TICKER_ENVIRONMENT."""
    if not row.is_here:
        why = "DATABASE_URL: these tables belong to another installation (restored, copied or moved by pg_upgrade)"
    elif environment and environment != row.environment:
        why = f"DATABASE_URL: these tables belong to {row.owner}, and TICKER_ENVIRONMENT is {environment!r}"
    else:
        return ""
    return (
        f'{why}: run "ticker db adopt" to take them over with all tasks paused, or "ticker db adopt --resume" after a '
        "restore of the same production system"
    )


def check(row: Installation, environment: str = "") -> None:
    """Raises ConfigurationError if the tables belong to another installation."""
    if sentence := foreign(row, environment):
        raise ConfigurationError(sentence)


def adopt(connection: Any, schema: str, environment: str, *, resume: bool) -> Adopted:
    """Takes over the tables under a new id. Raises ConfigurationError if they are ours already.

    Until the last step, they belong to the former installation. So an interrupted call may be repeated, and nothing
    starts on half-adopted tables.
    """
    execute = sql.on(connection, schema)
    here = read(execute)
    if not foreign(here, environment):
        raise ConfigurationError(
            f"these tables already belong to this installation ({here.id}): there is nothing to adopt"
        )
    now, former = clock.now(), here.id or "unknown"
    batch = {"resume": resume, "now": now, "limit": ROWS_AT_A_TIME}
    while execute("apply_changes", limit=ROWS_AT_A_TIME)[0]["count"]:
        pass
    execute("adopt_minutes")
    if not resume:
        execute("silence")
    lost, after, paused, dropped = 0, 0, 0, 0
    while rows := execute("adopt_runs", reason=f"its worker belongs to installation {former}", **batch):
        lost += sum(row["outcome"] == "lost" for row in rows)
    since = (now or clock.python_utc()).strftime("%Y-%m-%d %H:%M:%SZ")
    reason = f"since {since}, when the tables of installation {former} were adopted"
    while after is not None:
        [row] = execute("adopt_tasks", after=after, reason=reason, **batch)
        after, paused, dropped = row["last"], paused + row["paused"], dropped + row["dropped"]
    words = f"the tables of installation {former}; {paused} tasks were paused"
    marked = execute("adopt", former=here.id, environment=environment or here.environment, words=words, now=now)
    if not marked:
        raise ConfigurationError("another call has just adopted these tables: there is nothing to adopt")
    return Adopted(here.id, marked[0]["id"], paused, dropped, lost)
