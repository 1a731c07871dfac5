"""Says which tasks are late. The rule `late` (ticker/db/sql/rules.sql) says the same."""

from datetime import datetime

from ticker import settings
from ticker.engine import timing
from ticker.schedules.duration import SECOND
from ticker.tasks.fields import Task

LEAST_WAIT = 30 * SECOND
LEAST_GRACE = 5 * SECOND


def late_ms() -> int:
    """Returns after how many milliseconds a task that has not started is late, not counting its grace: a tick, but at
    least 30 s.

    The grace is the task's tolerance, but at least 5 s: for the tick, and for a worker that takes the job.
    """
    return max(LEAST_WAIT, settings.current().tick_ms)


def due_since(next_run: datetime, task: Task) -> datetime:
    """Returns since when the task has been due. Time during which it was paused or disabled does not count."""
    return max(next_run, task.resumed_at or next_run)


def late_since(task: Task, now: datetime) -> datetime | None:
    """Returns since when the task has been due without a start, whether a job of it waits or not; None if it is not
    late.
    """
    if not task.is_runnable:
        return None
    bound = now - timing.span(late_ms() + max(task.tolerance_ms, LEAST_GRACE))
    due = (*task.waiting[:1], *([due_since(task.next_run, task)] if task.next_run and not task.is_held_back else []))
    return min((since for since in due if since < bound), default=None)
