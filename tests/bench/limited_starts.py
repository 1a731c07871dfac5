"""What limits by key cost a start: a part of `python -m tests.bench limits`.

none       tasks without limits
one host   tasks with two limits: that of the host, which all tasks of a job share, and that of the account, which is their own
hosts      the same, and each task of a job has another host

A host has a limit of active runs and a rate. In each round, one way after the other makes the same number of starts, once as
groups of 50 in one statement, and once one by one. Ends are not measured: between rounds, the tables are made fresh. Each key has
all the slots that its limit allows, as after a while: a new one has ten, and then twice as many whenever none is free.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from statistics import median
from uuid import uuid4

import wrappers
from tests.bench import usage
from tests.bench.figures import Figure, Stage, middle, timed
from ticker.settings import Settings
from wrappers.pipeline import start
from wrappers.pipeline.context import Call
from wrappers.pipeline.database import Database

GROUP, HOSTS = 50, 50
WARM = 4  # groups, and single starts: the first ones prepare and plan each statement on the new connection
FRESH = """
UPDATE ticker.tasks SET function = %(function)s, limits = {limits}, waiting = ARRAY[date_trunc('second', clock_timestamp())],
    next_run = clock_timestamp() + interval '5 minutes', last_run = NULL, last_occurrence = NULL, running_until = NULL,
    run_token = NULL"""
FREE = "DELETE FROM ticker.slots; DELETE FROM ticker.limited_keys; TRUNCATE ticker.runs"
ALL_SLOTS = """
INSERT INTO ticker.slots (key, kind, n)
SELECT key, kind, n FROM ticker.limited_keys, LATERAL (VALUES ('run', concurrency), ('start', burst)) AS one (kind, size),
    generate_series(1, size) n ON CONFLICT DO NOTHING"""
WAYS = {
    "none": "NULL",
    "one host": "ARRAY['host:' || id / 100, 'account:' || id]",
    "hosts": f"ARRAY['host:' || id %% {HOSTS}, 'account:' || id]",
}


class Starts:
    """Makes starts of all tasks of a stage. Those with and without limits have functions of their own, as in production."""

    def __init__(self, on: Stage) -> None:
        self.on = on
        for way in WAYS:
            wrappers.task(f"bench.{way.replace(' ', '_')}")(lambda: None)
        most = max(on.tasks // HOSTS + 1, 100)
        on.db.execute(
            "INSERT INTO ticker.limits (key, concurrency, rate, period_ms, burst) VALUES"
            " ('host:*', %(most)s, %(most)s, 3600000, %(most)s), ('account:*', 1, NULL, NULL, NULL)",
            {"most": most},
        )

    def prepare(self, way: str, database: Database) -> list[Call]:
        """Makes all tasks wait for their start. Returns their calls, in the order of their ids."""
        db, function = self.on.db, f"bench.{way.replace(' ', '_')}"
        db.execute(FREE)
        db.execute(FRESH.format(limits=WAYS[way]), {"function": function})
        db.execute(ALL_SLOTS)
        for table in ("tasks", "slots", "limited_keys"):
            db.execute(f"VACUUM ANALYZE ticker.{table}")
        return [
            Call(task_id=id_, occurrence=occurrence, planned=None, job_id="j", worker="w", rq_timeout=None,
                 settings=Settings(), database=database, function=function)
            for id_, occurrence in db.execute("SELECT id, waiting[1] FROM ticker.tasks ORDER BY id")
        ]  # fmt: skip

    def grouped(self, way: str) -> tuple[float, float]:
        """Returns the seconds of CPU of PostgreSQL, and the seconds, for each start."""
        with closing(Database(self.on.database_url, "ticker")) as database:
            calls = self.prepare(way, database)
            groups = [calls[first : first + GROUP] for first in range(0, len(calls), GROUP)]
            for group in groups[:WARM]:
                start_all(group)
            pid, number = usage.postmaster(self.on), sum(map(len, groups[WARM:]))
            before = usage.cpu([pid])
            seconds = timed(lambda: [start_all(group) for group in groups[WARM:]])
            return (usage.cpu([pid]) - before) / number, seconds / number

    def single(self, way: str, number: int) -> float:
        """Returns the median of the seconds that a start takes."""
        with closing(Database(self.on.database_url, "ticker")) as database:
            calls = self.prepare(way, database)[: WARM + number]
            return median([timed(lambda call=call: start_one(call)) for call in calls][WARM:])  # type: ignore[misc]


def start_all(calls: Sequence[Call]) -> None:
    answers = start.ask_all(calls, [str(uuid4()) for _ in calls])
    assert all(isinstance(answer, Call) for answer in answers), answers


def start_one(call: Call) -> None:
    answer = start.ask(call)
    assert isinstance(answer, Call), answer


def measure(on: Stage, rounds: int, number: int = 500) -> Iterator[Figure]:
    """Yields the medians over the rounds, and of the ratios within a round."""
    starts = Starts(on)
    grouped: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    single: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            grouped[way].append(starts.grouped(way))
            single[way].append(starts.single(way, number))
    for way in WAYS:
        cpu = [1000 * cpu for cpu, _ in grouped[way]]
        yield middle(f"grouped start, CPU of PostgreSQL: {way}", cpu, "ms", "at most 0.3" if way != "none" else "")
        yield middle(f"grouped start: {way}", [1000 * seconds for _, seconds in grouped[way]], "ms")
    for way in WAYS:
        yield middle(f"single start: {way}", [1000 * seconds for seconds in single[way]], "ms")
    for way in ("one host", "hosts"):
        cpu = [b / a for (a, _), (b, _) in zip(grouped["none"], grouped[way], strict=True)]
        yield Figure(f"grouped start, CPU of PostgreSQL: {way}, times none", median(cpu), "x", max(cpu))
        ratios = [b / a for a, b in zip(single["none"], single[way], strict=True)]
        yield Figure(f"single start: {way}, times none", median(ratios), "x", max(ratios), "at most 1.5")
