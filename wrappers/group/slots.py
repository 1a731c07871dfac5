"""Keeps the slots of a group: the open runs, the deadline of each, and a timer that kills the process at the first
deadline.

RQ's timeout counts from the first run of a job, and the last one may begin much later. So these deadlines replace it:
without an open run, the process lives for `OUTSIDE` seconds after its last request or deadline.

The deadlines are also in the memory that the worker and its supervisor share (`shared_state`). Both kill the process if
its own timer cannot.
"""

import heapq
import math
from collections.abc import Sequence

from wrappers.sandbox import limits, shared_state
from wrappers.sandbox.limits import KillTimer

OUTSIDE = 300.0  # seconds; a request that meets an unavailable server takes about one minute


class Slots:
    """Gives each open run a slot. With `kills`, the process dies at the first deadline."""

    def __init__(self, count: int, *, kills: bool = True) -> None:
        self._kills = kills
        self._free = list(reversed(range(count)))
        self._limits: dict[int, tuple[float, float, int]] = {}  # by slot: the deadline, the hard limit, the slot
        self._ordered: list[tuple[float, float, int]] = []  # a heap of the same, and of some that have ended
        self._at_most = 0.0  # the deadline of the process without an open run
        self._timer: KillTimer | None = None
        if kills:
            try:
                self._timer = KillTimer()
            except OSError:  # this system has no such timers: the worker and its supervisor kill the process
                if not shared_state.is_shared():
                    raise

    def __len__(self) -> int:
        """Returns how many slots are free."""
        return len(self._free)

    def take(self, runs: Sequence[tuple[int, str]]) -> list[int]:
        """Gives each run a slot before its start is requested. A run is a task's id and a token."""
        self._extend(limits.now())
        slots = [self._free.pop() for _ in runs]
        for slot, (task_id, token) in zip(slots, runs, strict=True):
            shared_state.write(task_id, token, slot=slot)
        return slots

    def begin(
        self, slot: int, task_id: int, token: str, run_id: int, *, soft_at: float, deadline: float, hard_limit: float
    ) -> None:
        """Notes that the run has started, and when the process dies if the run has not ended by then."""
        self._extend(deadline)
        deadline = deadline if self._kills else math.inf
        shared_state.write(task_id, token, run_id, slot=slot, deadline=deadline, hard_limit=hard_limit, soft_at=soft_at)
        if self._kills:
            self._limits[slot] = deadline, hard_limit, slot
            heapq.heappush(self._ordered, self._limits[slot])
            self._arm()

    def give_back(self, slot: int) -> None:
        self.returned(slot)
        shared_state.clear(slot)
        self._free.append(slot)

    def returned(self, slot: int) -> None:
        """Notes that the function has returned, so that its deadline no longer applies."""
        if self._limits.pop(slot, None) is not None:
            self._arm()

    def close(self) -> None:
        """Deletes the timer. No run may be open."""
        if self._timer is not None:
            self._timer.close()

    def _extend(self, instant: float) -> None:
        self._at_most = max(self._at_most, instant + OUTSIDE)
        self._arm()

    def _arm(self) -> None:
        while self._ordered and self._limits.get(self._ordered[0][-1]) is not self._ordered[0]:
            heapq.heappop(self._ordered)
        if len(self._ordered) > 2 * shared_state.SLOTS:  # many short runs have ended after a long one began
            self._ordered = sorted(self._limits.values())
        first, hard_limit, _ = self._ordered[0] if self._ordered else (self._at_most, 0.0, 0)
        shared_state.write_deadline(first, hard_limit)
        if self._timer is not None:
            self._timer.set(first)
