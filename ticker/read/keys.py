"""Says what keeps a due task with limits from being pushed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from ticker.db.steps import Steps
from ticker.read.explain import counted, time_of_day
from ticker.tasks.fields import Task
from ticker.tasks.queries import query


@dataclass(frozen=True, slots=True)
class KeyUse:
    """A key of a task, and the use of its limits.

    `places` is how many runs may be active, and `burst` how many may start at once; None is any number. `used` counts the
    burst's tokens that are used up, the next of them until `token_at`. `waiting` counts other tasks of the key whose jobs wait,
    and `before` those that have been due for longer.
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


def keys_of(task: Task | None, now: datetime) -> Steps[list[KeyUse]]:
    if task is None or not task.limits:
        return []
    return [KeyUse(**row) for row in (yield query("keys_of_task", id=task.id, now=now))]


def waits(keys: Sequence[KeyUse], now: datetime) -> str:
    """Says for which keys a due task waits. The text is empty if all of them have room."""
    return " and ".join(sentence for key in keys for sentence in waits_for(key, now))


def waits_for(key: KeyUse, now: datetime) -> Iterator[str]:
    if key.held_until:
        yield f"{key.key} is left alone until {time_of_day(key.held_until, now)} (SlowDown)"
        return
    jobs = f", and {counted(key.waiting, 'job')} of it {'waits' if key.waiting == 1 else 'wait'}" if key.waiting else ""
    rest = f"{jobs}; {counted(key.before, 'task')} before it"
    if key.places is not None and key.active + key.waiting >= key.places:
        yield f"{key.active} of {key.places} runs of {key.key} are active{rest}"
    elif key.burst is not None and key.used + key.waiting >= key.burst:
        until = f" until {time_of_day(key.token_at, now)}" if key.token_at else ""
        yield f"{key.used} of {key.burst} starts of {key.key} are used up{until}{rest}"
