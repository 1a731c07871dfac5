"""Whose tables these are, and how another installation takes them over.

The tables carry a mark: the cluster's system identifier, the database's oid and the oid of the table `installation`. It
survives the promotion of a standby, and neither a dump nor a copy. The installation's short id is in the id of every job.
"""

from typing import Any, NamedTuple

from ticker import clock, sql
from ticker.errors import ConfigurationError

ROWS_AT_A_TIME = 2_000  # 0.5 s of tasks to pause, on a busy machine; PostgreSQL ends a statement after 5 s


class Installation(NamedTuple):
    """The row of the tables. `is_here`: the mark is that of the database in which it stands."""

    id: str
    environment: str
    is_here: bool


class Adopted(NamedTuple):
    """What `adopt` did. `former` and `id`: the installations before and since."""

    former: str
    id: str
    paused: int
    dropped: int
    lost: int


def read(execute: sql.Execute) -> Installation:
    """One statement. Tables without the row are another's, too: its mark cannot be compared."""
    rows = execute("installation")
    return Installation(**rows[0]) if rows else Installation("", "", False)


def foreign(found: Installation, environment: str = "") -> str:
    """Why these tables are not to be worked on, in a sentence; empty where they are. `environment`: TICKER_ENVIRONMENT."""
    if not found.is_here:
        why = "DATABASE_URL: these tables belong to another installation (restored, copied or moved by pg_upgrade)"
    elif environment and environment != found.environment:
        known = f"the environment {found.environment!r}" if found.environment else "an installation without environment"
        why = f"DATABASE_URL: these tables belong to {known}, and TICKER_ENVIRONMENT is {environment!r}"
    else:
        return ""
    return (
        f'{why}: run "ticker db adopt" to take them over with all tasks paused, or "ticker db adopt --resume" after a '
        "restore of the same production"
    )


def check(found: Installation, environment: str = "") -> None:
    """ConfigurationError on tables that are another's."""
    if sentence := foreign(found, environment):
        raise ConfigurationError(sentence)


def adopt(connection: Any, schema: str, environment: str, *, resume: bool) -> Adopted:
    """Takes the tables over under a new id. Until the last step they stay another's, so that an interrupted call may be
    repeated, and nothing starts on half of them. ConfigurationError where they are ours already."""
    execute = sql.on(connection, schema)
    found = read(execute)
    if not foreign(found, environment):
        raise ConfigurationError(
            f"these tables belong to this installation ({found.id}) already: there is nothing to adopt"
        )
    now, former = clock.now(), found.id or "unknown"
    batch = {"resume": resume, "now": now, "limit": ROWS_AT_A_TIME}
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
    marked = execute("adopt", former=found.id, environment=environment or found.environment, words=words, now=now)
    if not marked:
        raise ConfigurationError("another call has adopted these tables meanwhile: there is nothing to adopt")
    return Adopted(found.id, marked[0]["id"], paused, dropped, lost)
