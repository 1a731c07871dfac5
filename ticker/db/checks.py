"""Checks PostgreSQL before a process starts work: version, encoding, role, clock, tables, revision and installation."""

import socket
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from ticker import clock
from ticker.db import connections, installation, sql
from ticker.db.installation import Installation
from ticker.errors import ConfigurationError
from ticker.schedules.duration import SECOND, words
from ticker.settings import Settings

VERSIONS = Path(__file__).parents[1] / "migrations" / "versions"
FROZEN = {
    "0001": "fb552ca96dd8b8402166fb8695c1c443cc3c80d1936bb3f3c9e49c4551704605",
    "0002": "fb552ca96dd8b8402166fb8695c1c443cc3c80d1936bb3f3c9e49c4551704605",
}
"""The revisions that no longer change, each with the digest of its `SHAPE`. The name of any other revision has a digest
of its SQL.
"""

WORTH_A_WARNING = timedelta(seconds=5)  # between this host's clock and the database's
REFUSED = timedelta(hours=1)  # the largest accepted difference
RIGHTS = {
    "tasks": ("SELECT", "UPDATE"),
    "runs": ("SELECT", "INSERT", "UPDATE"),
    "events": ("INSERT",),
    "limited_keys": ("SELECT", "UPDATE"),
    "slots": ("SELECT", "INSERT", "UPDATE"),
    "pauses": ("SELECT",),
}
"""The rights on the tables that ticker and worker need. A ticker also writes `tickers`, which its first tick checks."""
MINUTES = ("minutes", "hours")
RIGHTS_OF_TICKER = (
    dict.fromkeys(("tasks", "pauses"), ("SELECT", "UPDATE", "DELETE"))
    | dict.fromkeys(("runs", "events", "notices", "tickers", *MINUTES), ("SELECT", "INSERT", "UPDATE", "DELETE"))
    | dict.fromkeys(("functions", "installation"), ("SELECT", "UPDATE"))
)

FACTS = """
    SELECT current_setting('server_version_num')::int / 10000 AS version,
        current_setting('server_encoding') AS encoding,
        pg_is_in_recovery() AS is_standby,
        current_setting('transaction_read_only')::boolean AS is_read_only,
        clock_timestamp() AS now,
        to_regclass(%(schema)s || '.tasks') IS NOT NULL AS has_tables,
        to_regclass(%(schema)s || '.ticker_version') IS NOT NULL AS has_revision"""


REVISION = """SELECT version_num, coalesce(to_jsonb(v) ->> 'oldest', '') AS oldest FROM "{schema}".ticker_version v"""
"""Editions of the first revision before it was frozen have no column `oldest`."""

SHAPE = """
    WITH ours AS (SELECT oid, relname FROM pg_class WHERE relnamespace = to_regnamespace(%(schema)s) AND relkind = 'r')
    SELECT encode(sha256(convert_to(string_agg(line, chr(10) ORDER BY line COLLATE "C"), 'UTF8')), 'hex') FROM (
        SELECT concat_ws(' ', relname, attname, typname, atttypmod, attnotnull)
            FROM ours JOIN pg_attribute ON attrelid = ours.oid JOIN pg_type ON pg_type.oid = atttypid
            WHERE attnum > 0 AND NOT attisdropped
        UNION ALL SELECT concat_ws(' ', ours.relname, index.relname, indisunique, indisvalid, indkey)
            FROM ours JOIN pg_index ON indrelid = ours.oid JOIN pg_class index ON index.oid = indexrelid
        UNION ALL SELECT concat_ws(' ', relname, conname, contype)
            FROM ours JOIN pg_constraint ON conrelid = ours.oid WHERE contype IN ('c', 'f', 'p', 'u')) lines (line)"""
"""A digest of the columns, indexes and constraints of the tables. A difference may be an addition, which does no harm."""


class Revision(NamedTuple):
    """The revision of the tables, and the oldest one whose release works with them, as the tables say."""

    name: str
    oldest: str


NO_REVISION = Revision("", "")


class Facts(NamedTuple):
    """The properties that the database reports."""

    version: int
    encoding: str
    is_standby: bool
    is_read_only: bool
    now: Any
    has_tables: bool
    has_revision: bool


def check_database(settings: Settings) -> tuple[Installation, str]:
    """Checks the database. Returns its installation, and a warning or an empty string."""
    url = settings.require_database()
    with connections.translated(), connections.connect(url) as connection, connection.transaction():
        before = clock.python_utc()
        facts = read_facts(connection, settings.schema)
        check_server(facts)
        warning = check_clock(facts.now - before, clock.python_utc() - before)
        return check_ours(connection, facts, settings), warning


def read_facts(connection: psycopg.Connection[Any], schema: str) -> Facts:
    return Facts(*connection.execute(FACTS, {"schema": f'"{schema}"'}, binary=True).fetchone() or ())


def check_ours(connection: psycopg.Connection[Any], facts: Facts, settings: Settings) -> Installation:
    """Checks that the tables fit this program and belong to its environment. Returns their installation."""
    check_tables(connection, facts, settings.schema)
    here = installation.read(sql.on(connection, settings.schema))
    installation.check(here, settings.environment)
    return here


