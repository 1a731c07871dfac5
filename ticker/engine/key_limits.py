"""Chooses which tasks with limits are pushed, by the room that their keys have. Pure: reads no clock."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar

LOOK_EVERY = timedelta(milliseconds=200)
"""The shortest time between two looks at keys without room."""
LOOK_AHEAD = timedelta(milliseconds=300)
"""The time until a job that the next look pushes starts: the room of this time is given out at once."""
LOOK_IN_VAIN = timedelta(seconds=5)
"""The time until the next look if it is unknown when a key has room, because a job has to start first, or a run to end."""


class TakesTurns(Protocol):
    """A task whose turns are counted. Within those of one owner, the priority decides."""

    @property
    def priority(self) -> int: ...
    def turns_of(self) -> Sequence[object]: ...


Turned = TypeVar("Turned", bound=TakesTurns)


class LimitedTask(NamedTuple):
    """A due task with one or two keys, and how many runs of each key may still be pushed; None is any number.

    With `is_planned`, this is a planned run of such a task, and `id` is that of the run. `free_at` is when the keys may
    have room again, if they have none and the time is known. With `has_job`, an earlier job of the task waits, and its
    room is counted.
    """

    id: int
    next_run: datetime
    queue: str
    keys: tuple[str, ...]
    rooms: tuple[int | None, ...] = (None, None)
    owner: tuple[str, str] = ("", "")
    priority: int = 0
    free_at: datetime | None = None
    is_planned: bool = False
    has_job: bool = False

    def turns_of(self) -> list[tuple[str, object]]:
        """Returns whose turns the task takes: those of its owner at each key. Without an owner, it has turns of its own."""
        owner = self.owner if self.owner[0] else self.id
        return [(key, owner) for key in self.keys]


class Choice(NamedTuple):
    """The tasks to push, in order, and the keys that have no room after them.

    `look_at` is when to look at the tasks that wait for room. It is None if there are none.
    """

    tasks: list[LimitedTask]
    full: set[str]
    look_at: datetime | None


def choose(tasks: Sequence[LimitedTask], depths: Mapping[str, int], now: datetime, more: bool = False) -> Choice:
    """Chooses tasks in turn, as long as all of their keys have room, and so has their queue if its depth is limited.

    A task whose job waits has its room already, but it does not overtake a task that waits for room. `more` means that
    there are other tasks, which may have the same keys.
    """
    rooms = {key: room for task in tasks for key, room in zip(task.keys, task.rooms, strict=False) if room is not None}
    left, chosen, refused, awaited = dict(depths), list[LimitedTask](), list[LimitedTask](), set[str]()
    for task in in_turn(sorted(tasks, key=lambda task: (task.next_run, task.id))):
        lacking = {key for key in task.keys if rooms.get(key, 1) + (task.has_job and key not in awaited) <= 0}
        if lacking:
            refused.append(task)
            awaited |= lacking
        elif left.get(task.queue, 1) > 0:
            chosen.append(task)
            rooms.update((key, rooms[key] - 1) for key in task.keys if key in rooms and not task.has_job)
            left.update({task.queue: left[task.queue] - 1} if task.queue in left else {})
    full = {key for key, room in rooms.items() if room <= 0}
    looks = [look_at(task, now) for task in refused]
    if more and any(key in full for task in chosen for key in task.keys):
        looks.append(now + LOOK_EVERY)
    return Choice(chosen, full, soonest(looks))


def soonest(instants: Iterable[datetime | None]) -> datetime | None:
    return min((instant for instant in instants if instant is not None), default=None)


def in_turn(tasks: Sequence[Turned]) -> list[Turned]:
    """Returns the first task of each owner, then the second of each, and so on, each time in the given order.

    Within an owner, the priority decides, then the order.
    """
    taken: dict[object, int] = {}
    rounds: list[list[int]] = []
    for place in sorted(range(len(tasks)), key=lambda place: -tasks[place].priority):
        mine = tasks[place].turns_of()
        turn = max([taken.get(owner, 0) for owner in mine])
        taken.update(dict.fromkeys(mine, turn + 1))
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(place)
    return [tasks[place] for places in rounds for place in sorted(places)]


def look_at(task: LimitedTask, now: datetime) -> datetime:
    """Returns when a task without room may have some."""
    if task.free_at is not None:
        return max(task.free_at, now + LOOK_EVERY)
    had_room = all(room is None or room > 0 for room in task.rooms)  # before this look gave it to others
    return now + (LOOK_EVERY if had_room else LOOK_IN_VAIN)
