"""The search: every reachable state, breadth first, so that the first broken invariant comes with a shortest trace."""

import gc
import time
from dataclasses import dataclass, field

from tests.model.protocol import Protocol
from tests.model.rules import Bounds, Rules
from tests.model.state import FREE, IDLE, NO_PLAN, RUNNING, State

NEVER = 10**6
RECOVERY = 3  # ticks, one in each unit
LIVENESS = ("L2", "L4", "L5")
"""A start within its bound; everything that was planned or pushed settled; an outcome for every run that has started."""


@dataclass
class Found:
    """What a search has seen. `broken` is empty when every invariant held; `trace` are the steps in words."""

    name: str
    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    broken: str = ""
    trace: list[str] = field(default_factory=list)
    worst_wait: int = 0
    complete: bool = True


def explore(bounds: Bounds, rules: Rules = Rules(), *, liveness: bool = True) -> Found:  # noqa: B008 frozen
    """Visits all states within the bounds, until an invariant breaks."""
    began = time.perf_counter()
    gc.disable()  # there are no cycles, and looking for them among a million tuples takes most of the time
    try:
        found = Search(bounds, rules, liveness).run()
    finally:
        gc.enable()
    found.seconds = time.perf_counter() - began
    return found


class Search:
    def __init__(self, bounds: Bounds, rules: Rules, liveness: bool) -> None:
        self.protocol, self.bounds = Protocol(bounds, rules), bounds
        self.liveness = Liveness(self.protocol, bounds) if liveness else None
        self.found = Found(bounds.name)
        start = self.protocol.initial()
        self.came: dict[State, tuple[State | None, str]] = {start: (None, "")}
        self.frontier = [start]

    def run(self) -> Found:
        found = self.found
        while self.frontier and not found.broken:
            following: list[State] = []
            for state in self.frontier:
                self.visit(state, following)
                if found.broken:
                    break
            self.frontier = following
            found.depth += bool(following)
            if self.bounds.at_most and len(self.came) >= self.bounds.at_most:
                found.complete = not following
                break
        found.states = len(self.came)
        found.worst_wait = self.liveness.worst if self.liveness else 0
        return found

    def visit(self, state: State, following: list[State]) -> None:
        if self.liveness and (broken := self.liveness.broken(state)):
            self.fail(broken, state, "from here on nothing fails, and yet it stays so")
            return
        came = self.came
        for what, after, broken in self.protocol.actions(state):
            self.found.transitions += 1
            if broken:
                self.fail(broken, state, what)
                return
            if after not in came:
                came[after] = (state, what)
                following.append(after)

    def fail(self, broken: str, state: State, last: str) -> None:
        steps, at = [last], state
        while (origin := self.came[at])[0] is not None:
            steps.append(origin[1])
            at = origin[0]
        self.found.broken, self.found.trace = broken, steps[::-1]


class Liveness:
    """From every settled state, with nothing more that fails: a start, an end and a planned run come in time."""

    def __init__(self, protocol: Protocol, bounds: Bounds) -> None:
        self.protocol, self.bounds = protocol, bounds
        self.known: dict[State, tuple[int, int, int]] = {}
        self.worst = 0

    def broken(self, state: State) -> str:
        if any(t.at != IDLE for t in state.tickers) or any(s.at not in (FREE, RUNNING) for s in state.slots):
            return ""
        state = state._replace(faults=type(state.faults)())
        waits = self.known.get(state) or self.follow(state)
        recovery = self.bounds.patience if self.bounds.limited else RECOVERY  # what waits may wait for the slot
        limits = (self.bounds.patience, recovery, self.bounds.patience)
        self.worst = max(self.worst, waits[0])
        return next((name for name, wait, limit in zip(LIVENESS, waits, limits, strict=True) if wait > limit), "")

    def follow(self, state: State) -> tuple[int, int, int]:
        """Units until the start, what is planned or waits, and the last open record of the dead are settled."""
        path: list[tuple[State, tuple[bool, bool, bool]]] = []
        seen: set[State] = set()
        while state not in self.known and state not in seen:
            seen.add(state)
            after, started = self.protocol.calm_unit(state)
            path.append((state, goals(state, after, started, self.bounds.limited)))
            state = after
        waits = self.known.get(state, (NEVER, NEVER, NEVER))
        for _ in range(2 if state in seen else 1):  # twice around a cycle
            for at, reached in reversed(path):
                waits = tuple(0 if goal else min(wait + 1, NEVER) for goal, wait in zip(reached, waits, strict=True))  # type: ignore[assignment]
                self.known[at] = waits
        return self.known[path[0][0]]


def goals(state: State, after: State, started: frozenset[int], limited: bool) -> tuple[bool, bool, bool]:
    """At least one of the tasks that share a slot starts."""
    owing = [n for n, row in enumerate(state.rows) if row.alive and row.enabled]
    return (
        not owing or (not started.isdisjoint(owing) if limited else started.issuperset(owing)),
        all((row.plan[0] == NO_PLAN and not row.waiting) or not row.alive for row in after.rows),  # else after 2 hours
        not any(row.opens for row in after.rows),
    )
