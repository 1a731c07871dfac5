"""Lists the locks that pending revisions take, and for how long: `ticker db upgrade --plan`. Takes no lock itself."""

import re
from collections import defaultdict
from typing import NamedTuple

from ticker.db import checks
from ticker.db.checks import named, pending
from ticker.migrations import connected, revision_of, sql_of, statements

UNKNOWN, EXCLUSIVE, SHARE_ROW, SHARE, SHARE_UPDATE, ROW, NO_LOCK = LOCKS = (
    "unknown", "ACCESS EXCLUSIVE", "SHARE ROW EXCLUSIVE", "SHARE", "SHARE UPDATE EXCLUSIVE", "ROW EXCLUSIVE", "",
)  # fmt: skip
"""The modes of PostgreSQL's locks on tables, the strongest first."""
BLOCKED = {
    UNKNOWN: "unknown",
    EXCLUSIVE: "reads and writes",
    SHARE_ROW: "writes",
    SHARE: "writes",
    ROW: "changes of these rows",
}
READ, INDEXED, WRITTEN = 2, 2, 30
"""Microseconds per row: PostgreSQL reads it, builds an index of it in two passes, or writes it with its indexes.
Measured by `python -m tests.bench upgrade`.
"""

FORMS = {
    r"(CREATE( OR REPLACE)?|DROP) (FUNCTION|AGGREGATE|DOMAIN) .*|CREATE TABLE .*|(GRANT|REVOKE) .*": (NO_LOCK, 0),
    r"ALTER DOMAIN \w+ (DROP CONSTRAINT \w+|ADD .* NOT VALID)|DROP INDEX CONCURRENTLY .*": (NO_LOCK, 0),
    r"UPDATE ticker_version .*": (NO_LOCK, 0),
    r"ALTER TABLE <table> VALIDATE CONSTRAINT \w+": (SHARE_UPDATE, READ),
    r"ALTER TABLE <table> ADD COLUMN \w+ (?!ticker_)[\w[\]]+( DEFAULT ('[^']*'|[-\w]+))?( NOT NULL)?": (EXCLUSIVE, 0),
    r"ALTER TABLE <table> ADD CONSTRAINT \w+ CHECK \(.*\) NOT VALID": (EXCLUSIVE, 0),
    r"ALTER TABLE <table> (DROP (COLUMN|CONSTRAINT) \w+|ALTER COLUMN \w+ (SET|DROP) DEFAULT\b.*)": (EXCLUSIVE, 0),
    r"(DROP|ALTER) TABLE <table>\b.*": (EXCLUSIVE, WRITTEN),
    r"CREATE( UNIQUE)? INDEX CONCURRENTLY \w+ ON \{schema\}\.<table> .*": (SHARE_UPDATE, INDEXED),
    r"CREATE( UNIQUE)? INDEX \w+ ON <table> .*": (SHARE, INDEXED),
    r"CREATE( OR REPLACE)? TRIGGER \w+ .*? ON <table>\b.*": (SHARE_ROW, 0),
    r"DROP TRIGGER \w+ ON <table>": (EXCLUSIVE, 0),
    r"(UPDATE|DELETE FROM|INSERT INTO) <table>\b.*": (ROW, WRITTEN),
    r"(?s:.*)": (UNKNOWN, 0),
}
"""The forms of statements, the lock that each takes on a table, and the microseconds per row. The first match counts. A
column of a domain with a rule, or with a default that is not constant, makes PostgreSQL rewrite the table.
"""


class Locked(NamedTuple):
    """The strongest lock of a revision on a table. `seconds` is how long the revision is expected to hold it: 0 means
    that it does not depend on `rows`. The table `?` stands for a statement that no form matches.
    """

    revision: str
    table: str
    lock: str
    blocks: str
    rows: int
    seconds: float


def plan(url: str, schema: str) -> tuple[str, list[str], list[Locked]]:
    """Returns the revision of the tables, the pending ones, and their locks on tables that exist."""
    with connected(url) as connection:
        there = revision_of(connection, schema)
        rows = {
            row.relname: int(row.rows)
            for row in connection.exec_driver_sql(
                "SELECT relname, greatest(reltuples, pg_stat_get_live_tuples(c.oid), 0) AS rows FROM pg_class c"
                " JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s AND relkind = 'r'",
                (schema,),
            )
        }
    left = pending(there, schema)
    folders = {named(file.stem): file.stem for file in checks.VERSIONS.glob("0*.py")}
    return there.name, left, [locked for name in left for locked in locks(name, sql_of(folders[name]), rows)]


def locks(revision: str, sql: str, rows: dict[str, int]) -> list[Locked]:
    """Returns the strongest lock of a revision on each table, of which `rows` has the number of rows. All locks are
    held until the revision ends.
    """
    taken: dict[str, set[str]] = defaultdict(set)
    micros = 0
    for statement in statements(sql):
        table, lock, per_row = _form(statement)
        if lock and rows and (table in rows or lock == UNKNOWN):
            taken[table or "?"].add(lock)
            micros += per_row * rows.get(table, 0)
    strongest = {table: min(found, key=LOCKS.index) for table, found in taken.items()}
    seconds = round(micros / 1_000_000, 1)
    return [
        Locked(revision, table, lock, BLOCKED.get(lock, ""), rows.get(table, 0), seconds)
        for table, lock in strongest.items()
    ]


def _form(statement: str) -> tuple[str, str, int]:
    matches = ((re.fullmatch(form.replace("<table>", r"(?P<table>\w+)"), statement), of) for form, of in FORMS.items())
    return next((match.groupdict().get("table", ""), *of) for match, of in matches if match)
