"""Pauses of many tasks, as the people who wrote them believe; and what is judged while a history is played.

S6: no task that a pause covers is claimed for a push, and none starts. A tick lets no more tasks go than the budget, which is
granted once in a period.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from tests.pauses import is_limit_of
from tests.simulation.world import World
from ticker.model import RunKind

FUNCTIONS = ("poll", "fetch")  # what the workers know
LEAST_BUDGET = 1  # so that the budget matters to a handful of tasks
QUEUE = "polling"  # of all tasks here
GROUPS = ("mail", "news")
SCOPES = ("all", "group", "function", "queue")
WAITING = ("claim_waiting",)
PLANNED = ("claim_planned", "claim_chosen_planned", "claim_pushed")
DUE = ("claim_due", "claim_in_turn", "claim_chosen")


class Covered(Protocol):
    """What people know of a task."""

    id: int
    function: str
    group: str
    limits: tuple[str, ...]
    every: float
    deleted: bool


@dataclass
class Wide:
    """A pause of many tasks. `since` is the true time of its last change."""

    scope: str
    value: str
    since: int
    until: datetime | None = None
    resumed: bool = False
    """People have ended it, or a tick has seen its end."""
    ended: tuple[int, datetime] | None = None
    """When that was, by both clocks."""
    done: bool = False
    """It is over, and no task waits for it."""
    granted_at: datetime | None = None

    def covers(self, spec: Covered) -> bool:
        if self.scope == "limit":
            return any(is_limit_of(self.value, key) for key in spec.limits)
        values = {"all": "", "group": spec.group, "function": spec.function, "queue": QUEUE}
        return values[self.scope] == self.value

    def in_force(self, world: World, now: datetime | None = None) -> bool:
        return not self.resumed and not is_over(world, self.until, self.since, now)


def is_over(world: World, until: datetime | None, since: int, now: datetime | None = None) -> bool:
    """Also when the clock had passed its end, and was set back behind it. A ticker that was stopped meanwhile goes by its `now`."""
    if until is None:
        return False
    seen = [at for t, at in world.history.peaks if t >= since]
    return max([now or world.now(), world.now(), *seen]) >= until


def drawn(world: World, spec: Covered) -> tuple[str, str]:
    """A scope that covers the task."""
    scope = world.random.choice((*SCOPES, "limit", "limit") if spec.limits else SCOPES)
    if scope == "limit":
        key = world.random.choice(spec.limits)
        return scope, world.random.choice([key, f"{key[0]}*"])
    return scope, {"all": "", "group": spec.group, "function": spec.function, "queue": QUEUE}[scope]


class Pauses:
    """Those that people wrote, by the id of the row."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.all: dict[int, Wide] = {}

    def write(self, scope: str, value: str, until: datetime | None) -> None:
        id_ = self._world.tables.pause_all(self._world.now(), scope, value, until)
        self.all[id_] = Wide(scope, value, self._world.t, until)

    def end(self, one: Wide) -> None:
        self._world.tables.resume_all(self._world.now(), one.scope, one.value)
        self._end(one, self._world.now())

    def _end(self, one: Wide, at: datetime) -> None:
        one.resumed, one.ended = True, one.ended or (self._world.t, at)

    def end_all(self) -> None:
        """Also those whose time has passed: the clock may have been set back before a tick has seen it."""
        for one in self.all.values():
            if not one.resumed:
                self.end(one)

    def in_force(self, now: datetime | None = None) -> list[Wide]:
        return [one for one in self.all.values() if one.in_force(self._world, now)]

    def stops(self, spec: Covered, kind: RunKind = RunKind.SCHEDULED, now: datetime | None = None) -> bool:
        """Whether a pause keeps such a run of the task from its start. For manual runs, only a pause of all tasks does."""
        return any(one.covers(spec) for one in self.in_force(now) if kind is not RunKind.MANUAL or one.scope == "all")

    def over(self) -> list[Wide]:
        return [one for one in self.all.values() if not one.done and not one.in_force(self._world)]

    def judge_tick(self, specs: Mapping[int, Covered]) -> None:
        """Right after a pass: what waits for a pause that is in force is one of its tasks."""
        for row in self._world.tables.task_rows() if self.all else ():
            one = self.all.get(row.pause_id or 0)
            if one is not None and one.in_force(self._world) and not one.covers(specs[row.id]):
                self._world.history.complain("L1", f"task {row.id} waits for {one}")

    # ---------------------------------------------------------------------------------------------------- the budget

    def skips_its_turn(self, spec: Covered, row: Any, now: datetime, at_gate: int | None) -> bool:
        """Whether a due task is claimed for a push, and must have waited for the budget: it was due before the end of a pause, and was
        not let go since. Only what had ended when the tick has `at_gate` what is due counts; no clock may have been set. A probe, whose
        function the workers do not know, needs no budget."""
        ends = [one.ended for one in self.all.values() if one.ended and not one.done and one.covers(spec)]
        is_let_go = [row.resumed_at is not None and row.resumed_at >= min(at, now) for _, at in ends]
        return (
            row.function in FUNCTIONS
            and not self._world.history.steps
            and any(
                at_gate is not None and t <= at_gate and row.occurrence < at and not went
                for (t, at), went in zip(ends, is_let_go, strict=True)
            )
        )

    def granted(self, now: datetime, specs: Iterable[Covered]) -> int:
        """A tick at `now` may let tasks go: so many. Without a pause that is over, they wait for one that was done too soon."""
        over, period = self.over(), self._world.period
        if not over:
            return LEAST_BUDGET
        for one in (one for one in over if one.resumed):
            before, one.granted_at = one.granted_at, now
            if before is not None and timedelta(0) <= now - before < timedelta(seconds=0.9 * period):
                self._world.history.complain("budget", f"it was granted at {before} and again at {now}")
        paces = {row.id: (row.pace_ms or 0) / 1000 for row in self._world.tables.task_rows()}
        covered = [spec for spec in specs if not spec.deleted and any(one.covers(spec) for one in over)]
        rate = sum(1 / (paces[spec.id] or spec.every) for spec in covered)
        return max(LEAST_BUDGET, math.floor(1.2 * period * rate + 1e-6) + 1)

    def went(self, count: int, in_this_tick: int, budget: int) -> None:
        """A tick has let `count` tasks go, and so many altogether."""
        self._world.counts["tasks let go"] += count
        self._world.counts["ticks that met the budget"] += in_this_tick == budget
        if in_this_tick > budget:
            self._world.history.complain("budget", f"{in_this_tick} tasks went in one tick; the budget is {budget}")

    def opened(self, now: datetime) -> None:
        """A tick at `now` has ended the pauses whose time has passed."""
        for one in self.all.values():
            if not one.resumed and one.until is not None and one.until <= now:
                self._end(one, one.until)

    def closed(self) -> None:
        """A tick has noted as done what is over, and for which no task waits."""
        waited_for = {row.pause_id for row in self._world.tables.task_rows()}
        for id_, one in self.all.items():
            one.done = one.done or (one.resumed and id_ not in waited_for)


def kind_of(world: World, run_id: Any) -> RunKind:
    return next(run.kind for run in world.tables.run_rows() if run.id == run_id)
