"""What pauses of many tasks do to pushes and starts, in Python: the table `pauses`, for the in-memory double."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Protocol

LEAST_BUDGET = 1000
MINUTE = timedelta(minutes=1)
LONGEST_UNKNOWN = timedelta(minutes=10)


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
    def pause_id(self) -> int | None: ...
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
    of_queue: str = ""
    paused_at: datetime | None = None
    ended_by_tick: bool = False

    def in_force(self, now: datetime) -> bool:
        return self.resumed_at is None and (self.until is None or self.until > now)

    @property
    def is_over(self) -> bool:
        return self.resumed_at is not None and not self.is_done

    def covers(self, task: Paused) -> bool:
        if self.scope == "limit":
            return any(is_limit_of(self.value, key) for key in task.limits or ())
        if self.scope == "unknown":
            return False
        values = {
            "all": "", "group": task.group_name, "function": task.function, "queue": task.queue, "owner_type": task.owner_type,
        }  # fmt: skip
        return values[self.scope] == self.value

    def is_gate(self, task: Paused) -> bool:
        """Whether the task waits with it for a worker that knows its function."""
        return self.scope == "unknown" and (self.value, self.of_queue) == (task.function, task.queue)

    def keeps(self, task: Paused) -> bool:
        return self.covers(task) or self.is_gate(task)

    def lately(self, now: datetime) -> bool:
        """It is in force, or was within the time after which what waits for a worker is dropped."""
        return self.resumed_at is None or self.resumed_at > now - LONGEST_UNKNOWN

    def has_in_backlog(self, task: Paused) -> bool:
        """Whether the task was due before the end of the pause, and has not been let go since."""
        if not self.is_over or self.resumed_at is None or task.next_run is None or not self.keeps(task):
            return False
        return task.next_run < self.resumed_at and (task.resumed_at is None or task.resumed_at < self.resumed_at)

    def open(self, now: datetime) -> None:
        """As a tick does first: the pause stays ended, even if the clock is set back; then its end does not lie ahead."""
        if self.resumed_at is None and self.until is not None and self.until <= now:
            self.resumed_at = min(max(self.until, self.paused_at or self.until), now)
        elif self.is_over and self.resumed_at is not None and self.resumed_at > now + MINUTE:
            self.resumed_at = now
        elif self.scope == "unknown" and not self.is_done and self.paused_at and self.paused_at > now + MINUTE:
            self.paused_at = now

    def is_old(self, now: datetime) -> bool:
        """For ten minutes it has been waited for, and nothing was tried."""
        last = max(filter(None, (self.paused_at, self.granted_at)), default=now)
        return self.scope == "unknown" and self.resumed_at is None and last <= now - LONGEST_UNKNOWN


Pauses = Mapping[int, Pause]


def covering(task: Paused, pauses: Pauses, now: datetime) -> int | None:
    """The first pause that is in force for the task, or for whose worker it waits."""
    return min((id_ for id_, one in pauses.items() if one.in_force(now) and one.keeps(task)), default=None)


def is_covered(task: Paused, pauses: Pauses, now: datetime) -> bool:
    return any(one.in_force(now) and one.covers(task) for one in pauses.values())


def waits_for_worker(task: Paused, pauses: Pauses) -> bool:
    pause = pauses.get(task.pause_id or 0)
    return pause is not None and pause.scope == "unknown" and pause.resumed_at is None


def is_unknown_for_long(task: Paused, pause: Pause, pauses: Pauses, now: datetime) -> bool:
    """Whether the task has waited with this pause for ten minutes, and for nothing else meanwhile."""
    since = now - LONGEST_UNKNOWN
    if task.next_run is None or pause.paused_at is None or max(task.next_run, pause.paused_at) > since:
        return False
    if task.resumed_at is not None and since <= task.resumed_at <= now:
        return False
    return not any(one.lately(now) and one.covers(task) for one in pauses.values())


def note_unknown(pauses: dict[int, Pause], task: Paused, now: datetime) -> None:
    """A worker did not know the function: its tasks wait for one that does, unless one did a while ago."""
    gates = [one for one in pauses.values() if one.is_gate(task)]
    if not any(
        one.resumed_at is None or (not one.ended_by_tick and now - LONGEST_UNKNOWN <= one.resumed_at <= now)
        for one in gates
    ):
        pauses[max(pauses, default=0) + 1] = Pause("unknown", task.function, of_queue=task.queue, paused_at=now)


def note_known(pauses: Pauses, task: Paused, now: datetime) -> None:
    for one in pauses.values():
        if one.is_gate(task) and one.resumed_at is None:
            one.resumed_at = now


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
