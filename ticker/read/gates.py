"""Lists pauses of many tasks and limits with their use, and says for what tasks wait."""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from ticker.db.steps import Steps, reads
from ticker.model import Pause
from ticker.read.explain import counted, time_of_day
from ticker.read.formatting import at
from ticker.schedules import hours
from ticker.schedules.duration import whole
from ticker.tasks.fields import Owned, Task
from ticker.tasks.rows import instant, query, sees_all

AT_MOST = 10_000  # rows of one answer


# ------------------------------------------------------------------------------------------------------------- pauses


@reads
def list_pauses() -> Steps[list[Pause]]:
    """Returns the pauses of many tasks that are in force, and those that are over while tasks still wait, oldest first."""
    return [Pause(**row) for row in (yield query("list_pauses"))]


@reads
def has_tasks(pause: Pause) -> Steps[bool]:
    """Returns whether there is a task that the pause is for. For a rare one, this reads the whole table."""
    return bool((yield query("has_paused_tasks", id=pause.id))[0]["has_tasks"])


@reads
def covered(scope: str, value: str, *, limit: int) -> Steps[int]:
    """Returns how many tasks a pause would be for, up to `limit`."""
    rows = yield query("covered", scope=scope, value=value, most=limit)
    return int(rows[0]["tasks"])


def stops_all(pause: Pause) -> bool:
    """Returns whether the pause is in force, for all tasks."""
    return pause.scope == "all" and pause.in_force


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


def resume(pause: Pause) -> str:
    """Returns the command that ends a pause."""
    option = f"--{pause.scope.replace('_', '-')}"
    return f"ticker resume {option}" + ("" if pause.scope == "all" else f" {shlex.quote(pause.value)}")


def told(pause: Pause) -> str:
    """Returns the sentence with the command that ends the pause, for a terminal."""
    return sentence(pause) + (f"; to resume: {resume(pause)}" if pause.in_force else "")


def then_paused(pause: Pause) -> str:
    """Says how a pause, or the wait for a worker that knows its function, kept a task waiting at a time in the past."""
    span = f" from {at(pause.paused_at)}" + (f" to {at(pause.resumed_at)}" if pause.resumed_at else "")
    if pause.scope == "unknown":
        return f"no worker was known to have the function {pause.value}{span}"
    return f"{pause.words} were paused by {pause.by}{span}" + (f": {pause.reason}" if pause.reason else "")


