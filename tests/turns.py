"""When suspected and guilty tasks wait for their turn, in Python: the rules `waits_for_turn` and `apart`, for the in-memory double."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from ticker.engine import timing
from ticker.engine.jobs import IN_TURN

GROUPED = "fetch"  # the function whose runs share their process with others
RECENTLY = timedelta(minutes=10)
SECOND = timedelta(seconds=1)


def is_suspected(task: Any, now: datetime) -> bool:
    return task.alone_until is not None and task.alone_until > now


def is_guilty(task: Any, now: datetime) -> bool:
    return is_suspected(task, now) and task.alone_until < timing.LATEST


def apart(task: Any, tasks: Iterable[Any], now: datetime) -> str:
    """Why the process of the task's job takes in no further jobs."""
    if task.function != GROUPED or not is_suspected(task, now):
        return ""
    return IN_TURN if is_guilty(task, now) or has_good(task, tasks, now) else "suspect"


def has_good(task: Any, tasks: Iterable[Any], now: datetime) -> bool:
    """Whether the function of the suspected task has other tasks in its queue."""
    return any(
        (one.queue, one.function) == (task.queue, task.function) and not is_suspected(one, now)
        and one.enabled and one.owner_active and one.paused_by is None and one.pause_id is None
        for one in tasks
    )  # fmt: skip


def waits_for_turn(task: Any, tasks: Iterable[Any], runs: Mapping[int, Any], now: datetime) -> bool:
    """Whether a job of suspected tasks of the function waits in the queue, or a guilty one runs or has taken its share of the time."""
    if task.function != GROUPED or not is_suspected(task, now):
        return False
    tasks = list(tasks)
    others = [one for one in tasks if one.function == task.function and is_suspected(one, now)]
    if any(one.queue == task.queue and has_job(one, runs, now) for one in others):
        return True
    return is_guilty(task, now) and any(is_guilty(one, now) and keeps_turn(one, tasks, runs, now) for one in others)


def has_job(task: Any, runs: Mapping[int, Any], now: datetime) -> bool:
    pushed = [run.pushed_at for run in runs.values() if run.state == "pushed" and run.task_id == task.id]
    return any(at is not None and abs(at - now) <= RECENTLY for at in [*task.waiting[-1:], *pushed])


def keeps_turn(task: Any, tasks: Iterable[Any], runs: Mapping[int, Any], now: datetime) -> bool:
    if task.running_until is not None and task.running_until > now:
        return True
    run = runs.get(task.last_run_id or 0)
    if run is None or run.started_at is None or run.started_at > now or not has_good(task, tasks, now):
        return False
    took = SECOND if run.ended_at is None else max(run.ended_at - run.started_at, SECOND)
    return bool(run.started_at + 10 * took > now)
