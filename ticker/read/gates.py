"""Lists pauses of many tasks and limits with their use, and says what they keep waiting."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from ticker import clock
from ticker.db.steps import Steps, reads
from ticker.model import Pause
from ticker.read.explain import counted, time_of_day
from ticker.read.formatting import at
from ticker.schedules.duration import whole
from ticker.tasks.fields import Task
from ticker.tasks.rows import query

AT_MOST = 10_000  # rows of one answer


# ------------------------------------------------------------------------------------------------------------- pauses


@reads
def list_pauses() -> Steps[list[Pause]]:
    """Returns the pauses of many tasks that are in force, and those that are over while tasks still wait, oldest first."""
    return [Pause(**row) for row in (yield query("list_pauses", now=clock.now()))]


@reads
def has_tasks(pause: Pause) -> Steps[bool]:
    """Returns whether there is a task that the pause is for. For a rare one, this reads the whole table."""
    return bool((yield query("has_paused_tasks", id=pause.id))[0]["has_tasks"])


def sentence(pause: Pause) -> str:
    """Says who has paused which tasks, and how many wait."""
    is_one = pause.waiting == 1
    waiting = f"{pause.waiting:,} due {'task waits' if is_one else 'tasks wait'}"
    if pause.in_force:
        until = f" until {at(pause.until)}" if pause.until else ""
        reason = f": {pause.reason}" if pause.reason else ""
        return f"{pause.words} are paused by {pause.by} since {at(pause.paused_at)}{until}{reason}; {waiting}"
    budget = f", up to {counted(pause.budget, 'task')} per tick" if pause.budget else ""
    return f"the pause of {pause.words} is over since {at(pause.resumed_at or pause.until)}; {waiting} for {'its' if is_one else 'their'} turn{budget}"


def then(pause: Pause) -> str:
    """Says how a pause kept a task waiting at a time in the past."""
    until = f" to {at(pause.resumed_at)}" if pause.resumed_at else ""
    reason = f": {pause.reason}" if pause.reason else ""
    return f"then: {pause.words} were paused by {pause.by} from {at(pause.paused_at)}{until}{reason}"


# ------------------------------------------------------------------------------------------------------------- limits


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """A limited key and its use, or a limit without a key in use. Times are in UTC.

    `limited_by` is the declared limit, which may be a pattern. None means that the key has no limit, but is held off or
    starting again. `concurrency`, `rate`, `period_ms` and `burst` are its limits. `active` counts the runs that have a
    slot, and `tokens` the runs that the rate lets start now. `waiting` counts the due tasks of the key. No run starts
    before `held_until`. After that, at most `allowed` runs are active, and twice as many after each success.
    """

    key: str
    limited_by: str | None
    concurrency: int | None
    rate: int | None
    period_ms: int | None
    burst: int | None
    active: int
    tokens: int | None
    waiting: int
    held_until: datetime | None
    allowed: int | None


@reads
def list_limits(*, limit: int = 1000) -> Steps[list[LimitStatus]]:
    """Returns up to `limit` limited keys, those with the most due tasks first, and limits without a key in use."""
    rows = yield query("list_limits", now=clock.now(), limit=whole("limit", limit, 1, AT_MOST))
    return [LimitStatus(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class KeyUser:
    """An active run that has a slot of a key, or a due task of the key. `run_id` is None for a due task.

    `since` is when the run started, or when the task became due, in UTC.
    """

    key: str
    run_id: int | None
    task_id: int
    task_name: str
    owner_type: str
    owner_id: str
    since: datetime


def oldest_runs(keys: Sequence[str]) -> Steps[dict[str, KeyUser]]:
    """Returns the run of each key that has been active for longest. A key without an active run is left out."""
    rows = (yield query("oldest_runs_of_keys", keys=keys, now=clock.now(), limit=1)) if keys else []
    return {row["key"]: KeyUser(**row) for row in rows}


@reads
def users_of_keys(keys: Iterable[str], *, limit: int = 5) -> Steps[list[KeyUser]]:
    """Returns up to `limit` runs and up to `limit` due tasks of each key, oldest first."""
    return [KeyUser(**row) for row in (yield query("users_of_keys", keys=[*keys], now=clock.now(), limit=limit))]


@dataclass(frozen=True, slots=True)
class KeyUse:
    """A key of a task, and the use of its limit.

    `places` is how many runs may be active, and `burst` how many may start at once; None means any number. `used`
    counts the tokens of the burst that are used up; the first of them comes back at `token_at`. `waiting` counts other
    tasks of the key whose jobs wait, and `before` those that have been due for longer.
    """

    key: str
    places: int | None
    burst: int | None
    held_until: datetime | None
    active: int
    used: int
    token_at: datetime | None
    waiting: int
    before: int

    @property
    def is_full(self) -> bool:
        return self.places is not None and self.active + self.waiting >= self.places


def waits(task: Task | None, now: datetime) -> Steps[str]:
    """Says for which keys a due task waits. The text is empty if all of them have room."""
    if task is None or not task.limits:
        return ""
    keys = [KeyUse(**row) for row in (yield query("keys_of_task", id=task.id, now=now))]
    oldest = yield from oldest_runs([key.key for key in keys if key.is_full])
    return " and ".join(filter(None, (wait_for(key, oldest.get(key.key), now) for key in keys)))


def wait_for(key: KeyUse, oldest: KeyUser | None, now: datetime) -> str:
    """Returns why a task waits for a key, or an empty text. `oldest` is the run that has been active for longest."""
    if key.held_until:
        return f"{key.key} is held off until {time_of_day(key.held_until, now)} (SlowDown)"
    jobs = f", and {counted(key.waiting, 'job')} of it {'waits' if key.waiting == 1 else 'wait'}" if key.waiting else ""
    rest = jobs + (f"; {counted(key.before, 'task')} before it" if key.before else "")
    if key.is_full:
        run = (
            f"; the oldest is run {oldest.run_id} of {oldest.task_name}, since {time_of_day(oldest.since, now)}"
            if oldest
            else ""
        )
        return f"{key.active} of {key.places} runs of {key.key} are active{run}{rest}"
    if key.burst is not None and key.used + key.waiting >= key.burst:
        until = f" until {time_of_day(key.token_at, now)}" if key.token_at else ""
        return f"{key.used} of {key.burst} starts of {key.key} are used up{until}{rest}"
    return ""
