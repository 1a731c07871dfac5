"""What limits by key cost a tick: `uv run python -m tests.bench.limits`.

none        a tick over due tasks without limits
half        the same, and half of them carry one of 1,000 keys with room for all of them
half, full  the same, and each key has room for a third of them
idle        a tick that finds nothing due, next to tasks with limits that are due later
blocked     the step of a tick that finds nothing with room, next to 50,000 blocked tasks of as many, or of few, pairs of keys
"""

from collections.abc import Callable
from statistics import median

from tests.bench.figures import Figure, Stage, middle, parser, show, stage, timed
from ticker.daemon.push_threads import PushThreads
from ticker.db.store import PostgresStore
from ticker.engine.queue_limit import Room
from ticker.engine.tick import Pass, TickOptions, push_keyed, tick
from ticker.queue.rq import RedisQueue
from ticker.settings import Settings

KEYS = 1000
BLOCKED = 50_000
UNLIMITED = "UPDATE ticker.tasks SET limits = NULL WHERE limits IS NOT NULL"
HALF = f"""UPDATE ticker.tasks SET limits = CASE WHEN id % 4 = 0 THEN ARRAY['key:' || id / 4 % {KEYS}] END"""
PAIRS = f"""UPDATE ticker.tasks SET limits = CASE WHEN id <= {BLOCKED} THEN ARRAY['account:' || id % {{keys}}, 'host'] END"""


class Limits:
    def __init__(self, on: Stage, due: int) -> None:
        self.on, self.due = on, due
        self.options = TickOptions(look_ahead=750, batch=Settings().batch, push_threads=PushThreads(), ahead=200)
        self.store, self.queue = PostgresStore(on.database_url), RedisQueue.from_url(on.redis_url)
        self.store.clamp(None, self.options.batch)

    def prepare(self, tasks: str, concurrency: int | None, due: int, **values: int) -> None:
        db = self.on.db
        db.execute("DELETE FROM ticker.limits; DELETE FROM ticker.slots; DELETE FROM ticker.limited_keys")
        db.execute(tasks.format(**values))
        if concurrency:
            key = "host" if concurrency == 1 else "key:*"
            db.execute("INSERT INTO ticker.limits (key, concurrency) VALUES (%s, %s)", [key, concurrency])
        self.on.make_due(due)
        db.execute("VACUUM ANALYZE ticker.tasks")
        db.execute("VACUUM ANALYZE ticker.slots")
        db.execute("VACUUM ANALYZE ticker.limited_keys")

    def tick(self, at_least: int) -> float:
        self.queue.push([])
        reports = []
        took = timed(lambda: reports.append(tick(self.store, self.queue, options=self.options)))
        assert reports[0].enqueued >= at_least, reports[0]
        return took

    def walk(self) -> float:
        now = self.store.now()
        return timed(lambda: push_keyed(Pass(self.store, Room(self.queue, {}), now, self.options)))

    def block(self, keys: int) -> None:
        self.prepare(PAIRS, 1, 0, keys=keys)
        self.on.db.execute("UPDATE ticker.slots SET until = clock_timestamp() + interval '1 hour'")
        self.on.db.execute(
            f"UPDATE ticker.tasks SET next_run = clock_timestamp() - interval '1 minute' WHERE id <= {BLOCKED}"
        )
        self.on.db.execute("VACUUM ANALYZE ticker.tasks")


def measure(on: Stage, due: int, rounds: int) -> list[Figure]:
    here = Limits(on, due)
    figures, ticks = [], dict[str, list[float]]()
    room = due // 2 // KEYS
    ways = (
        ("none", UNLIMITED, None, due),
        ("half", HALF, 2 * room, due),
        ("half, full", HALF, max(room // 3, 2), due // 2),
    )
    for _ in range(rounds):
        for name, statement, concurrency, pushed in ways:
            here.prepare(statement, concurrency, due)
            ticks.setdefault(name, []).append(here.tick(pushed))
    figures += [
        middle(f"tick, {due:,} due: {name}", [1000 * one for one in took], "ms") for name, took in ticks.items()
    ]
    figures += [
        Figure(f"{name}, times none", median(b / a for a, b in zip(ticks["none"], ticks[name], strict=True)), "x")
        for name in ("half", "half, full")
    ]
    here.prepare(HALF, 20, 0)
    figures.append(middle("idle tick", [1000 * here.tick(0) for _ in range(20)], "ms"))
    for keys in (BLOCKED, KEYS, 10):
        here.block(keys)
        walk: Callable[[], float] = here.walk
        figures.append(middle(f"step, {BLOCKED:,} blocked, {keys:,} pairs", [1000 * walk() for _ in range(5)], "ms"))
    return figures


def main() -> None:
    chosen = parser(__doc__, tasks=200_000, due=100_000, rounds=3).parse_args()
    with stage(chosen.tasks) as on:
        show(measure(on, chosen.due, chosen.rounds), chosen.json, {"tasks": chosen.tasks})


if __name__ == "__main__":
    main()
