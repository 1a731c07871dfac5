"""How the table of tasks is best kept: `python -m tests.bench table [--tasks N] [--ticks N]`.

The same simulated ticks (`tests.bench.day`) over tables that differ in `fillfactor` and in autovacuum's settings: the time of a
tick, of the bulk writes of its starts and ends, the size of the table, the log written, and the share of updates that touched
no index (HOT). Simulated time runs ahead of real time, and so autovacuum looks as much more often.
"""

from statistics import median

import psycopg

from tests.bench.day import Day
from tests.bench.figures import Figure, parser, show, stage, timed

VARIANTS = {
    "as PostgreSQL has it": "fillfactor = 100",
    "fillfactor 85": "fillfactor = 85",
    "fillfactor 70": "fillfactor = 70",
    "autovacuum at 5%": "autovacuum_vacuum_scale_factor = 0.05",
    "autovacuum at 5%, unthrottled": "autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0",
    "fillfactor 85, autovacuum at 5%, unthrottled": (
        "fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0"
    ),
}
FACTS = """
SELECT pg_relation_size(relid) / 1e6, pg_indexes_size(relid) / 1e6, 100.0 * n_tup_hot_upd / greatest(n_tup_upd, 1), autovacuum_count
FROM pg_stat_all_tables WHERE relid = 'ticker.tasks'::regclass"""


class WorkedDay(Day):
    """A day that also takes the time of its workers."""

    worked: list[float]

    def work(self, number: int) -> None:
        self.worked = [*getattr(self, "worked", []), timed(lambda: super(WorkedDay, self).work(number))]


def look_often(db: psycopg.Connection[object], seconds: int) -> None:
    db.execute(f"ALTER SYSTEM SET autovacuum_naptime = {seconds}")
    db.execute("SELECT pg_reload_conf()")


def play(name: str, settings: str, tasks: int, ticks: int) -> list[Figure]:
    with stage(tasks) as on:
        look_often(on.db, 5)
        on.db.execute(f"ALTER TABLE ticker.tasks SET ({settings})")
        on.db.execute("VACUUM FULL ticker.tasks")
        day = WorkedDay(on, 300)
        [(before,)] = on.db.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").fetchall()
        day.play(ticks)
        [(after,)] = on.db.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").fetchall()
        on.db.execute("SELECT pg_stat_force_next_flush()")
        [(heap, indexes, hot, vacuums)] = on.db.execute(FACTS).fetchall()
        took = [1000 * row[0] for row in day.ticks]
        late = len(took) // 2  # by then the table has the shape that it keeps
        note = f"table {heap:,.0f} MB, indexes {indexes:,.0f} MB, HOT {hot:.0f}%, {vacuums} autovacuums"
        return [
            Figure(f"{name}: a tick", median(took[late:]), "ms", max(took[late:]), note),
            Figure(f"{name}: its starts and ends", 1000 * median(day.worked[late:]), "ms", 1000 * max(day.worked[late:])),
            Figure(f"{name}: log per task and tick", float(after - before) / ticks / (tasks / 10) / 1000, "kB"),
        ]  # fmt: skip


def main() -> None:
    options = parser(__doc__, tasks=300_000, ticks=40).parse_args()
    figures = [
        figure for name, settings in VARIANTS.items() for figure in play(name, settings, options.tasks, options.ticks)
    ]
    show(figures, options.json, {"tasks": options.tasks, "ticks": options.ticks})


if __name__ == "__main__":
    main()
