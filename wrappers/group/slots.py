"""The slots of a group: how many runs are open, until when each may live, and the kill at the first of these instants.

The instants are also in the memory that the worker and its supervisor share (`shared_state`). They kill the process if
its own timer cannot.
"""

import math
from collections.abc import Sequence

from wrappers.sandbox import shared_state
from wrappers.sandbox.limits import KillTimer


class Slots:
    """Gives each open run a slot. With `kills`, the process dies at the first deadline."""

    def __init__(self, count: int, *, kills: bool = True) -> None:
        self._kills = kills
        self._free = list(reversed(range(count)))
        self._limits: dict[int, tuple[float, float]] = {}  # by slot: the deadline and the hard limit
        self._at_most = shared_state.deadline()  # RQ's, for the whole job
        self._timer: KillTimer | None = None
        if kills:
            try:
                self._timer = KillTimer()
            except OSError:  # no such timers here: the worker and its supervisor kill
                if not shared_state.is_shared():
                    raise

    def __len__(self) -> int:
        """Returns how many slots are free."""
        return len(self._free)

    def take(self, runs: Sequence[tuple[int, str]]) -> list[int]:
        """Gives each run, a task's id and a token, a slot before its start is requested."""
        slots = [self._free.pop() for _ in runs]
        for slot, (task_id, token) in zip(slots, runs, strict=True):
            shared_state.write(task_id, token, slot=slot)
        return slots

    def begin(
        self, slot: int, task_id: int, token: str, run_id: int, *, soft_at: float, deadline: float, hard_limit: float
    ) -> None:
        """Notes that the run has started, and the instant at which the process dies if it has not ended."""
        deadline = deadline if self._kills else math.inf
        shared_state.write(task_id, token, run_id, slot=slot, deadline=deadline, hard_limit=hard_limit, soft_at=soft_at)
        if self._kills:
            self._limits[slot] = deadline, hard_limit
            self._arm()

    def give_back(self, slot: int) -> None:
        self.returned(slot)
        shared_state.clear(slot)
        self._free.append(slot)

    def returned(self, slot: int) -> None:
        """Notes that the function has returned, so that nothing has to be killed any more."""
        if self._limits.pop(slot, None) is not None:
            self._arm()

    def extend(self, deadline: float) -> None:
        """Moves RQ's own deadline, because the process has taken a further job."""
        self._at_most = max(self._at_most, deadline)
        self._arm()

    def close(self) -> None:
        """Stops the timer, once no run is open."""
        if self._timer is not None:
            self._timer.close()

    def _arm(self) -> None:
        first, hard_limit = min(self._limits.values(), default=(math.inf, 0.0))
        shared_state.write_deadline(min(first, self._at_most), hard_limit)
        if self._timer is not None:
            self._timer.set(first)
