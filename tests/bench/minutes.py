"""What the count of minutes costs: `python -m tests.bench minutes [--ended N] [--rounds N]`.

A minute in which so many runs have ended, two percent of them dropped, is counted several times, as is the need for workers of so
many tasks. The cost is PostgreSQL's CPU, as a share of a core: each minute is counted twice, and the need every two minutes.
"""

import time
from collections.abc import Callable
from contextlib import closing
from statistics import median
from typing import Any

from tests.bench.figures import Figure, Stage, middle, parser, show, stage
from tests.bench.usage import KEEPS_LOG, Meter
from ticker.daemon.minutes import counted
from ticker.daemon.needs import measure
from ticker.db.store import PostgresStore
from ticker.settings import Settings

FUNCTIONS, TYPES = 10, 5
ENDED = """
INSERT INTO ticker.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome, reason, started_at,
    until, ended_at, created_at, queue, every_ms, tolerance_ms, worker, host, pid, job_id)
SELECT n, 'poll', 'mail.fetch ' || n %% %(functions)s, 'channels ' || n %% %(types)s, n::text, 'scheduled', i.at - interval '10 s',
    'ended', o.outcome, CASE o.outcome WHEN 'dropped' THEN 'too_early' ELSE '' END,
    CASE WHEN o.outcome <> 'dropped' THEN i.at - interval '1 s' END, i.at, i.at, i.at, 'polling', 60000, 5000,
    '0123456789abcdef0123456789abcdef', 'host', 1, 'abcdefgh-t1-1234567890123456'
FROM generate_series(1, %(ended)s) n, LATERAL (SELECT %(at)s::timestamptz + n * interval '1 minute' / (%(ended)s + 1) AS at) i,
    LATERAL (SELECT CASE WHEN n %% 50 = 0 THEN 'dropped' WHEN n %% 50 = 1 THEN 'failed' WHEN n %% 3 = 0 THEN 'nothing_to_do'
        ELSE 'succeeded' END AS outcome) o"""


class Bench:
    """The servers, and so many ended runs."""

    def __init__(self, on: Stage, ended: int) -> None:
        self._on, self._ended = on, ended

    def fill(self) -> None:
        db = self._on.db
        [(self._at,)] = db.execute("SELECT date_trunc('minute', clock_timestamp()) - interval '10 minutes'").fetchall()
        db.execute("SET session_replication_role TO replica")
        db.execute(ENDED, {"ended": self._ended, "at": self._at, "functions": FUNCTIONS, "types": TYPES})
        db.execute("SET session_replication_role TO origin")
        db.execute("VACUUM ANALYZE ticker.runs")
        db.execute("CHECKPOINT")

    def count(self) -> tuple[float, float]:
        """Counts the minute. Returns the seconds, and PostgreSQL's seconds of CPU."""
        self._on.db.execute("TRUNCATE ticker.minutes")
        self._on.db.execute(
            "UPDATE ticker.installation SET counted_until = %s, counted_twice_until = %s", [self._at] * 2
        )
        with closing(PostgresStore(self._on.database_url)) as store:
            store.now()
            took, cpu = self._measured(lambda: next(counted(store)))
        [(count,)] = self._on.db.execute("SELECT sum(count) FROM ticker.minutes").fetchall()
        assert count == self._ended, count
        return took, cpu

    def need(self) -> tuple[float, float]:
        """Measures how many workers are needed, after the minute was counted. Returns the same."""
        self._on.db.execute("DELETE FROM ticker.minutes WHERE outcome = ''")
        with closing(PostgresStore(self._on.database_url)) as store:
            store.now()
            return self._measured(lambda: measure(store, Settings()))

    def _measured(self, work: Callable[[], Any]) -> tuple[float, float]:
        with closing(Meter(self._on)) as meter, meter.measured() as used:
            began = time.perf_counter()
            work()
            took = time.perf_counter() - began
        return took, used.cpu["PostgreSQL"]


def main() -> None:
    options = parser(__doc__, ended=200_000, rounds=5).parse_args()
    with stage(options.ended, KEEPS_LOG, "--autovacuum=off", "--checkpoint_timeout=1h") as on:
        bench = Bench(on, options.ended)
        bench.fill()
        counts = [bench.count() for _ in range(options.rounds)]
        needs = [bench.need() for _ in range(options.rounds)]
        share = 2 * median(cpu for _, cpu in counts) + median(cpu for _, cpu in needs) / 2
        figures = [
            middle(f"a minute of {options.ended:,} ends is counted", [1000 * took for took, _ in counts], "ms"),
            middle("CPU of PostgreSQL for it", [1000 * cpu for _, cpu in counts], "ms"),
            middle(f"the need of {options.ended:,} tasks is measured", [1000 * took for took, _ in needs], "ms"),
            middle("CPU of PostgreSQL for it", [1000 * cpu for _, cpu in needs], "ms"),
            Figure("share of a core", 100 * share / 60, "%", None, "at most 2"),
        ]
    show(figures, options.json, vars(options))


if __name__ == "__main__":
    main()
