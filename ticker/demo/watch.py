"""Looks at the tables again and again: the tasks as they are, and the history that can be seen from outside."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import ticker
from ticker.engine import timing
from ticker.model import Task
from ticker.read.tasks import RunRecord

NEWEST = 200  # runs that are looked at again: more than can begin while one of them lasts


@dataclass(frozen=True, slots=True)
class Push:
    """At `at`, a tick put the occurrence on the queue, and set next_run."""

    task_id: int
    occurrence: datetime
    at: datetime
    next_run: datetime


class Watch:
    """What is known of some tasks since they were registered. `tasks` keeps those that are gone as they were last."""

    def __init__(self, db: Any, registered: Iterable[Task]) -> None:
        self._db = db
        self.tasks = {task.id: task for task in registered}
        self.gone: set[int] = set()
        self.pushes: list[Push] = []
        self.runs: list[RunRecord] = []

    def look(self) -> list[RunRecord]:
        """Looks once; the runs and drops that have ended since the last look, in the order of their ends."""
        ended_before = {run.id for run in self.runs if run.ended_at}
        self._look_at_tasks({task.id: task for task in ticker.list_tasks(self._db)})
        found = ticker.list_runs(self._db, limit=NEWEST)[::-1]
        newest = {run.id: run for run in found if run.task_id in self.tasks}  # spectators may have tasks of their own
        self.runs = [run for run in self.runs if run.id not in newest] + list(newest.values())
        news = [run for run in self.runs if run.ended_at and run.id not in ended_before]
        return sorted(news, key=lambda run: (run.ended_at, run.id))

    def runs_of(self, task: Task) -> Sequence[RunRecord]:
        """Its runs and drops, oldest first."""
        return [run for run in self.runs if run.task_id == task.id]

    def waiting(self, task: Task) -> int:
        """How many of its jobs wait in the queue."""
        return 0 if task.id in self.gone else len(self.tasks[task.id].waiting)

    def _look_at_tasks(self, found: dict[int, Task]) -> None:
        for before in list(self.tasks.values()):
            now = found.get(before.id)
            if now is None:
                self.gone.add(before.id)
                continue
            if now.next_run != before.next_run and before.next_run and now.next_run:
                # The tick's own instant: next_run is set to it plus the interval.
                at = now.next_run - timing.span(now.every_ms)
                self.pushes.append(Push(now.id, before.next_run, at, now.next_run))
            self.tasks[now.id] = now
