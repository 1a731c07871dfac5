"""What pauses of many tasks do to pushes and starts, in Python: the table `pauses`, for the in-memory double."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Protocol

LEAST_BUDGET = 1000
MINUTE = timedelta(minutes=1)


class Paused(Protocol):
    """What a pause looks at in a row of `tasks`."""

    @property
    def group_name(self) -> str: ...
    @property
    def function(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def owner_type(self) -> str: ...
    @property
    def limits(self) -> tuple[str, ...] | None: ...
    @property
    def next_run(self) -> datetime | None: ...
    @property
    def resumed_at(self) -> datetime | None: ...


@dataclass
class Pause:
    """One row. A pattern of keys ends with an asterisk."""

    scope: str
    value: str = ""
    until: datetime | None = None
    resumed_at: datetime | None = None
    granted_at: datetime | None = None
    is_done: bool = False

    def in_force(self, now: datetime) -> bool:
        return self.resumed_at is None and (self.until is None or self.until > now)

    @property
    def is_over(self) -> bool:
        return self.resumed_at is not None and not self.is_done

    def covers(self, task: Paused) -> bool:
        if self.scope == "limit":
            return any(is_limit_of(self.value, key) for key in task.limits or ())
        values = {
            "all": "", "group": task.group_name, "function": task.function, "queue": task.queue, "owner_type": task.owner_type,
        }  # fmt: skip
        return values[self.scope] == self.value

    def has_in_backlog(self, task: Paused) -> bool:
        """Whether the task was due before the end of the pause, and has not been let go since."""
        if not self.is_over or self.resumed_at is None or task.next_run is None or not self.covers(task):
            return False
        return task.next_run < self.resumed_at and (task.resumed_at is None or task.resumed_at < self.resumed_at)

    def open(self, now: datetime) -> None:
        """As a tick does first: the pause stays ended, even if the clock is set back; then its end does not lie ahead."""
        if self.resumed_at is None and self.until is not None and self.until <= now:
            self.resumed_at = min(self.until, now)
        elif self.is_over and self.resumed_at is not None and self.resumed_at > now + MINUTE:
            self.resumed_at = now


Pauses = Mapping[int, Pause]


def covering(task: Paused, pauses: Pauses, now: datetime) -> int | None:
    """The first pause that is in force for the task."""
    return min((id_ for id_, one in pauses.items() if one.in_force(now) and one.covers(task)), default=None)


def backlog(task: Paused, pauses: Pauses) -> int | None:
    return min((id_ for id_, one in pauses.items() if one.has_in_backlog(task)), default=None)


def grant(pauses: Iterable[Pause], now: datetime, period: int) -> bool:
    """Whether this tick gets the budget of the pauses that are over. One of them may have just ended."""
    apart, over = timedelta(milliseconds=0.9 * period), [pause for pause in pauses if pause.is_over]
    if any(p.granted_at and now - apart <= p.granted_at <= now for p in over):
        return False
    for pause in over:
        pause.granted_at = now
    return bool(over)


def budget_of(gaps: Iterable[int], tick: int, least: int) -> int:
    return max(least, ceil(1.2 * tick * sum(1 / gap for gap in gaps)))


def waits_in_vain(waited_for: Collection[int], pauses: Pauses) -> bool:
    """Whether a task waits for a pause that is done, or whose row is gone."""
    return any(id_ not in pauses or pauses[id_].is_done for id_ in waited_for)


def is_limit_of(declared: str, key: str) -> bool:
    return declared == key or (declared.endswith("*") and key.startswith(declared.rstrip("*")))
