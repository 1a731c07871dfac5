"""What a tick costs that finds nothing due: `python -m tests.bench idle [--most N] [--rounds N]`.

The production tick on tables of 10,000, 100,000 ... tasks, none of which is due, as `ticker run` calls it every 30 s; the
look at every row, once in 120 ticks, apart; and the one after the clock was set back, which writes every row.
"""

from contextlib import closing

from tests.bench.figures import Figure, middle, parser, show, stage, timed
from ticker.db.store import THOROUGH_EVERY, PostgresStore
from ticker.engine.tick import TickOptions, tick
from ticker.queue.rq import RedisQueue

STARTED = """
UPDATE ticker.tasks SET last_run = clock_timestamp() + interval '1 minute', last_occurrence = clock_timestamp() + interval '1 minute',
    next_run = clock_timestamp() + interval '6 minutes'"""
SET_BACK = """
INSERT INTO ticker.tickers (id, host, pid, started_at, last_tick_at)
VALUES (gen_random_uuid(), 'host', 1, clock_timestamp(), clock_timestamp() + interval '1 hour')"""
WARM = 15  # ticks, until PostgreSQL has planned the statement for good


def measure(tasks: int, rounds: int) -> list[Figure]:
    with (
        stage(tasks) as on,
        closing(PostgresStore(on.database_url)) as store,
        closing(RedisQueue.from_url(on.redis_url)) as queue,
    ):
        thorough = timed(lambda: tick(store, queue))
        for _ in range(WARM):
            tick(store, queue)
        assert rounds + WARM < THOROUGH_EVERY
        idle = [1000 * timed(lambda: tick(store, queue, options=TickOptions(look_ahead=750))) for _ in range(rounds)]
        on.db.execute(STARTED)
        on.db.execute("VACUUM ANALYZE ticker.tasks")
        on.db.execute(SET_BACK)
        set_back = timed(lambda: tick(store, queue))
    return [
        middle(f"idle tick, {tasks:,} tasks", idle, "ms"),
        Figure(f"the same with the look at every row, {tasks:,} tasks", 1000 * thorough, "ms"),
        Figure(f"after the clock was set back, {tasks:,} tasks", set_back, "s"),
    ]


def main() -> None:
    options = parser(__doc__, most=1_000_000, rounds=50).parse_args()
    sizes = [size for size in (10_000, 100_000, 1_000_000, 10_000_000) if size <= options.most]
    show([figure for size in sizes for figure in measure(size, options.rounds)], options.json, {})


if __name__ == "__main__":
    main()
