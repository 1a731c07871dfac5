"""Measures how many workers each queue needs, and stores it. `ticker.read.workers` reads it.

A need follows from the demand, and not from what has ended, which shows only the workers that exist. The demand of
interval tasks is known from their rows. Everything else counts by its starts in the last hour, and by what waits. The
starts per second, times the mean duration, over the runs that a worker has at the same time, are the workers that are
busy on average.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ticker.db.sql import Row
from ticker.db.store import PostgresStore
from ticker.read.workers import BUSY
from ticker.settings import Settings

EVERY = 120_000  # milliseconds between two measurements, by any ticker
TICKS = 2  # what is due at once should start within so many ticks
PATIENCE = 600  # seconds in which other work that waits should start
SHOWN = 200  # functions of a queue that are stored: those with most starts
OTHER = "(other)"
"""The name under which minutes add up the functions beyond the first 200."""


class Durations(NamedTuple):
    """The measured durations of a function, in seconds."""

    mean: float
    p95: float


class Demand(NamedTuple):
    """What a function asks of a queue: starts per second, and `waiting` ones in addition. `limits` let in no more than
    they allow.

    `due` tasks are due in the same two ticks, `window`. A run occupies one of `concurrency` places in a worker for
    `seconds`: at most, if its durations are unknown.
    """

    queue: str
    function: str
    durations: Durations | None
    seconds: float
    concurrency: int
    starts: float
    waiting: float = 0.0
    limits: Sequence[str] = ()
    window: int | None = None
    due: float = 0.0

    @property
    def rate(self) -> float:
        return self.starts + self.waiting


class Need(NamedTuple):
    """How many workers are busy on average with functions of known durations, and how many are enough for all. None if
    those of other functions may need more than one worker.
    """

    average: float
    enough: int | None


def measure(store: PostgresStore, settings: Settings) -> bool:
    """Stores the needs of all queues that tasks use, unless a ticker has done so a moment ago. Returns whether it did."""
    [last] = store.execute("last_needs", every_ms=EVERY)
    if last["are_new"]:
        return False
    tasks = store.execute("demand", weight=last["weight"], tick_ms=settings.tick_ms)
    limits = store.execute("capacities", keys=sorted({key for row in tasks for key in row["limits"] or ()}))
    demands = demanded(tasks, store.execute("measured"))
    found = needs(demands, limits, TICKS * settings.tick_ms / 1000)
    notes = [{"average": need.average, "functions": described(demands, queue)} for queue, need in found.items()]
    store.execute(
        "write_needs", queues=[*found], needed=[need.enough for need in found.values()], demands=[*map(json.dumps, notes)]
    )  # fmt: skip
    return True


def demanded(tasks: Iterable[Row], measured: Sequence[Row]) -> list[Demand]:
    """Returns the demand by tasks, and by the measured starts of what is no interval task, in all queues that tasks
    use.
    """
    durations = {
        (row["queue"], row["function"]): Durations(row["took"] / sum(row["counts"]), quantile(row["counts"], 0.95))
        for row in measured
        if any(row["counts"])
    }
    of_function: dict[tuple[str, str], list[Demand]] = defaultdict(list)
    others = Counter[tuple[str, str]]()
    for row in tasks:
        key = queue, function = row["queue"], row["function"]
        names = key, (None, function), (queue, OTHER), (None, OTHER)
        known = next((durations[name] for name in names if name in durations), None)
        others[key] += row["others"]
        of_function[key].append(Demand(
            *key, known, (known.mean if known else row["longest"]) + row["overhead"], row["concurrency"], row["rate"],
            row["waiting"] / PATIENCE, row["limits"] or (), row["window"], row["tasks"],
        ))  # fmt: skip
    used = {queue for queue, _ in of_function}
    for row in measured:
        key = row["queue"], row["function"]
        if demands := of_function.get(key):
            of_intervals = sum(one.starts for one in demands)
            scheduled = max(row["scheduled"] - of_intervals, 0.0) if others[key] else 0.0
            longest = max(demands, key=lambda one: one.seconds)
            demands.append(Demand(*longest[:5], scheduled + row["others"]))
        elif row["others"] and key[0] in used:  # manual runs, retries and pieces of tasks that are not due
            known = durations.get(key)
            of_function[key].append(Demand(*key, known, known.mean if known else math.inf, 1, row["others"]))
    return [one for demands in of_function.values() for one in demands]


def quantile(counts: Sequence[int], share: float) -> float:
    """Returns what this share of the values does not exceed. The first bucket ends at 50 ms, each further one at twice
    as much.
    """
    left, low, high = share * sum(counts), 0.0, 0.05
    for count in counts:
        if left <= count:
            return low + (high - low) * left / count
        left, low, high = left - count, high, 2 * high
    return low


def needs(demands: Sequence[Demand], limits: Iterable[Row], span: float) -> dict[str, Need]:
    """Returns the need of each queue. What is due within the same `span` of seconds should start within it."""
    of_key = {row["key"]: row for row in limits}
    known, unknown = [one for one in demands if one.durations], [one for one in demands if not one.durations]
    average, least, more = busy(known, of_key, 1.0), busy(known, of_key, BUSY), busy(unknown, of_key, BUSY)
    most = {queue: least[queue] + more[queue] for queue in sorted({one.queue for one in demands})}
    start_in_time(least, known, span)
    start_in_time(most, demands, span)
    return {
        queue: Need(
            average[queue], None if enough - least[queue] > 1 else math.ceil(enough - 0.01) or math.ceil(enough)
        )
        for queue, enough in most.items()
    }


def start_in_time(enough: dict[str, float], demands: Iterable[Demand], span: float) -> None:
    """Raises the workers of each queue to those that start within the span what is due within it."""
    at_once = defaultdict[tuple[str, int], float](float)
    for one in demands:
        if one.window is not None:
            at_once[one.queue, one.window] += one.due * min(one.seconds / span, 1.0) / one.concurrency
    for (queue, _), workers in at_once.items():
        enough[queue] = max(enough[queue], workers)


def busy(demands: Iterable[Demand], limits: Mapping[str, Row], share: float) -> dict[str, float]:
    """Returns how many workers of each queue do its work, if each is busy for this share of the time."""
    rates, active = defaultdict[str, float](float), defaultdict[str, float](float)
    for one in demands:
        for key in one.limits:
            rates[key] += one.rate
            active[key] += one.rate * one.seconds / share
    parts = dict.fromkeys(limits, 1.0)
    for key, limit in limits.items():
        for most, asked in (limit["rate"], rates[key]), (limit["places"], active[key]):
            if most is not None and asked > most:
                parts[key] = min(parts[key], most / asked)
    workers = defaultdict[str, float](float)
    for one in demands:
        part = min((parts[key] for key in one.limits if key in parts), default=1.0)
        workers[one.queue] += part * one.rate * one.seconds / share / one.concurrency
    return workers


def described(demands: Iterable[Demand], queue: str) -> dict[str, dict[str, float | int | None]]:
    """Returns the demand and the durations of the functions with most starts in a queue, as JSON."""
    starts, examples = defaultdict[str, float](float), dict[str, Demand]()
    for one in demands:
        if one.queue == queue:
            starts[one.function] += one.starts
            examples[one.function] = one
    return {
        name: {
            "starts_per_minute": round(60 * starts[name], 3),
            "concurrency": examples[name].concurrency,
            "mean_ms": round(1000 * durations.mean) if (durations := examples[name].durations) else None,
            "p95_ms": round(1000 * durations.p95) if durations else None,
        }
        for name in sorted(starts, key=lambda name: -starts[name])[:SHOWN]
    }
