"""How long an upgrade keeps others waiting: `python -m tests.bench upgrade [--tasks N] [--runs N]`.

A PostgreSQL of its own that syncs. While each revision of a next release is applied, a session writes a task and a run,
again and again, and reports its longest wait, which the disk causes, too. The last revision breaks the rules: its column makes PostgreSQL write the
table anew. Prints a markdown table.
"""

import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from time import sleep
from unittest.mock import patch

import psycopg

from tests import next_release
from tests.bench.figures import Figure, Stage, parser, show, stage, timed
from tests.bench.web import RUNS, SPREAD
from ticker import migrations
from ticker.db import checks
from ticker.migrations.plan import plan

REVISIONS = next_release.ADDED | {
    "against the rules": "ALTER TABLE runs ADD COLUMN remark ticker_prose DEFAULT '' NOT NULL;"
}
WRITE = """
WITH task AS (UPDATE ticker.tasks SET failures = 0 WHERE id = %(id)s RETURNING id, name)
INSERT INTO ticker.runs (task_id, task_name, kind, state, due_at) SELECT id, name, 'manual', 'planned', clock_timestamp() FROM task"""


def main() -> None:
    options = parser(__doc__, tasks=1_000_000, runs=1_000_000).parse_args()
    with stage(options.tasks) as on, tempfile.TemporaryDirectory() as folder:
        on.db.execute(SPREAD)
        on.db.execute(RUNS, {"tasks": on.tasks, "runs": options.runs})
        on.db.execute("VACUUM ANALYZE ticker.tasks, ticker.runs")
        copy = Path(folder) / "migrations"
        shutil.copytree(checks.VERSIONS.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
        with patch.object(checks, "VERSIONS", copy / "versions"):
            quiet = Figure(
                "no upgrade, 10 s: the longest wait of a write", 1000 * longest_wait(on, lambda: sleep(10)), "ms"
            )
            figures = [quiet] + [figure for name, sql in REVISIONS.items() for figure in measured(on, name, sql)]
        show(figures, options.json, {"tasks": options.tasks, "runs": options.runs})


def measured(on: Stage, name: str, sql: str) -> list[Figure]:
    next_release.add(checks.VERSIONS, **{name.replace(" ", "_"): sql})
    planned = plan(on.database_url, "ticker")[2]
    seconds: list[float] = []
    longest = longest_wait(on, lambda: seconds.append(timed(lambda: migrations.upgrade(on.database_url))))
    expected = ", ".join(f"{one.lock} on {one.table}, {one.seconds:g} s" for one in planned)
    return [
        Figure(f"{name}: the upgrade", seconds[0], "s", note=f"planned: {expected}"),
        Figure(f"{name}: the longest wait of a write", 1000 * longest, "ms"),
    ]


def longest_wait(on: Stage, work: Callable[[], None]) -> float:
    """Seconds."""
    thread, longest, id_ = threading.Thread(target=work), 0.0, 0
    with psycopg.connect(on.database_url, autocommit=True) as other:
        thread.start()
        while thread.is_alive():
            id_ = (id_ + 7919) % on.tasks
            longest = max(longest, timed(lambda id_=id_: other.execute(WRITE, {"id": id_ + 1})))
    return longest


if __name__ == "__main__":
    main()
