"""Reads the current state: tasks, limits and tickers in the database, queues in Redis. Writes and locks nothing."""

from collections.abc import Collection, Mapping
from dataclasses import asdict

from ticker.db.steps import Steps
from ticker.metrics.families import Figures
from ticker.queue.rq import RedisQueue
from ticker.read import overview, workers
from ticker.read import tasks as read_tasks
from ticker.tasks.rows import query

QUEUES_AT_MOST = LIMITS_AT_MOST = 200

COUNTS = {
    "ticker_tasks": "tasks", "ticker_tasks_late": "late", "ticker_tasks_no_room": "no_room",
    "ticker_tasks_queue_full": "queue_full", "ticker_tasks_waits_for_its_turn": "waits_for_its_turn",
    "ticker_tasks_failing": "failing",
    "ticker_tasks_paused": "paused", "ticker_tasks_inactive": "inactive", "ticker_tasks_waiting": "waiting", "ticker_tasks_unknown_function": "unknown_function",
    "ticker_runs_running": "running", "ticker_runs_planned": "planned",
}  # fmt: skip
OF_LIMITS = {
    "ticker_limit_active_runs": "active", "ticker_limit_concurrency": "concurrency", "ticker_limit_used_starts": "starts",
    "ticker_limit_burst": "burst", "ticker_limit_waiting_tasks": "waiting", "ticker_limit_closed_keys": "closed",
}  # fmt: skip


def tasks() -> Steps[Figures]:
    counted = asdict((yield from overview.counts.steps()))
    [oldest] = yield query("oldest_due")
    [pauses] = yield query("use_of_pauses", most=overview.COUNTED_AT_MOST)
    return {
        **{name: {(): counted[field]} for name, field in COUNTS.items()},
        "ticker_oldest_due_age_seconds": {(): oldest["seconds"]},
        "ticker_pauses": {(): pauses["in_force"]},
        "ticker_pause_waiting_tasks": {(): pauses["waiting"]},
    }


def limits() -> Steps[Figures]:
    """Returns the figures of the first 200 declared limits by key. A limit without a rate has no figures of starts."""
    rows = yield query("use_of_limits", limit=LIMITS_AT_MOST)
    return {
        name: {(row["key"],): row[column] for row in rows if row[column] is not None}
        for name, column in OF_LIMITS.items()
    }


def tickers() -> Steps[Figures]:
    """Returns the figures of tickers. After the clock has been set back, a heartbeat 5 s ahead counts as 5 s old."""
    beats = yield from read_tasks.tickers.steps(ended=True)
    newest = [beat.last_tick_at for beat in beats if beat.last_tick_at is not None]
    return {
        "ticker_tickers_alive": {(): sum(beat.ticks() for beat in beats)},
        "ticker_last_tick_timestamp_seconds": {(): max(newest).timestamp()} if newest else {},
    }


def queues(queue: RedisQueue, names: Collection[str]) -> Figures:
    """Returns the figures of these queues. Raises QueueUnavailable."""
    staff = queue.staff(names)
    return {
        "ticker_queue_jobs": {(name,): staff.waiting[name] for name in names},
        "ticker_queue_unattended_jobs": {(name,): staff.unattended.get(name, 0) for name in names},
    }


def needs() -> Steps[Figures]:
    """Returns the figures of queues whose needs are known."""
    known = [need for need in (yield from workers.needs.steps()) if not need.is_old][:QUEUES_AT_MOST]
    numbers = {"average": "average", "needed": "enough", "available": "available"}
    return {
        f"ticker_queue_workers_{name}": {
            (need.queue,): value for need in known if (value := getattr(need, field)) is not None
        }
        for name, field in numbers.items()
    }


class Waiting:
    """The queues in which jobs of tasks have waited. A queue that is now empty reports 0 instead of vanishing."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def look(self) -> Steps[Figures]:
        rows = yield query("waiting_in_queues")
        ages: Mapping[str, float] = {row["queue"]: row["seconds"] for row in rows}
        for name in ages:
            if len(self.seconds) < QUEUES_AT_MOST:
                self.seconds.setdefault(name, 0.0)
        self.seconds = {name: ages.get(name, 0.0) for name in self.seconds}
        return {"ticker_queue_oldest_waiting_seconds": {(name,): age for name, age in self.seconds.items()}}
