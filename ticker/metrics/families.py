"""Every metric: its name, its labels, and what it says. Times are in seconds.

Labels are functions, queues, outcomes and reasons, of which there are few: never owners, tasks or hosts.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ticker.read.journal import ENDED, REASONS

TICKS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
DELAYS = (0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 45, 60, 120, 300, 600, 1800, 3600)
DURATIONS = (0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
"""Of the box: a run beyond 1 was in its grace, or was killed."""


class Family(NamedTuple):
    """One metric. With `bounds` it is a histogram; else a counter if its name ends in `_total`, or a gauge."""

    name: str
    words: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


class Histogram:
    """How many values lie up to each bound, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.put(bisect_left(self.bounds, value), 1, value)

    def put(self, bound: int, count: int, sum_: float) -> None:
        """So many values at once; `bound` is the number of the first that none of them is over."""
        self.counts[bound] += count
        self.sum += sum_

    def copy(self) -> "Histogram":
        other = Histogram(self.bounds)
        other.counts, other.sum = [*self.counts], self.sum
        return other


Values = Mapping[tuple[str, ...], float | Histogram]
"""Of one metric: its value for the values of its labels."""

Figures = Mapping[str, Values]
"""The values of metrics by their names. What is not known just now is left out."""

OF_A_PROCESS = (
    Family("ticker_tick_last_timestamp_seconds", "When the last tick of this process began, by the database's clock."),
    Family("ticker_tick_duration_seconds", "How long the ticks of this process took, but for those that failed.", (), TICKS),
    Family("ticker_tick_failures_total", "Ticks of this process that failed, mostly as a server was away."),
    Family("ticker_tick_due_total", "Due tasks and planned runs that the ticks of this process found."),
    Family("ticker_tick_enqueued_total", "Jobs that they pushed."),
    Family("ticker_tick_held_total", "Jobs that Redis had already, after a crash."),
    Family("ticker_tick_errors_total", "Tasks that could not be pushed; they stay due."),
    Family("ticker_tick_repushed_total", "Jobs that were pushed again, as Redis had lost them."),
    Family("ticker_tick_expired_total", "Waiting occurrences that were given up, as newer ones waited."),
    Family("ticker_tick_lost_total", "Runs and jobs that were ended as lost."),
    Family("ticker_tick_retries_total", "Retries that were planned."),
    Family("ticker_push_delay_seconds", "From an occurrence to the push of its job by this process.", ("function",), DELAYS),
)  # fmt: skip

OF_THE_DATABASE = (
    Family("ticker_database_up", "Whether PostgreSQL answered this scrape: 1 or 0. At 0 nothing that it tells is there."),
    Family("ticker_redis_up", "Whether Redis answered this scrape: 1 or 0. At 0 nothing that it tells is there."),
    Family("ticker_last_tick_timestamp_seconds", "When the newest tick of any ticker began, by the database's clock."),
    Family("ticker_tickers_alive", "Tickers that have ticked within 90 s (three ticks if that is longer) and were not stopped."),
    Family("ticker_tasks", "Tasks; an estimate where there are over 100,000."),
    Family("ticker_tasks_late", "Tasks that are due for longer than two ticks."),
    Family("ticker_tasks_failing", "Tasks whose last run failed."),
    Family("ticker_tasks_paused", "Tasks that are paused."),
    Family("ticker_tasks_inactive", "Tasks that are disabled, or whose owner is inactive."),
    Family("ticker_tasks_waiting", "Tasks with jobs that wait for a worker."),
    Family("ticker_runs_running", "Runs at work."),
    Family("ticker_runs_planned", "Planned runs that are not pushed yet: manual ones, retries, pieces."),
    Family("ticker_oldest_due_age_seconds", "For how long the task that is due for longest has been so; 0 if none is due."),
    Family("ticker_queue_oldest_waiting_seconds", "Since when the oldest occurrence that waits in a queue was due.", ("queue",)),
    Family("ticker_queue_jobs", "Jobs that wait in a queue, those of others included.", ("queue",)),
    Family("ticker_queue_unattended_jobs", "Jobs that wait in a queue to which no worker listens; else 0.", ("queue",)),
    Family("ticker_runs_total", "Runs that ended.", ("function", "outcome")),
    Family("ticker_drops_total", "Jobs that were dropped.", ("function", "reason")),
    Family("ticker_start_delay_seconds", "From when a run was due to its start.", ("function",), DELAYS),
    Family("ticker_queue_delay_seconds", "From the push of a planned run to its start.", ("function",), DELAYS),
    Family("ticker_run_duration_seconds", "From the start of a run to its end.", ("function",), DURATIONS),
    Family("ticker_run_quota_used_ratio", "The share of its box that a run lasted.", ("function",), SHARES),
)  # fmt: skip

BY_NAME = {family.name: family for family in (*OF_A_PROCESS, *OF_THE_DATABASE)}
WORDS: Mapping[str, Sequence[str]] = {"ticker_runs_total": ENDED, "ticker_drops_total": REASONS}
"""What the second label of these may be."""
