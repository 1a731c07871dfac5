"""`python -m tests.faults.soak --hours 8`: many light tasks under kills, and a sum at the end that has to come out even.

3,000 tasks of 10 to 60 s, some 100 starts a second, most of them in batches of 50: what two cores carry. Workers, horses and
tickers are killed every few seconds, and Redis is emptied now and then; nobody edits a task. After that, each occurrence that
Redis has stored has exactly one record, or still waits. What nothing kills must not grow meanwhile (`gauges.py`).
"""

import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import click

import ticker
from tests.faults import gauges
from tests.faults.checks.jobs import SCHEDULED
from tests.faults.checks.records import NO_JOB_BEFORE
from tests.faults.journal import Journal
from tests.faults.nemesis import Nemesis, Planned
from tests.faults.play import Spare, clocked, ill, let_end
from tests.faults.stage import Stage, opened
from ticker.db.connections import connect

TASKS = 3000
SHORTEST, LONGEST = 10.0, 60.0  # seconds: intervals
SINGLES = 0.06  # of all tasks: each of their runs costs a process
KILLS = ("worker_killed", "horse_killed", "horse_killed", "keeper_killed", "ticker_killed", "worker_terminated")
BETWEEN_KILLS, BETWEEN_WIPES = 3.0, 300.0  # seconds, on average
SHOWN = 20  # occurrences of each wrong kind

Occurrence = tuple[int, int]
"""A task, and microseconds since 1970."""


@dataclass(frozen=True)
class Sum:
    """What was stored, and what the tables know of it."""

    stored: frozenset[Occurrence]
    records: Counter[Occurrence]
    waiting: frozenset[Occurrence]
    outcomes: Counter[str]

    @property
    def wrong(self) -> dict[str, list[Occurrence]]:
        return {
            "with two records": sorted(one for one, count in self.records.items() if count > 1),
            "without a record": sorted(self.stored - self.records.keys() - self.waiting),
            "with a record, and waiting": sorted(self.records.keys() & self.waiting),
            "with a record, and never stored": sorted(self.records.keys() - self.stored),
            "waiting, and never stored": sorted(self.waiting - self.stored),
        }

    def __str__(self) -> str:
        told = ", ".join(f"{name} {count}" for name, count in self.outcomes.most_common())
        return "\n".join([
            f"{len(self.stored)} occurrences pushed = {self.records.total()} records + {len(self.waiting)} waiting",
            *(f"{len(found)} {what}{': ' if found else ''}{found[:SHOWN] or ''}" for what, found in self.wrong.items()),
            f"outcomes: {told}",
        ])  # fmt: skip


@click.command()
@click.option(
    "--minutes", default=30.0, show_default=True, type=click.FloatRange(min=0.5), help="How long kills go on."
)
@click.option("--hours", type=click.FloatRange(min=0.1), help="The same, in hours.")
@click.option("--seed", default=1, show_default=True, help="What intervals and kills are drawn from.")
@click.option("--tasks", default=TASKS, show_default=True, type=click.IntRange(min=10), help="How many there are.")
@click.option(
    "--singles", default=SINGLES, show_default=True, type=click.FloatRange(0, 1), help="The share that has own jobs."
)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the history is written and kept.")
def main(minutes: float, hours: float | None, seed: int, tasks: int, singles: float, folder: Path | None) -> None:
    """Runs many light tasks under kills, and sums up."""
    minutes = 60 * hours if hours else minutes
    place = folder or Path(tempfile.mkdtemp(prefix="ticker-soak-"))
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o755)
    spare = Spare()
    unhealed, found, samples, keys = soak(place, minutes * 60, seed, tasks, singles)
    unhealed += gauges.grown(samples) + gauges.forgotten(keys)
    wrong = [*unhealed, *(what for what, occurrences in found.wrong.items() if occurrences)]
    click.echo(f"{tasks} tasks, {minutes:g} minutes, seed {seed}; processors left {spare():.0%}")
    click.echo("\n".join([str(found), *gauges.shown(samples), f"keys left in Redis: {dict(sorted(keys.items()))}"]))
    for sentence in unhealed:
        click.echo(f"VIOLATION {sentence}")
    if wrong:
        click.echo(f"history kept in {place}")
        sys.exit(1)
    if folder is None:
        shutil.rmtree(place)


