"""What a tick costs that finds nothing due: `python -m tests.bench idle [--most N] [--rounds N]`.

The production tick on tables of 10,000, 100,000 ... tasks, none of which is due, as `ticker run` calls it every 30 s; the
look at every row, once in 120 ticks, apart.
"""

from contextlib import closing

from tests.bench.figures import Figure, middle, parser, show, stage, timed
from ticker.enqueue import RedisQueue
from ticker.store import THOROUGH_EVERY, PostgresStore
from ticker.tick import tick

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
        idle = [1000 * timed(lambda: tick(store, queue, look_ahead=750)) for _ in range(rounds)]
    return [
        middle(f"idle tick, {tasks:,} tasks", idle, "ms"),
        Figure(f"the same with the look at every row, {tasks:,} tasks", 1000 * thorough, "ms"),
    ]


def main() -> None:
    options = parser(__doc__, most=1_000_000, rounds=50).parse_args()
    sizes = [size for size in (10_000, 100_000, 1_000_000, 10_000_000) if size <= options.most]
    show([figure for size in sizes for figure in measure(size, options.rounds)], options.json, {})


if __name__ == "__main__":
    main()
