"""Dumps the newest revision when it is frozen: `python -m tests.db.dump`. It keeps the rows of the dump before it."""

import os
import re
import subprocess
from pathlib import Path

from ticker import embedded, migrations
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


if __name__ == "__main__":
    new = FOLDER / f"{migrations.newest()}.sql"
    earlier = [file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.sql")) if file < new]
    FOLDER.mkdir(exist_ok=True)
    with embedded.postgres() as postgres:
        new.write_text(dump(postgres.url, *earlier[-1:]), encoding="utf-8")
