"""What a scrape costs: `python -m tests.bench.metrics [--tasks N] [--runs N] [--rounds N]`.

A table of a million tasks, and the records of 100,000 runs a minute. Each figure is one round of questions to PostgreSQL and
Redis, as a scrape asks them, on a connection of its own; at most one round is made in five seconds. Then the part of it that
counts what ended, by itself, and ticks over 1,000 due tasks, alone and with a scraper that asks without a pause.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from typing import Any

from tests.bench.figures import Figure, Stage, middle, parser, show, stage, timed
from ticker.db.steps import run
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.metrics.ended import Ended
from ticker.metrics.servers import Servers
from ticker.queue.rq import RedisQueue
from ticker.read.journal import LATE
from ticker.settings import Settings

FILL = """
INSERT INTO ticker.runs (task_id, task_name, function, owner_type, owner_id, kind, due_at, pushed_at, state, outcome, reason,
    started_at, until, ended_at, created_at, checked_at, every_ms, tolerance_ms, worker, host, pid, job_id)
SELECT 1 + n %% 100000, 'poll', 'poll.' || n %% 20, 'mail_channels', (n %% 100000)::text, 'manual', at, at, 'ended',
    CASE WHEN n %% 20 = 1 THEN 'dropped' WHEN n %% 50 = 0 THEN 'failed' ELSE 'succeeded' END,
    CASE WHEN n %% 20 = 1 THEN 'too_early' ELSE '' END, CASE WHEN n %% 20 <> 1 THEN at + interval '3 s' END,
    CASE WHEN n %% 20 <> 1 THEN at + interval '34 s' END, at + interval '5 s', at, at, 60000, 5000, 'worker-1', 'host-1', 4711, ''
FROM generate_series(1, %(runs)s::int) n, LATERAL (SELECT %(now)s::timestamptz
    - (%(runs)s::int - n) * interval '0.6 milliseconds' AS at) x"""

WAIT = "UPDATE ticker.tasks SET waiting = ARRAY[clock_timestamp()] WHERE id <= %(waiting)s"


def fill(made: Stage, runs: int) -> datetime:
    """The records end at the instant that is returned."""
    [now] = made.db.execute("SELECT clock_timestamp()").fetchone() or ()
    made.db.execute(FILL, {"runs": runs, "now": now})
    made.db.execute("VACUUM ANALYZE ticker.runs")
    return now  # type: ignore[no-any-return]


def rounds_of(ask: Callable[[], Any], rounds: int) -> list[float]:
    """Milliseconds; the first one, which warms the cache, is left out."""
    return [1000 * timed(ask) for _ in range(rounds + 1)][1:]


def counting(made: Stage, until: datetime, window: timedelta) -> Callable[[], Any]:
    """Counts the records of so long a time before an instant."""

    def count() -> None:
        ended = Ended()
        for row in run(made.db, ended._ended(until - window, until)):
            ended._count(row)

    return count


@contextmanager
def scraped(ask: Callable[[], Any]) -> Iterator[None]:
    """Within the block somebody asks without a pause."""
    stopping = threading.Event()

    def go_on() -> None:
        while not stopping.is_set():
            ask()

    scraper = threading.Thread(target=go_on)
    scraper.start()
    yield
    stopping.set()
    scraper.join()


def ticks(made: Stage, store: PostgresStore, rounds: int) -> list[float]:
    """Milliseconds of ticks over 1,000 due tasks."""
    found, queue = [], RedisQueue(made.redis)
    for _ in range(rounds):
        made.make_due(1000)
        found.append(1000 * timed(lambda: tick(store, queue)))
    return found


def measured(made: Stage, runs: int, rounds: int) -> Iterator[Figure]:
    settings = Settings(database_url=made.database_url, redis_url=made.redis_url)
    made.db.prepare_threshold = None  # plans each statement for its own times
    servers = Servers(settings, fresh=0.0)
    yield middle("a round, no records", rounds_of(servers.figures, rounds), "ms")
    until = fill(made, runs)
    yield middle(
        "counting 15 s of them: 25,000 runs", rounds_of(counting(made, until, timedelta(seconds=15)), rounds), "ms"
    )
    yield middle(
        "counting a minute: 100,000 runs", rounds_of(counting(made, until, timedelta(minutes=1)), rounds), "ms"
    )
    yield middle(
        "counting an empty minute", rounds_of(counting(made, until - 90 * LATE, timedelta(minutes=1)), rounds), "ms"
    )
    yield middle("a round", rounds_of(servers.figures, rounds), "ms")
    with closing(PostgresStore(made.database_url)) as store:
        store.clamp(None, 1000)  # the look at every row, which comes once in 120 ticks
        yield middle("a tick over 1,000 due tasks", ticks(made, store, rounds), "ms")
        with scraped(servers.figures):
            yield middle("the same, scraped without a pause", ticks(made, store, rounds), "ms")
    for waiting in (10_000, 100_000):
        made.db.execute(WAIT, {"waiting": waiting})
        made.db.execute("VACUUM ticker.tasks")
        yield middle(f"a round, {waiting:,} tasks wait", rounds_of(servers.figures, rounds), "ms")


def main() -> None:
    options = parser(__doc__, tasks=1_000_000, runs=1_000_000, rounds=9).parse_args()
    with stage(options.tasks) as made:
        found = list(measured(made, options.runs, options.rounds))
    show(found, options.json, {"tasks": options.tasks, "runs": options.runs})


if __name__ == "__main__":
    main()