# ------------------------------------------------------------------------------------------------------------- limits


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """A limited key and its use, or a limit without a key in use. Times are in UTC.

    `limited_by` is the declared limit, which may be a pattern. None means that the key has no limit, but is closed or
    starting again. `concurrency`, `rate`, `period_ms` and `burst` are its limits. `active` counts the runs that have a
    slot, and `tokens` the runs that the rate lets start now. `waiting` counts the due tasks of the key. No run starts
    before `closed_until`. After that, at most `allowed` runs are active, and twice as many after each success.
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
    closed_until: datetime | None
    allowed: int | None


@reads
def list_limits(*, limit: int = 1000) -> Steps[list[LimitStatus]]:
    """Returns up to `limit` limited keys, those with the most due tasks first, and limits without a key in use."""
    rows = yield query("list_limits", limit=whole("limit", limit, 1, AT_MOST))
    return [LimitStatus(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class KeyUser(Owned):
    """An active run that has a slot of a key, or a due task of the key. `run_id` is None for a due task.

    `since` is when the run started, or when the task became due, in UTC.
    """

    key: str
    run_id: int | None
    task_id: int
    task_name: str
    owner_type: str
    owner_id: str
    subject: str
    since: datetime


def oldest_runs(keys: Sequence[str]) -> Steps[dict[str, KeyUser]]:
    """Returns the run of each key that has been active for longest. A key without an active run is left out."""
    rows = (yield query("oldest_runs_of_keys", keys=keys, limit=1)) if keys else []
    return {row["key"]: KeyUser(**row) for row in rows}


@reads
def users_of_keys(keys: Iterable[str]) -> Steps[list[KeyUser]]:
    """Returns up to 5 runs and up to 5 due tasks of each key, oldest first."""
    return [KeyUser(**row) for row in (yield query("users_of_keys", keys=[*keys], limit=5))]


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
    closed_until: datetime | None
    active: int
    used: int
    token_at: datetime | None
    waiting: int
    before: int

    @property
    def is_full(self) -> bool:
        return self.places is not None and self.active + self.waiting >= self.places


def wait_for(key: KeyUse, oldest: KeyUser | None, now: datetime) -> str:
    """Returns why a task waits for a key, or an empty text. `oldest` is the run that has been active for longest."""
    if key.closed_until:
        return f"{key.key} is closed until {time_of_day(key.closed_until, now)} (SlowDown)"
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


# ------------------------------------------------------------------------------------------------ what tasks wait for


class GatesNow(NamedTuple):
    """The use of keys with the oldest run of full ones, the tasks that wait for their turn, and what full queues left.

    `in_full`: only one task asks, whether a tick has left it or not.
    """

    now: datetime
    keys: Mapping[str, KeyUse]
    oldest: Mapping[str, KeyUser]
    in_turn: Collection[int]
    left: Mapping[str, int]
    in_full: bool


def explained(tasks: Iterable[Task], now: datetime | None = None) -> Steps[list[Task]]:
    """Returns the tasks. Those that the last tick has left, that are outside their hours, or whose function is unknown
    say for what they wait. With `now`, one that is due says so in full, whether a tick has seen it or not.
    """
    tasks, in_full = [*tasks], now is not None
    waiting = [
        one for one in tasks if one.is_runnable and (one.waits_for or one.during or one.unknown_function or in_full)
    ]
    if not waiting:
        return tasks
    now = now or (yield from instant())
    left = [one for one in waiting if one.waits_for or (in_full and one.next_run and one.next_run <= now)]
    gates = yield from gates_now(left, now, in_full)
    by_id = {one.id: wait(one, gates) for one in waiting}
    return [by_id.get(one.id, one) for one in tasks]


def gates_now(tasks: Sequence[Task], now: datetime, in_full: bool) -> Steps[GatesNow]:
    keys, id_ = sorted({key for task in tasks for key in task.limits}), tasks[0].id if in_full and tasks else None
    uses = [KeyUse(**row) for row in (yield query("use_of_keys", keys=keys, id=id_, now=now))] if keys else []
    names_runs = in_full and sees_all()  # the oldest run may be another owner's
    oldest = yield from oldest_runs([use.key for use in uses if use.is_full] if names_runs else [])
    suspects = [task.id for task in tasks if task.waits_for == "waits_for_its_turn"]
    in_turn = (yield query("wait_for_turn", ids=suspects, now=now)) if suspects else []
    asks_queues = tasks and (in_full or any(task.waits_for == "queue_full" for task in tasks))
    left = {row["queue"]: int(row["count"]) for row in (yield query("left"))} if asks_queues else {}
    return GatesNow(now, {use.key: use for use in uses}, oldest, [row["id"] for row in in_turn], left, in_full)


def wait(task: Task, gates: GatesNow) -> Task:
    """Returns the task with what it waits for, as a state and in words, which say when it is looked at again, if that
    is known. Both are empty if it waits for no gate.
    """
    word, because = task.waits_for, ""
    keys = [gates.keys[key] for key in task.limits if key in gates.keys]
    if task.unknown_function:
        because = f"no worker is known to have its function {task.function!r}"
    elif closed := hours_after(task, gates.now):
        word = "outside_hours"
        because = f"outside its hours {closed[0]}, which begin at {time_of_day(closed[1], gates.now)}"
    elif (word == "queue_full" or gates.in_full) and (left := gates.left.get(task.queue)):
        word = "queue_full"
        full = f"the queue {task.queue} had no room at the last tick (TICKER_QUEUE_DEPTH)"
        because = f"{full}, which left {counted(left, 'due task')}; the next tick looks again"
    elif task.id in gates.in_turn:
        because = "suspected tasks of its function take turns; the next tick looks again"
    elif word == "no_room" or gates.in_full:
        full_keys = (wait_for(key, gates.oldest.get(key.key), gates.now) for key in keys)
        because = " and ".join(filter(None, full_keys))
        word = "no_room" if because else word if word == "no_room" else ""
    else:
        word = ""
    return replace(task, waits_for=word, waits_because=because)


def hours_after(task: Task, instant: datetime) -> tuple[str, datetime] | None:
    """Returns the hours of the task and when they begin, if `instant` is outside them."""
    begins = hours.begins_again(task.during, task.zone, instant)
    return (f"{task.during}{'' if task.zone == 'UTC' else f' {task.zone}'}", begins) if begins else None


def then(task: Task | None, instant: datetime, now: datetime) -> Steps[list[str]]:
    """Says for what a task waited at a time in the past, as far as it is stored: not for queues, turns, and limits with
    room now.
    """
    if task is None or instant < task.created_at:
        return []
    pauses = yield query("pauses_at", task_id=task.id, at=instant, now=now)
    keys = yield query("keys_at", task_id=task.id, at=instant)
    closed = hours_after(task, instant)
    begin = (
        f"outside its present hours {closed[0]}, which began again at {time_of_day(closed[1], instant)}"
        if closed
        else ""
    )
    parts = (*(then_paused(Pause(**pause)) for pause in pauses), begin, *(then_held(instant, **key) for key in keys))
    return [f"then: {part}" for part in parts if part]


def then_held(
    instant: datetime, key: str, places: int | None, closed_at: datetime | None, closed_until: datetime, active: int
) -> str:
    """Says what is known of a key at a time in the past. Of its runs, those count that are still active."""
    if closed_at:
        return f"{key} was closed from {time_of_day(closed_at, instant)} to {time_of_day(closed_until, instant)} (SlowDown)"
    allows = "" if places is None else f", which now allows {places}"
    return f"at least {counted(active, 'run')} of {key} {'was' if active == 1 else 'were'} active{allows}"
