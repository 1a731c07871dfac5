"""Tracks the keys that are full, so that a group does not request starts that would be refused.

The tasks of a full key wait in the process, while tasks of other keys start. When there may be room again, one start is
requested, and then twice as many each time, as long as none is refused.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wrappers.pipeline.start import NoRoom
from wrappers.sandbox import limits

SHORTEST, LONGEST = 0.02, 1.0  # seconds until a start of a full key is requested again


@dataclass
class FullKey:
    """`again_at` is the instant of `limits.now` at which the key may have room. At most `number` starts are then
    requested.
    """

    again_at: float
    pause: float = SHORTEST
    number: int = 1


class FullKeys:
    """Decides which starts a group requests, by the answers to earlier requests. A task waits for one key at a time."""

    def __init__(self) -> None:
        self._keys: dict[str, FullKey] = {}
        self._key_of: dict[int, str] = {}  # by task id

    def __contains__(self, task_id: int) -> bool:
        return task_id in self._key_of

    def admit(self, task_id: int, chosen: Counter[str]) -> bool:
        """Returns whether the start of a task may be requested now. Counts it in `chosen`, by its key."""
        if (name := self._key_of.get(task_id)) is None:
            return True
        key = self._keys[name]
        if limits.now() < key.again_at or chosen[name] >= key.number:
            return False
        chosen[name] += 1
        return True

    def pause(self, task_ids: Iterable[int]) -> float:
        """Returns the seconds until the start of one of these tasks may be requested."""
        times = [self._keys[self._key_of[task_id]].again_at if task_id in self else 0.0 for task_id in task_ids]
        return max(min(times, default=0.0) - limits.now(), 0.0)

    def forget(self, task_id: int) -> None:
        self._key_of.pop(task_id, None)

    def note(self, asked: Iterable[int], refused: Mapping[int, NoRoom]) -> None:
        """Notes the tasks whose starts were requested together, and those of them that found no room."""
        tried = {task_id: name for task_id in asked if (name := self._key_of.pop(task_id, None)) is not None}
        self._key_of |= {task_id: room.key for task_id, room in refused.items()}
        begun = {name for task_id, name in tried.items() if task_id not in refused}
        full = {room.key: room.seconds for room in refused.values()}
        for name in begun - full.keys():
            key = self._keys[name]
            self._keys[name] = FullKey(0.0, number=2 * key.number)
        for name, seconds in full.items():
            before = self._keys.get(name)
            pause = min(2 * before.pause, LONGEST) if before and name not in begun else SHORTEST
            wait = pause if seconds is None else min(max(seconds, SHORTEST), LONGEST)
            self._keys[name] = FullKey(limits.now() + wait, pause)

    def note_end(self, keys: Iterable[str]) -> None:
        """Notes that a run with these keys has ended in this process. The keys may have room as soon as its end is
        written.
        """
        for name in keys:
            if (key := self._keys.get(name)) is not None:
                number = key.number + 1 if key.again_at else key.number
                self._keys[name] = FullKey(min(key.again_at, limits.now() + SHORTEST), number=number)
