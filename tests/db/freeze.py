"""Freezes the newest revision: `python -m tests.db.freeze`. Its SQL is then in `FROZEN`, and its dump in tests/db/revisions.

If it is frozen already, it is frozen anew, as it is now. A dump keeps the rows of the dump before it, and begins with a
digest of the revision's SQL.
"""

import os
import re
import subprocess
from hashlib import sha256
from pathlib import Path

from sqlalchemy import MetaData
from sqlalchemy.dialects.postgresql import DOMAIN, dialect
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from ticker import embedded, migrations
from ticker.db import checks, tables
from ticker.db.connections import connect
from ticker.embedded.programs import postgres_programs

FOLDER = Path(__file__).parent / "revisions"
NOISE = re.compile(r"--.*|SET .*|\\.*|")
"""Lines without meaning for the tests: comments, settings of the session, commands of psql."""
ROWS = """
    INSERT INTO ticker.tasks (name, function, kind, expression, every_ms, box_ms, grace_ms, queue) VALUES
        ('poll', 'poll', 'interval', '', 60000, 30000, 1000, 'polling'),
        ('report', 'report', 'cron', '0 6 * * *', 0, 300000, 1000, 'polling');
    UPDATE ticker.tasks SET paused_by = 'anna', paused_reason = 'holidays' WHERE name = 'report';
    INSERT INTO ticker.runs (task_id, task_name, kind, occurrence, due_at, state, outcome, ended_at) VALUES
        (1, 'poll', 'scheduled', '2026-03-01 12:00Z', NULL, 'ended', 'succeeded', '2026-03-01 12:00:02Z'),
        (2, 'report', 'manual', NULL, '2026-03-01 12:00Z', 'planned', NULL, NULL)"""
"""The rows of the first dump."""


def dump(url: str, last: str | None = None) -> str:
    """Returns what pg_dump writes of the newest revision, after an upgrade of the last dump or with new rows."""
    if last is not None:
        with connect(url) as connection:
            connection.execute(last)
    migrations.upgrade(url)
    if last is None:
        with connect(url) as connection:
            connection.execute(ROWS)
    command = [postgres_programs(os.environ) / "pg_dump", "--inserts", "--no-owner", "--schema=ticker", url]
    lines = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    return "".join(f"{line}\n" for line in lines if not NOISE.fullmatch(line))


def digest(folder: str) -> str:
    return f"-- SHA-256 of the SQL of {folder}: {sha256(migrations.sql_of(folder).encode()).hexdigest()}\n"


def ddl_of_tables() -> str:
    """Returns the DDL of the tables and their indexes. The types of their columns are our domains."""
    here = MetaData()
    for table in tables.metadata.sorted_tables:
        table.to_metadata(here, schema=None)
    statements: list[ExecutableDDLElement] = []
    for table in here.sorted_tables:
        for column in table.columns:
            if domain := column.info.get("domain"):
                column.type = DOMAIN(f"ticker_{domain}", column.type, create_type=False)
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += [CreateTable(table), *map(CreateIndex, indexes)]
    text = "".join(f"{in_order(str(statement.compile(dialect=dialect())).strip())};\n" for statement in statements)
    filled = [table for table in here.sorted_tables if "fillfactor" in table.info]
    text += "".join(f"ALTER TABLE {one.name} SET (fillfactor = {one.info['fillfactor']});\n" for one in filled)
    return re.sub(
        r"[ \t]+$", "", text.replace("%%", "%").replace("\t", "    "), flags=re.MULTILINE
    )  # no parameters are passed


def in_order(text: str) -> str:
    """Sorts the constraints of a CREATE TABLE by name: SQLAlchemy copies them in any order."""
    head, *constraints = text.split(", \n\tCONSTRAINT ")
    constraints = sorted(constraint.removesuffix("\n)") for constraint in constraints)
    return ", \n\tCONSTRAINT ".join([head, *constraints]) + "\n)" * bool(constraints)


def freeze() -> None:
    newest = max(checks.VERSIONS.glob("0*.py")).stem
    number = newest[:4]
    source = Path(checks.__file__)
    checks.FROZEN[number] = ""  # the name of the revision has no digest from now on, also in its dump
    new = FOLDER / f"{number}.sql"
    earlier = [file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.sql")) if file < new]
    FOLDER.mkdir(exist_ok=True)
    with embedded.postgres() as postgres:
        new.write_text(digest(newest) + dump(postgres.url, *earlier[-1:]), encoding="utf-8")
        with connect(postgres.url) as connection:
            checks.FROZEN[number] = checks.shape(connection, "ticker")
    frozen = "".join(f'    "{one}": "{shape}",\n' for one, shape in sorted(checks.FROZEN.items()))
    text = re.sub(r"(?ms)^FROZEN = {.*?}", f"FROZEN = {{\n{frozen}}}", source.read_text(encoding="utf-8"), count=1)
    source.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    freeze()
