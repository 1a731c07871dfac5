"""Writes the dump of a new revision: `python -m tests.db.dump`. It upgrades the dump before it, whose rows it keeps."""

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


def dump(postgres: embedded.Postgres, last: Path) -> str:
    """Returns what pg_dump writes after the last dump was restored and upgraded."""
    with connect(postgres.url) as connection:
        connection.execute(last.read_text(encoding="utf-8"))
    migrations.upgrade(postgres.url)
    command = [postgres_programs(os.environ) / "pg_dump", "--inserts", "--no-owner", "--schema=ticker", postgres.url]
    lines = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    return "".join(f"{line}\n" for line in lines if not NOISE.fullmatch(line))


if __name__ == "__main__":
    new = FOLDER / f"{migrations.newest()}.sql"
    *_, last = sorted(file for file in FOLDER.glob("*.sql") if file < new)
    with embedded.postgres() as postgres:
        new.write_text(dump(postgres, last), encoding="utf-8")
