"""Explains why a due task with limits is not pushed yet."""

from dataclasses import dataclass
from datetime import datetime

from ticker.db.steps import Steps
from ticker.read.explain import counted, time_of_day
from ticker.read.limits import KeyUser, oldest_runs
from ticker.tasks.fields import Task
from ticker.tasks.queries import query


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