def soak(
    folder: Path, seconds: float, seed: int, tasks: int, singles: float
) -> tuple[list[str], Sum, list[gauges.Sample], Counter[str]]:
    """What did not recover by itself, the sum, what was measured meanwhile, and the keys that are left in Redis."""
    with Journal(folder) as events, opened(folder, events) as stage:
        register(stage, seed, tasks, singles)
        spared = stage.another_ticker("ticker-spared"), stage.another_worker("worker-spared")
        with clocked(stage):
            nemesis = Nemesis(stage, kills(seed, seconds), folder, lambda since: ill(stage, since))
            with stage.playing(), stage.ended(spared):
                with gauges.measured(stage, seconds, spared, folder) as samples:
                    nemesis.play(seconds)
                let_end(stage)
                dead = [f"{process.name} ended, and nothing had killed it" for process in spared if process.is_gone()]
        keys = gauges.leftovers(stage)
        records, outcomes = recorded(stage)
        waiting = frozenset(still_waiting(stage))
    found = Sum(frozenset(stored(folder)), records, waiting, outcomes)  # the proxies have written all
    return [*nemesis.unhealed, *dead], found, samples, keys


def register(stage: Stage, seed: int, tasks: int, singles: float) -> None:
    draw, now = Random(f"soak {seed}"), datetime.now(UTC)
    with connect(stage.postgres.url) as db, db.transaction():
        for number in range(tasks):
            every = round(draw.uniform(SHORTEST, LONGEST))
            function = "poll.light" if draw.random() < singles else "poll.light_batch"
            first = now + timedelta(seconds=draw.uniform(0, every))
            ticker.register(db, function, name=f"light {number}", every=f"{every}s", first=first)


def kills(seed: int, seconds: float) -> list[Planned]:
    """One storm: a kill every few seconds, and a FLUSHALL now and then."""
    draw = Random(f"soak {seed} kills")
    every = ((KILLS, BETWEEN_KILLS), (("redis_flushed",), BETWEEN_WIPES))
    planned = []
    for kinds, apart in every:
        offset = 0.0
        while (offset := offset + draw.expovariate(1 / apart)) < seconds:
            planned.append(Planned(0, round(offset, 3), 0.0, draw.choice(kinds), draw.randrange(10**9)))
    return sorted(planned, key=lambda fault: fault.offset)


def stored(folder: Path) -> Iterator[Occurrence]:
    """What the proxies saw Redis store; of a batch, each that it carried. All of it is committed: a tick that died pushes the
    same occurrences again, as nobody edits a task, and the last ones have ended."""
    for path in sorted(folder.glob("redis-*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in map(json.loads, lines):
                if (
                    line["event"] == "push"
                    and line["answer"] == "stored"
                    and (match := SCHEDULED.fullmatch(line["job"]))
                ):
                    yield int(match[1]), int(match[2])


def recorded(stage: Stage) -> tuple[Counter[Occurrence], Counter[str]]:
    """Of what had a job."""
    query = """SELECT task_id, (extract(epoch FROM occurrence) * 1000000)::bigint, coalesce(outcome, state::text) || CASE
        WHEN outcome = 'dropped' THEN ' ' || reason ELSE '' END, reason FROM ticker.runs WHERE kind = 'scheduled'"""
    with connect(stage.postgres.url) as db:
        rows = [row for row in db.execute(query) if row[3] not in NO_JOB_BEFORE]
    return Counter((task, occurrence) for task, occurrence, *_ in rows), Counter(told for *_, told, _ in rows)


def still_waiting(stage: Stage) -> Iterator[Occurrence]:
    query = "SELECT id, (extract(epoch FROM w) * 1000000)::bigint FROM ticker.tasks, unnest(waiting) w"
    with connect(stage.postgres.url) as db:
        yield from db.execute(query)


if __name__ == "__main__":
    main()
