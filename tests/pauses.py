"""What pauses of many tasks do to pushes and starts, in Python: the table `pauses`, for the in-memory double."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Protocol

LEAST_BUDGET = 1000


class Paused(Protocol):
    """What a pause looks at in a row of `tasks`."""

    group_name: str
    function: str
    queue: str
    owner_type: str
    limits: tuple[str, ...] | None


@dataclass
class Pause:
    """One row. A pattern of keys ends with an asterisk."""

    scope: str
    value: str = ""
    until: datetime | None = None
    resumed_at: datetime | None = None
    budget: int | None = None
    granted_at: datetime | None = None

    def in_force(self, now: datetime) -> bool:
        return self.resumed_at is None and (self.until is None or self.until > now)

    def covers(self, task: Paused) -> bool:
        if self.scope == "limit":
            return any(is_limit_of(self.value, key) for key in task.limits or ())
        values = {
            "all": "",
            "group": task.group_name,
            "function": task.function,
            "queue": task.queue,
            "owner_type": task.owner_type,
        }
        return values[self.scope] == self.value

    def end_if_over(self, now: datetime) -> None:
        """As a tick does: the pause stays ended, even if the clock is set back."""
        if self.resumed_at is None and self.until is not None and self.until <= now:
            self.resumed_at = self.until

    def grant(self, now: datetime, period: int, budget: int) -> int | None:
        """The budget of this tick, or None if another tick has it. The first budget stays."""
        apart = timedelta(milliseconds=0.9 * period)
        if self.granted_at is not None and now - apart <= self.granted_at <= now:
            return None
        self.granted_at = now
        self.budget = self.budget or budget
        return self.budget


def budget_of(intervals: Iterable[int], tick: int) -> int:
    return ceil(1.2 * tick * sum(1 / every for every in intervals))


def is_limit_of(declared: str, key: str) -> bool:
    return declared == key or (declared.endswith("*") and key.startswith(declared.rstrip("*")))