def check_server(facts: Facts) -> None:
    """Checks the server's version, its encoding, and that it accepts writes."""
    if facts.version < connections.OLDEST_POSTGRESQL:
        raise ConfigurationError(
            f"DATABASE_URL: PostgreSQL {facts.version} is too old; {connections.OLDEST_POSTGRESQL} or newer is needed"
        )
    if facts.encoding != "UTF8":
        raise ConfigurationError(
            f"DATABASE_URL: the database's encoding is {facts.encoding}; create a database with ENCODING 'UTF8'"
        )
    if facts.is_standby:
        raise ConfigurationError("DATABASE_URL: this server is a standby and accepts no writes; name the primary")
    if facts.is_read_only:
        raise ConfigurationError(
            "DATABASE_URL: transactions of this user are read-only here; set default_transaction_read_only to off"
        )


def check_clock(ahead: timedelta, took: timedelta) -> str:
    """Returns a warning if the clocks differ. `ahead` is the database's time minus this host's, read up to `took`
    earlier.

    Every decision uses the database's clock, so a difference harms no task. But RQ dates its own registries by the
    host's clock, and a clock that is hours off is broken.
    """
    difference = max(abs(ahead - took / 2) - took / 2, timedelta())
    if difference < WORTH_A_WARNING:
        return ""
    sentence = (
        f"the clock of the host {socket.gethostname()} is {words(round(difference.total_seconds()) * SECOND)}"
        f" {'behind' if ahead > timedelta() else 'ahead of'} that of PostgreSQL (DATABASE_URL)"
    )
    if difference > REFUSED:
        limit = words(REFUSED // timedelta(milliseconds=1))
        raise ConfigurationError(f"{sentence}, over the limit of {limit}; synchronize it with NTP")
    return f"{sentence}; synchronize it with NTP"


def check_tables(connection: psycopg.Connection[Any], facts: Facts, schema: str) -> None:
    """Checks that the tables exist, have a revision that works with this program, and may be used."""
    if not facts.has_tables:
        raise ConfigurationError(f"DATABASE_URL: schema {schema!r} has no tables; run: ticker db upgrade")
    check_revision(revision(connection, schema) if facts.has_revision else NO_REVISION, schema)
    for sentence in missing_rights(connection, schema, RIGHTS):
        raise ConfigurationError(sentence)


def are_as_frozen(url: str, schema: str) -> bool:
    """Returns whether the tables have the shape that this release's newest revision gave them, without loading Alembic,
    which takes longer than all other checks. If not, `migrations.problems` knows whether anything is missing.
    """
    with connections.translated(), connections.connect(url) as connection, connection.transaction():
        facts = read_facts(connection, schema)
        if facts.version < connections.OLDEST_POSTGRESQL or not (facts.has_tables and facts.has_revision):
            return False
        there = revision(connection, schema)
        return there.name == revisions()[-1] and shape(connection, schema) == FROZEN.get(there.name)


def shape(connection: psycopg.Connection[Any], schema: str) -> str:
    [digest] = connection.execute(SHAPE, {"schema": f'"{schema}"'}, binary=True).fetchone() or ("",)
    return str(digest)


def missing_rights(connection: Any, schema: str, needed: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yields a sentence for each right that the user lacks on a table."""
    for table, right in ((table, right) for table, rights in needed.items() for right in rights):
        function = "has_table_privilege" if right == "DELETE" else "has_any_column_privilege"
        asked = connection.execute(f"SELECT {function}(%s, %s)", [f'"{schema}".{table}', right])
        if asked.fetchone() != (True,):
            yield f"DATABASE_URL: its user may not {right} {schema}.{table}; GRANT it that right"


def revision(connection: psycopg.Connection[Any], schema: str) -> Revision:
    row = connection.execute(REVISION.format(schema=schema), binary=True).fetchone()
    return Revision(*row) if row else NO_REVISION


def check_revision(there: Revision, schema: str) -> None:
    """Raises ConfigurationError unless the tables have this release's revision, or a newer one that works with it."""
    if left := pending(there, schema):
        raise ConfigurationError(
            f"DATABASE_URL: schema {schema!r} is at revision {there.name or 'none'}, but {left[-1]} is needed;"
            " run: ticker db upgrade"
        )


def pending(there: Revision, schema: str) -> list[str]:
    """Returns the revisions of this release that the tables lack, oldest first. Newer tables lack none.

    Raises ConfigurationError if no upgrade leads from there to this release's, or if newer tables need a newer release.
    """
    known = revisions()
    if not there.name:
        return known
    if there.name in known:
        return known[known.index(there.name) + 1 :]
    at, newest = there.name.partition(".")[0], known[-1].partition(".")[0]
    if at <= newest:
        raise ConfigurationError(
            f"DATABASE_URL: schema {schema!r} is at revision {there.name!r}, which this version of ticker (up to {known[-1]})"
            " does not know; install the version that created it (all tasks are kept), or for a new installation set"
            " TICKER_SCHEMA to another name and run: ticker db upgrade"
        )
    if there.oldest > newest:
        raise ConfigurationError(
            f"DATABASE_URL: schema {schema!r} is at revision {there.name!r}, which needs a version of ticker with revision"
            f" {there.oldest} or newer, but this one has {known[-1]}; install the version that upgraded the tables"
        )
    return []


def revisions() -> list[str]:
    """Returns the revisions of this release, oldest first, without loading Alembic."""
    return [named(file.stem) for file in sorted(VERSIONS.glob("0*.py"))]


def named(folder: str) -> str:
    """Returns the name of the revision whose SQL is in a folder of VERSIONS."""
    number = folder.partition("_")[0]
    if number in FROZEN:
        return number
    digest = sha256(b"".join(file.read_bytes() for file in sorted((VERSIONS / folder).glob("*.sql"))))
    return f"{number}.{digest.hexdigest()[:8]}"
