"""How things stand just now: tasks and tickers in the database, queues in Redis. Nothing is written or locked."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime

from ticker import clock
from ticker.db import sql
from ticker.metrics.families import Figures
from ticker.queue.rq import RedisQueue
from ticker.read import overview
from ticker.read.health import longest_silence
from ticker.schedules.duration import SECOND

QUEUES_AT_MOST = 200

COUNTS = {
    "ticker_tasks": "tasks", "ticker_tasks_late": "late", "ticker_tasks_failing": "failing", "ticker_tasks_paused": "paused",
    "ticker_tasks_inactive": "inactive", "ticker_tasks_waiting": "waiting", "ticker_runs_running": "running",
    "ticker_runs_planned": "planned",
}  # fmt: skip


def tasks(execute: sql.Execute) -> Figures:
    counted = asdict(overview.counts(execute))
    [oldest] = execute("oldest_due", now=clock.now())
    return {
        **{name: {(): counted[field]} for name, field in COUNTS.items()},
        "ticker_oldest_due_age_seconds": {(): oldest["seconds"]},
    }


def tickers(execute: sql.Execute, tick_ms: int) -> Figures:
    """A heartbeat from before the clock was set back is as old as it is far ahead."""
    beats = [row for row in execute("tickers") if row["last_tick_at"] is not None]
    most = longest_silence(tick_ms) / SECOND
    ages = [abs(row["age"]) for row in beats if "ended" not in row["last_report"]]
    newest: list[datetime] = [row["last_tick_at"] for row in beats]
    return {
        "ticker_tickers_alive": {(): sum(age <= most for age in ages)},
        "ticker_last_tick_timestamp_seconds": {(): max(newest).timestamp()} if newest else {},
    }


def queues(queue: RedisQueue, names: Iterable[str]) -> Figures:
    """Of these queues. QueueUnavailable."""
    chosen = [*names]
    unattended = queue.unattended()
    return {
        "ticker_queue_jobs": {(name,): length for name, length in queue.lengths(chosen).items()},
        "ticker_queue_unattended_jobs": {(name,): unattended.get(name, 0) for name in chosen},
    }


class Waiting:
    """The queues in which jobs of tasks have waited: one that is empty now has a 0, and does not vanish."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def look(self, execute: sql.Execute) -> Figures:
        found: Mapping[str, float] = {
            row["queue"]: row["seconds"] for row in execute("waiting_in_queues", now=clock.now())
        }
        for name in found:
            if len(self.seconds) < QUEUES_AT_MOST:
                self.seconds.setdefault(name, 0.0)
        self.seconds = {name: found.get(name, 0.0) for name in self.seconds}
        return {"ticker_queue_oldest_waiting_seconds": {(name,): age for name, age in self.seconds.items()}}
