"""Hours of a million tasks: `python -m tests.bench day [--tasks N] [--hours N] [--every SECONDS]`.

Real servers, the production tick every 30 simulated seconds, and workers in bulk: behind each tick all its jobs are taken out
of Redis, and their starts and ends written by two statements with the same writes per row as the real ones (a record for one
run in fifty: the failures that `keep="problems"` keeps). Nothing waits in real time: a simulated hour takes as long as its work.

Per tick: how long it took, how late the due tasks were when it began, and jobs in Redis; at the end the sizes.
"""

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from statistics import median, quantiles

from tests.bench.figures import Figure, Stage, middle, parser, show, stage, timed
from ticker.daemon.push_threads import PushThreads
from ticker.db.store import PostgresStore
from ticker.engine.tick import TickOptions, tick
from ticker.queue.rq import RedisQueue

TICK = 30  # seconds

FIRST = "UPDATE ticker.tasks SET every_ms = %(every)s * 1000, next_run = %(now)s::timestamptz + (id %% %(every)s) * interval '1 s'"
LATE = """
SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY extract(epoch FROM %(now)s::timestamptz - next_run)) FROM ticker.tasks
WHERE enabled AND owner_active AND paused_by IS NULL AND next_run <= %(now)s::timestamptz"""
STARTED = """
UPDATE ticker.tasks SET last_occurrence = waiting[cardinality(waiting)], waiting = '{}', last_run = %(now)s, started = started + 1,
    run_token = gen_random_uuid(), running_until = %(now)s::timestamptz + interval '151 s'
WHERE waiting <> '{}'"""
ENDED = """
UPDATE ticker.tasks SET run_token = NULL, running_until = NULL, last_outcome = 'succeeded', last_ended_at = %(now)s,
    last_success_at = %(now)s, last_worked_at = %(now)s, succeeded = succeeded + 1
WHERE run_token IS NOT NULL"""
RECORDED = """
INSERT INTO ticker.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome, reason, started_at,
    ended_at, created_at, checked_at, every_ms, tolerance_ms, worker, host, pid, job_id)
SELECT id, name, function, owner_type, owner_id, 'scheduled', last_occurrence, 'ended', 'failed', 'OSError: no route to host', %(now)s,
    %(now)s, %(now)s, %(now)s, every_ms, tolerance_ms, 'worker', 'host', 1, 't' || id
FROM ticker.tasks WHERE run_token IS NOT NULL AND id %% 50 = %(share)s"""
SIZES = """
SELECT pg_total_relation_size('ticker.tasks') / 1e6, pg_total_relation_size('ticker.runs') / 1e6,
    (SELECT count(*) FROM ticker.runs), pg_relation_size('ticker.tasks') / 1e6"""
TAKE = """
local ids = redis.call('LPOP', KEYS[1], ARGV[1])
for _, id in ipairs(ids or {}) do redis.call('UNLINK', 'rq:job:' .. id) end
return ids and #ids or 0"""


class Day:
    def __init__(self, on: Stage, every: int) -> None:
        self.on, self.every = on, every
        self.now = datetime.now(UTC).replace(microsecond=0)
        self.ticks: list[tuple[float, float, float, int]] = []
        self.largest = 0
        on.db.execute(FIRST, {"every": every, "now": self.now})
        on.db.execute("VACUUM ANALYZE ticker.tasks")

    def play(self, ticks: int) -> None:
        push_threads, take = PushThreads(), self.on.redis.register_script(TAKE)
        with (
            closing(PostgresStore(self.on.database_url)) as store,
            closing(RedisQueue.from_url(self.on.redis_url)) as queue,
        ):
            for number in range(ticks):
                self.now += timedelta(seconds=TICK)
                [(late,)] = self.on.db.execute(LATE, {"now": self.now}).fetchall()
                took = timed(
                    lambda: tick(
                        store, queue, self.now, TickOptions(look_ahead=0, beat=1000 * TICK, push_threads=push_threads)
                    )
                )
                jobs = int(self.on.redis.llen("rq:queue:polling"))
                self.largest = max(self.largest, int(self.on.redis.info("memory")["used_memory"]))
                self.ticks.append((took, *(late or (0.0, 0.0)), jobs))
                while take(keys=["rq:queue:polling"], args=[5000]):
                    pass
                self.work(number)

    def work(self, number: int) -> None:
        about = {"now": self.now + timedelta(seconds=1), "share": number % 50}
        self.on.db.execute(STARTED, about)
        self.on.db.execute(RECORDED, about)
        self.on.db.execute(ENDED, about)

    def figures(self) -> list[Figure]:
        took, half, most, jobs = (list(column) for column in zip(*self.ticks, strict=True))
        [(tasks, runs, records, heap)] = self.on.db.execute(SIZES).fetchall()
        return [
            middle("a tick", [1000 * t for t in took], "ms", f"p99 {1000 * p99(took):,.0f} ms"),
            middle("lateness when its tick begins, p50 of a tick", half, "s"),
            middle("lateness when its tick begins, p99 of a tick", most, "s"),
            middle("jobs of a tick in Redis", jobs, "jobs"),
            Figure("Redis at its largest", self.largest / 1e6, "MB"),
            Figure("tasks with its indexes", float(tasks), "MB", None, f"{float(heap):,.0f} MB without"),
            Figure(f"runs with its indexes, {records:,} records", float(runs), "MB"),
        ]


def p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100)[98] if len(values) > 1 else median(values)


def main() -> None:
    options = parser(__doc__, tasks=1_000_000, hours=1, every=300, ticks=0).parse_args()
    ticks = options.ticks or options.hours * 3600 // TICK
    with stage(options.tasks) as on:
        day = Day(on, options.every)
        day.play(ticks)
        show(day.figures(), options.json, {"tasks": options.tasks, "ticks": ticks})


if __name__ == "__main__":
    main()
