"""Texts for times: one file per kind, all pure. Intervals for now; cron, calendar and once follow the same shape."""

from datetime import datetime

from ticker.errors import BadInput
from ticker.schedules.interval import Interval
from ticker.task import DueTask


def next_run(task: DueTask, now: datetime) -> datetime:
    """When a task that was pushed at `now` is due again; BadInput for a row that this release cannot schedule."""
    if task.every_ms <= 0:
        raise BadInput("every_ms", task.every_ms, "is no interval, and this release schedules nothing else")
    return Interval(task.every_ms).next_after(now)
