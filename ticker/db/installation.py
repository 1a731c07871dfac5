"""Identifies the installation of the tables, and lets another installation adopt them.

The tables carry a mark: the cluster's system identifier, the database's oid and the oid of the table `installation`.
The mark survives the promotion of a standby, but not a dump or a copy. The id of every job contains the installation's
short id.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ticker import clock
from ticker.db import sql
from ticker.errors import ConfigurationError

ROWS_AT_A_TIME = 2_000  # 2,000 waiting tasks take 0.5 s on a busy machine; PostgreSQL ends a statement after 5 s


class Installation(NamedTuple):
    """The installation's row. `is_here` means that its mark matches this database. `taken_from` names the schedulers whose
    entries were taken over.
    """

    id: str
    environment: str
    is_here: bool
    taken_from: Sequence[str] = ()

    @property
    def in_words(self) -> str:
        return f"the environment {self.environment!r}" if self.environment else "an installation without an environment"


class Adopted(NamedTuple):
    """The result of `adopt`. `former` and `id` are the installations before and after."""

    former: str
    id: str
    dropped: int
    lost: int


def read(execute: sql.Execute) -> Installation:
    """Reads the row in one statement. Tables without a row count as foreign, because they have no mark to compare."""
    rows = execute("installation")
    return Installation(**rows[0]) if rows else Installation("", "", False)


def foreign(row: Installation, environment: str = "") -> str:
    """Returns why these tables must not be used, or an empty string if they may be used. `environment` is
    TICKER_ENVIRONMENT.
    """
    if not row.is_here:
        why = "DATABASE_URL: these tables belong to another installation (restored, copied or moved by pg_upgrade)"
    elif environment and environment != row.environment:
        why = f"DATABASE_URL: these tables belong to {row.in_words}, and TICKER_ENVIRONMENT is {environment!r}"
    else:
        return ""
    return (
        f'{why}: check that DATABASE_URL is right; if it is, run "ticker db adopt" to take them over with all tasks paused, or '
        '"ticker db adopt --resume" after a restore of the same production system'
    )


def check(row: Installation, environment: str = "") -> None:
    """Raises ConfigurationError if the tables belong to another installation."""
    if sentence := foreign(row, environment):
        raise ConfigurationError(sentence)


def adopt(connection: Any, schema: str, environment: str, *, resume: bool, force: bool) -> Adopted:
    """Takes over the tables under a new id. Pauses all tasks unless `resume`.

    Until the last step, they belong to the former installation. So an interrupted call may be repeated, and nothing
    starts on half-adopted tables.

    Raises ConfigurationError if they are ours already, or, unless `force`, if a ticker or a worker may be at work on
    them.
    """
    execute = sql.on(connection, schema)
    here, now = read(execute), clock.now()
    if not foreign(here, environment):
        raise ConfigurationError(
            f"these tables already belong to this installation ({here.id}): there is nothing to adopt"
        )
    if not force and (signs := execute("signs_of_life", now=now)):
        raise ConfigurationError(_in_use(here.id, **signs[0]))
    former = here.id or "unknown"
    batch = {"resume": resume, "now": now, "limit": ROWS_AT_A_TIME}
    if not resume:
        execute("silence")
    lost, after, dropped = 0, 0, 0
    while rows := execute("adopt_runs", reason=f"its worker belongs to installation {former}", **batch):
        lost += sum(row["outcome"] == "lost" for row in rows)
    while after is not None:
        [row] = execute("adopt_tasks", after=after, **batch)
        after, dropped = row["last"], dropped + row["dropped"]
    [instant] = execute("instant", now=now)
    execute("open_pauses", now=instant["now"])  # otherwise, a pause that has ended would count as ours
    marked = execute(
        "adopt", former=here.id, environment=environment or here.environment, now=now, resume=resume,
        reason=f"since {instant['now']:%Y-%m-%d %H:%M:%SZ}, when the tables of installation {former} were adopted",
        words=f"the tables of installation {former}" + ("" if resume else "; all tasks were paused"),
    )  # fmt: skip
    if not marked:
        raise ConfigurationError("another call has just adopted these tables: there is nothing to adopt")
    return Adopted(here.id, marked[0]["id"], dropped, lost)


def _in_use(id_: str, what: str, ago: int, wait: int) -> str:
    return (
        f"DATABASE_URL: {what} {ago} s ago on these tables: check that DATABASE_URL is right; if it is, stop the tickers and"
        f" workers of installation {id_}; if they are gone, as in the snapshot of a disk, wait {wait} s, or pass --force"
    )
