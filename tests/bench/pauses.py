"""What pauses of many tasks cost: `python -m tests.bench pauses [--tasks 1000000]`.

pause        `pause_all` of a group with all tasks, committed
wait_for_gate     a tick over due tasks that are paused
idle         a tick while all tasks wait for the pause
resume       `resume_all`, committed
let go       a tick that lets the tasks go within its budget, and pushes them
usual        a tick that pushes as many due tasks without a pause
"""

from typing import Any

import psycopg

import ticker
from tests.bench.figures import Figure, Stage, middle, parser, show, stage, timed
from ticker.daemon.tick_job import PushThreads
from ticker.db.store import PostgresStore
from ticker.engine.tick import Report, TickOptions, tick
from ticker.queue.rq import RedisQueue
from ticker.settings import Settings

ROUNDS = 5
GROUP = "UPDATE ticker.tasks SET group_name = 'customers', queue = 'polling'"
ALL_DUE = "UPDATE ticker.tasks SET waiting = '{}', next_run = clock_timestamp() - interval '1 s' - id * interval '1 microsecond'"


class Pauses:
    def __init__(self, on: Stage) -> None:
        self.on = on
        self.store, self.queue = PostgresStore(on.database_url), RedisQueue.from_url(on.redis_url)
        self.options = TickOptions(look_ahead=750, batch=Settings().batch, period=30_000, push_threads=PushThreads())
        self.store.clamp(None, self.options.batch)

    def tick(self) -> tuple[float, Report]:
        reports: list[Report] = []
        took = timed(lambda: reports.append(tick(self.store, self.queue, options=self.options)))
        return took, reports[0]

    def committed(self, operation: Any, **scope: str) -> float:
        with psycopg.connect(self.on.database_url) as db:
            return timed(lambda: (operation(db, **scope), db.commit()))

    def forget_the_grant(self) -> None:
        """As if the next tick came a period later."""
        self.on.db.execute("UPDATE ticker.pauses SET granted_at = NULL")


def measure(on: Stage) -> list[Figure]:
    work = Pauses(on)
    on.db.execute(GROUP)
    on.db.execute("VACUUM ANALYZE ticker.tasks")
    pauses, resumes = [], []
    for _ in range(ROUNDS):
        pauses.append(work.committed(ticker.pause_all, group="customers"))
        resumes.append(work.committed(ticker.resume_all, group="customers"))
    work.tick()
    on.db.execute(ALL_DUE)
    on.db.execute("VACUUM ANALYZE ticker.tasks")
    work.committed(ticker.pause_all, group="customers")
    at_gate, report = work.tick()
    assert report.enqueued == 0, report
    idle = [work.tick()[0] for _ in range(ROUNDS)]
    resumes.append(work.committed(ticker.resume_all, group="customers"))
    lets, counts = [], []
    for _ in range(ROUNDS):
        took, report = work.tick()
        [(budget,)] = on.db.execute("SELECT max(budget) FROM ticker.pauses WHERE granted_at IS NOT NULL").fetchall()
        assert report.due.enqueued <= budget, (report, budget)
        lets.append(took)
        counts.append(report.due.enqueued)
        work.forget_the_grant()
    on.db.execute(
        "UPDATE ticker.tasks SET pause_id = NULL, waiting = '{}', next_run = clock_timestamp() + interval '1 day'"
    )
    usual = []
    for _ in range(ROUNDS):
        on.make_due(counts[0])
        took, report = work.tick()
        usual.append(took)
    return [
        middle(f"pause of {on.tasks:,} tasks", [1000 * took for took in pauses], "ms"),
        Figure("a tick that withholds all of them", at_gate, "s"),
        middle("a tick while all of them wait", [1000 * took for took in idle], "ms"),
        middle("resume", [1000 * took for took in resumes], "ms"),
        middle(
            "a tick that lets tasks go and pushes them",
            lets,
            "s",
            f"{min(counts):,} to {max(counts):,} tasks, none over its budget",
        ),
        middle("a tick that pushes as many", usual, "s"),
    ]


def main() -> None:
    options = parser(__doc__, tasks=1_000_000).parse_args()
    with stage(options.tasks) as on:
        show(measure(on), options.json, {"tasks": options.tasks})


if __name__ == "__main__":
    main()
