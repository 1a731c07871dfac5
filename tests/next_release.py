"""Revisions that a next release could add, each in the way that docs/reference/stability.md asks for."""

from pathlib import Path

ADDED = {
    "note": """
ALTER TABLE tasks ADD COLUMN note text DEFAULT '' NOT NULL;
ALTER TABLE tasks ADD CONSTRAINT tasks_note CHECK (length(note) <= 2000) NOT VALID;
ALTER TABLE runs ADD COLUMN note text DEFAULT '' NOT NULL;
-- The same, written in another way.
CREATE OR REPLACE FUNCTION micros(at timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN trunc(extract(epoch FROM at) * 1000000)::bigint::text;
""",
    "note_checked": "ALTER TABLE tasks VALIDATE CONSTRAINT tasks_note;\n",
    "note_index": """
DROP INDEX CONCURRENTLY IF EXISTS {schema}.runs_note;
CREATE INDEX CONCURRENTLY runs_note ON {schema}.runs (task_id, note);
""",
}


def add(versions: Path, **added: str) -> None:
    """Adds revisions after the newest one in a copy of `ticker/migrations/versions`."""
    for name, sql in (added or ADDED).items():
        before = max(versions.glob("0*.py")).stem
        folder = f"{int(before[:4]) + 1:04}_{name}"
        source = (versions / "0001_tables.py").read_text().replace("0001_tables", folder)
        source = source.replace("down_revision = None", f'down_revision = named("{before}")')
        (versions / f"{folder}.py").write_text(source)
        (versions / folder).mkdir()
        (versions / folder / "changes.sql").write_text(sql)
