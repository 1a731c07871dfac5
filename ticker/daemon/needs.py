"""Measures how many workers each queue needs, and stores it. `ticker.read.workers` reads it."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ticker import clock
from ticker.db.sql import Row
from ticker.db.store import PostgresStore
from ticker.engine import workers
from ticker.engine.workers import Durations, Function, Load, Ticks
from ticker.settings import Settings

HUNG = ("timed_out", "killed")
EVERY = 120_000  # milliseconds between two measurements, by any ticker
SHOWN = 200  # functions of a queue that are stored: those with most starts
OTHER = "(other)"
"""The name under which minutes add up the functions beyond the first 200."""
Key = tuple[str, str]
"""A queue and a function."""


def measure(store: PostgresStore, settings: Settings) -> bool:
    """Stores the needs of all queues that tasks use, unless a ticker has done so a moment ago. Returns whether it did."""
    now = clock.now()
    [last] = store.execute("last_needs", now=now, every_ms=EVERY)
    if last["are_new"]:
        return False
    tasks = store.execute("demand", now=now, percent=100 / last["weight"], tick_ms=settings.tick_ms)
    measured = store.execute("measured")
    queues = functions(tasks, measured, last["weight"])
    period = settings.tick_ms / 1000
    ticks = Ticks(period, period - last["ticked"] % period)
    with store.transaction() as execute:
        for queue, of_queue in queues.items():
            known = [one for one in of_queue.values() if one.durations.count]
            need = Load(known, ticks, last["weight"], workers.STARTS // min(len(queues), 10)).need()
            is_known = all(one.durations.count or not one.starts for one in of_queue.values())
            execute(
                "write_need", now=now, queue=queue, average=need.average, enough=need.enough if is_known else None,
                functions=json.dumps(described(of_queue, last["weight"])),
            )  # fmt: skip
        execute("forget_needs", queues=[*queues])
    return True


def functions(tasks: Iterable[Row], measured: Iterable[Row], weight: float) -> dict[str, dict[str, Function]]:
    """Returns what each queue has to run, by function. Each task that was read stands for `weight` tasks."""
    of_key: dict[Key, list[Row]] = defaultdict(list)
    for row in tasks:
        of_key[row["queue"], row["function"]].append(row)
    durations, rates = measured_durations(measured), measured_rates(measured, weight)
    used, queues = {queue for queue, _ in of_key}, defaultdict[str, dict[str, Function]](dict)
    for queue, name in sorted(
        {*of_key, *((queue, name) for queue, name, is_alone in rates if is_alone and queue in used)}
    ):
        known = (durations.get(key) for key in ((queue, name), ("", name), (queue, OTHER), ("", OTHER)))
        queues[queue][name] = function(
            of_key[queue, name], rates[queue, name, False], rates[queue, name, True], next(filter(None, known), Durations())
        )  # fmt: skip
    return queues


def measured_durations(measured: Iterable[Row]) -> dict[Key, Durations]:
    """Returns the durations of each function in each queue, and in all queues (""), which are those of a queue without runs.

    What ended in the same way has its own mean: what hangs, above all.
    """
    histograms = defaultdict(list)
    for row in measured:
        for queue in (row["queue"], "") if any(row["counts"]) else ():
            histograms[queue, row["function"]].append((row["counts"], row["took"], row["outcome"] in HUNG))
    return {key: workers.durations(found) for key, found in histograms.items()}


def measured_rates(measured: Iterable[Row], weight: float) -> dict[tuple[str, str, bool], float]:
    """Returns the starts per second by queue and function, separately for runs with jobs of their own: all but scheduled runs."""
    rates: dict[tuple[str, str, bool], float] = defaultdict(float)
    for row in measured:
        if row["seconds"]:
            rates[row["queue"], row["function"], row["kind"] != "scheduled"] += row["started"] / row["seconds"] / weight
    return rates


def function(tasks: Sequence[Row], scheduled: float, alone: float, durations: Durations) -> Function:
    """Returns what is known of a function in a queue, from its tasks and its measured starts per second.

    Work that a limit holds back does not count: what starts of it does. The same goes for tasks with other schedules.
    """
    due = [(row["due"], row["every"], row["is_spread"]) for row in tasks if row["every"]]
    steady = max(scheduled - sum(1 / every for _, every, _ in due), 0.0) if len(due) < len(tasks) else 0.0
    batch, concurrency = (tasks[0]["batch"], tasks[0]["concurrency"]) if tasks else (1, 1)
    return Function(durations, batch, concurrency, due, steady, alone)


def described(of_queue: Mapping[str, Function], weight: float) -> dict[str, dict[str, float | int | None]]:
    """Returns the demand and the durations of the functions with most starts, as JSON."""
    most = sorted(of_queue.items(), key=lambda one: -one[1].starts)[:SHOWN]
    return {
        name: {
            "starts_per_minute": round(60 * one.starts * weight, 3), "concurrency": one.concurrency,
            "mean_ms": round(1000 * one.durations.mean) if one.durations.count else None,
            "p95_ms": round(1000 * one.durations.quantile(0.95)) if one.durations.count else None,
        }
        for name, one in most
    }  # fmt: skip
