"""Lists every metric, with its name, its labels and its help text. Times are in seconds.

Labels are functions, queues, declared limits, outcomes and reasons, which are few. Owners, tasks and hosts are never
labels.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

from ticker.read.journal import ENDED, REASONS

TICKS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
DELAYS = (0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 45, 60, 120, 300, 600, 1800, 3600)
DURATIONS = (0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
"""Shares of the box. A run above 1 was in its grace, or was killed."""


class Family(NamedTuple):
    """One metric: a histogram if it has `bounds`, else a counter if its name ends in `_total`, else a gauge."""

    name: str
    words: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


class Histogram:
    """Counts values by the first bound that they do not exceed, and adds them up."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = (*map(float, bounds), inf)
        self._counts = [0] * len(self.bounds)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self.put(bisect_left(self.bounds, value), 1, value)

    def put(self, bound: int, count: int, sum_: float) -> None:
        """Adds `count` values at once. `bound` is the index of their bound."""
        self._counts[bound] += count
        self._sum += sum_

    def read(self) -> tuple[list[tuple[str, int]], float]:
        """Returns each bound with the number of values up to it, and the sum of all values."""
        names = ("+Inf" if bound == inf else str(bound) for bound in self.bounds)
        return list(zip(names, accumulate(self._counts), strict=True)), self._sum


Figures = Mapping[str, Mapping[tuple[str, ...], Any]]
"""The values of metrics, by name and by the values of their labels: numbers, or what a histogram reads.

Values that are unknown at the moment are left out."""

OF_A_PROCESS = (
    Family("ticker_tick_last_timestamp_seconds", "Start of the last tick of this process, by the database's clock."),
    Family("ticker_tick_duration_seconds", "Duration of the ticks of this process, without failed ones.", (), TICKS),
    Family("ticker_tick_failures_total", "Failed ticks of this process, mostly because a server was unavailable."),
    Family("ticker_tick_due_total", "Due tasks and planned runs that the ticks of this process found."),
    Family("ticker_tick_enqueued_total", "Jobs pushed by the ticks of this process."),
    Family("ticker_tick_held_total", "Jobs that Redis already had, after a crash."),
    Family("ticker_tick_errors_total", "Tasks that could not be pushed and stay due."),
    Family("ticker_tick_repushed_total", "Jobs pushed again because they were gone."),
    Family("ticker_tick_expired_total", "Waiting occurrences given up because newer ones were waiting."),
    Family("ticker_tick_lost_total", "Runs and jobs recorded as lost."),
    Family("ticker_tick_retries_total", "Planned retries."),
    Family("ticker_tick_enough_jobs_total", "Occurrences that got no job because enough jobs of their tasks waited, or because one would have overlapped."),
    Family("ticker_polls_saved_total", "Polls that elastic intervals saved: pushes of this process that their lower bounds would have added."),
    Family("ticker_push_delay_seconds", "Time from an occurrence to the push of its job by this process.", ("function",), DELAYS),
)  # fmt: skip

OF_THE_DATABASE = (
    Family("ticker_database_up", "1 if PostgreSQL answered this scrape, else 0. At 0, the metrics read from it are missing."),
    Family("ticker_redis_up", "1 if Redis answered this scrape, else 0. At 0, the metrics read from it are missing."),
    Family("ticker_last_tick_timestamp_seconds", "Start of the newest tick of any ticker, by the database's clock."),
    Family("ticker_tickers_alive", "Tickers at work whose ticks do not fail. A ticker counts until it is silent for 15 s (three ticks if that is longer)."),
    Family("ticker_tasks", "Tasks; an estimate above 100,000."),
    Family("ticker_tasks_late", "Tasks that have been due for longer than a tick (at least 30 s) and their tolerance, and have not started."),
    Family("ticker_tasks_no_room", "Due tasks that the last tick did not push because a key has no room. They are not late."),
    Family("ticker_tasks_queue_full", "Due tasks that the last tick did not push because their queue is full (`TICKER_QUEUE_DEPTH`)."),
    Family("ticker_tasks_waits_for_its_turn", "Due tasks that the last tick did not push because suspected tasks take turns."),
    Family("ticker_tasks_failing", "Tasks whose last run failed."),
    Family("ticker_tasks_paused", "Tasks with a pause of their own, and due tasks that wait for a pause of many tasks."),
    Family("ticker_pauses", "Pauses of many tasks that are in force."),
    Family("ticker_pause_waiting_tasks", "Due tasks that wait for a pause of many tasks, or for their turn after it."),
    Family("ticker_tasks_inactive", "Tasks that are disabled, or whose owner is inactive."),
    Family("ticker_tasks_unknown_function", "Tasks whose function no worker has announced, although workers have announced others."),
    Family("ticker_tasks_waiting", "Tasks with jobs waiting for a worker."),
    Family("ticker_runs_running", "Runs in progress."),
    Family("ticker_runs_planned", "Planned runs not pushed yet: manual runs, retries and pieces."),
    Family("ticker_oldest_due_age_seconds", "How long the longest overdue task has been due; 0 if no task is due."),
    Family("ticker_queue_oldest_waiting_seconds", "How long ago the oldest waiting occurrence of a queue was due.", ("queue",)),
    Family("ticker_queue_jobs", "Jobs waiting in a queue, including those of other applications.", ("queue",)),
    Family("ticker_queue_unattended_jobs", "Jobs waiting in a queue to which no worker listens; else 0.", ("queue",)),
    Family("ticker_queue_workers_average", "Workers of a queue that are busy on average.", ("queue",)),
    Family("ticker_queue_workers_needed", "Workers that a queue needs: busy for at most 70% of the time, and in time for what is due at once.", ("queue",)),
    Family("ticker_queue_workers_available", "Workers that listen to a queue. One that listens to several counts for its share of each.", ("queue",)),
    Family("ticker_limit_active_runs", "Active runs of the keys of a limit.", ("limit",)),
    Family("ticker_limit_concurrency", "How many runs of the keys of a limit may be active at the same time.", ("limit",)),
    Family("ticker_limit_used_starts", "Tokens of the rate of a limit that are used up.", ("limit",)),
    Family("ticker_limit_burst", "How many runs of the keys of a limit may start at once.", ("limit",)),
    Family("ticker_limit_waiting_tasks", "Tasks that have waited for the keys of a limit for longer than their interval.", ("limit",)),
    Family("ticker_limit_closed_keys", "Keys of a limit that are closed (SlowDown).", ("limit",)),
    Family("ticker_runs_total", "Ended runs.", ("function", "outcome")),
    Family("ticker_drops_total", "Dropped jobs.", ("function", "reason")),
    Family("ticker_start_delay_seconds", "Time from when a run was due to its start.", ("function",), DELAYS),
    Family("ticker_queue_delay_seconds", "Time from the push of a planned run to its start.", ("function",), DELAYS),
    Family("ticker_run_duration_seconds", "Time from the start of a run to its end.", ("function",), DURATIONS),
    Family("ticker_run_quota_used_ratio", "Share of its box that a run used.", ("function",), SHARES),
)  # fmt: skip

BY_NAME = {family.name: family for family in (*OF_A_PROCESS, *OF_THE_DATABASE)}
WORDS: Mapping[str, Sequence[str]] = {"ticker_runs_total": ENDED, "ticker_drops_total": REASONS}
"""The possible values of the second label of these metrics."""
