"""Tickers and the people: a beat that survives what its pass raises, and edits at any moment."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tests.simulation import room
from tests.simulation.limits import CHOICES, PLACES
from tests.simulation.pauses import DUE, GROUPS, PLANNED, WAITING, Pauses, drawn, is_over, kind_of
from tests.simulation.ports import Fault, FaultyQueue, FaultyStore, Killed, Pass
from tests.simulation.world import World
from tests.slots import Limit
from ticker.engine import timing
from ticker.engine.tick import TickOptions, tick
from ticker.errors import DatabaseUnavailable, Unavailable
from ticker.model import RunKind

LOOK_AHEAD = 1000  # ms, as of `ticker run`
EXPLICIT = 8  # a task that gives its tolerance and box gives I/8 and I/4


class Ticker:
    """A process that ticks every `period` seconds, as `ticker.daemon.loop` does; when it is killed, it is started again."""

    def __init__(self, world: World, number: int, period: float) -> None:
        self._world, self._period = world, period
        self._id, self._starts = number, 0
        self._store: Any = None
        self._failures = 0
        self.fault: Fault | None = None
        self.down_until = 0

    def beat(self) -> None:
        world = self._world
        if world.t < self.down_until:
            world.after(min((self.down_until - world.t) / 1e6, 5.0), self.beat)
            return
        pass_, self.fault = Pass(world, self.fault), None
        try:
            self._pass(pass_)
            self._failures = 0
            pause = self._period + world.random.uniform(-0.02, 0.02)
        except Killed:
            self._store, pause = None, world.random.uniform(0.5, 10)
            world.say(f"ticker {self._id} is dead for {pause:.1f} s")
        except Unavailable as error:
            world.freeze(pass_.still_frozen)
            self._failures += 1
            pause = min(2.0 ** (self._failures - 1), self._period)
            world.say(f"ticker {self._id} failed: {error}")
        world.after(pause, self.beat)

    def _pass(self, pass_: Pass) -> None:
        world = self._world
        if self._store is None:
            self._store, self._starts = world.tables.another_store(), self._starts + 1
            self._store.uptime = lambda _=None: world.uptime(self._id)
        report = tick(
            FaultyStore(self._store, pass_),
            FaultyQueue(world.tables.queue, pass_),
            None,
            TickOptions(look_ahead=LOOK_AHEAD),
        )
        world.counts["ticks"] += 1
        room.judge_tick(world)
        world.on_tick()
        own = str(UUID(int=self._id * 1000 + self._starts))
        pass_.call("postgres", "heartbeat", lambda: world.tables.heartbeat(own, report.now, world.now()))


@dataclass
class Spec:
    """What people believe that a task is: they wrote it themselves."""

    id: int
    name: str
    every: float
    explicit: bool
    function: str = "poll"
    enabled: bool = True
    paused: bool = False
    paused_until: datetime | None = None
    paused_at: int = 0
    deleted: bool = False
    limits: tuple[str, ...] = ()
    most: float = 0.0  # the upper bound of an elastic interval; 0: it is fixed
    during: str = ""  # hours in UTC
    group: str = ""

    @property
    def longest(self) -> float:
        """The longest interval that may be in force."""
        return self.most or self.every

    @property
    def every_ms(self) -> int:
        return round(self.every * 1000)

    @property
    def tolerance_ms(self) -> int:
        return self.every_ms // EXPLICIT if self.explicit else timing.tolerance_by_default(self.every_ms)

    @property
    def box_ms(self) -> int:
        return self.every_ms // 4 if self.explicit else timing.box_by_default(self.every_ms)

    def said(self) -> dict[str, Any]:
        """What is passed to `register` or `edit` for the interval."""
        parts = {"tolerance": self.tolerance_ms / 1000, "box": self.box_ms / 1000} if self.explicit else {}
        return {"every": f"{self.every}..{self.most}" if self.most else self.every, **parts}

    def is_paused(self, world: World, now: datetime | None = None) -> bool:
        return self.paused and not is_over(world, self.paused_until, self.paused_at, now)


class People:
    """They register, edit, pause, disable, resume, delete and ask for runs; and remember what they did."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.tasks: dict[int, Spec] = {}
        self.pauses = Pauses(world)

    def register(
        self, every: float, *, explicit: bool, limits: tuple[str, ...] = (), most: float = 0.0, during: str = ""
    ) -> None:
        name, group = f"task {len(self.tasks)}", self._world.random.choice(GROUPS)
        spec = Spec(0, name, every, explicit, limits=limits, most=most, during=during, group=group)
        keys = {"limits": list(limits), "retries": self._world.tables.retries} if limits else {}
        hours = {"during": during} if during else {}
        spec.id = self._world.tables.register(self._world.now(), name, group=group, **spec.said(), **keys, **hours)
        self.tasks[spec.id] = spec

    def declare(self, key: str, limit: Limit) -> None:
        world = self._world
        world.tables.limit(world.now(), key, limit)
        world.history.limits.setdefault(key, []).append((world.t, limit))
        world.say(f"the limit of {key} is {limit}")

    def may_start(self, spec: Spec, kind: RunKind) -> bool:
        own = spec.is_paused(self._world) and kind is not RunKind.MANUAL
        return not spec.deleted and spec.enabled and not own and not self.pauses.stops(spec, kind)

    def judge_claim(self, name: str, rows: Sequence[Any], now: datetime, at_gate: int | None) -> None:
        """S6: no pause keeps what a tick at `now` claims for a push from its start."""
        for row in rows if name in (*DUE, *PLANNED, *WAITING) else ():
            spec = self.tasks[row.task_id if name in PLANNED else row.id]
            kind = kind_of(self._world, row.id) if name in PLANNED else RunKind.SCHEDULED
            own = spec.is_paused(self._world, now) and kind is not RunKind.MANUAL
            if (own or self.pauses.stops(spec, kind, now)) and not getattr(row, "is_closed", False):
                self._world.history.complain("S6", f"{name} took {row}, and {spec} is paused: {self.pauses.in_force()}")
            if name in DUE and self.pauses.skips_its_turn(spec, row, now, at_gate):
                self._world.history.complain("budget", f"{name} took {row}, which was not let go: {self.pauses.over()}")

    def act(self, deeds: tuple[str, ...] = ()) -> None:
        """One of them, on one task; rather on one that waits, where the deed is given. Where the row is locked, or the server
        away, they do without.
        """
        world = self._world
        alive = [spec for spec in self.tasks.values() if not spec.deleted]
        waiting = {row.id for row in world.tables.task_rows() if row.waiting} if deeds else set()
        alive = [spec for spec in alive if spec.id in waiting] or alive
        if not alive or not world.postgres_up:
            return
        spec = world.random.choice(alive)
        deed = world.random.choice(deeds or (DEEDS + DEEDS_WITH_LIMITS if world.history.limits else DEEDS))
        try:
            getattr(self, deed)(spec)
        except DatabaseUnavailable:
            return
        world.counts[f"people: {deed}"] += 1
        world.say(f"people {deed} task {spec.id} (every {spec.every:g} s)")

    def longer(self, spec: Spec) -> None:
        if not spec.during:  # it would not fit into its hours
            self._interval(spec, spec.every * 10, spec.most * 10)

    def shorter(self, spec: Spec) -> None:
        every = max(spec.every / 10, 1.0)
        self._interval(spec, every, spec.most and max(spec.most / 10, 2 * every))

    def wider(self, spec: Spec) -> None:
        """The upper bound alone."""
        if spec.most:
            self._interval(spec, spec.every, spec.most * 2)

    def _interval(self, spec: Spec, every: float, most: float) -> None:
        changed = Spec(spec.id, spec.name, round(every, 3), spec.explicit, most=round(most, 3))
        self._world.tables.edit(self._world.now(), spec.id, **changed.said())
        spec.every, spec.most = changed.every, changed.most

    def function(self, spec: Spec) -> None:
        function = self._world.random.choice(["poll", "fetch", "unheard_of"])
        self._world.tables.edit(self._world.now(), spec.id, function=function)
        spec.function = function

    def disable(self, spec: Spec) -> None:
        self._world.tables.edit(self._world.now(), spec.id, enabled=False)
        spec.enabled = False

    def enable(self, spec: Spec) -> None:
        self._world.tables.edit(self._world.now(), spec.id, enabled=True)
        self._may_move(spec, not spec.enabled)
        spec.enabled = True

    def pause(self, spec: Spec) -> None:
        for_ = self._world.random.choice([None, 3.0, 60.0])
        until = None if for_ is None else self._world.now() + timedelta(seconds=for_)
        self._world.tables.pause(self._world.now(), spec.id, until)
        spec.paused, spec.paused_until, spec.paused_at = True, until, self._world.t

    def resume(self, spec: Spec) -> None:
        self._world.tables.resume(self._world.now(), spec.id)
        self._may_move(spec, spec.paused)
        spec.paused, spec.paused_until = False, None

    def pause_all(self, spec: Spec) -> None:
        draw, world = self._world.random, self._world
        for_ = draw.choice([None, None, 3.0, 3 * world.period, 60.0])
        scope, value = drawn(world, spec)
        self.pauses.write(scope, value, None if for_ is None else world.now() + timedelta(seconds=for_))
        world.say(f"the tasks of {scope} {value!r} are paused for {for_} s")

    def resume_all(self, spec: Spec) -> None:
        if in_force := self.pauses.in_force():
            self.pauses.end(self._world.random.choice(in_force))

    def group(self, spec: Spec) -> None:
        group = self._world.random.choice(GROUPS)
        self._world.tables.edit(self._world.now(), spec.id, group=group)
        spec.group = group

    def _may_move(self, spec: Spec, did: bool) -> None:
        if did:
            self._world.history.moved[spec.id] = self._world.t

    def run_now(self, spec: Spec) -> None:
        if not spec.enabled:
            return
        self._world.tables.run_now(self._world.now(), spec.id)

    def news(self, spec: Spec) -> None:
        """A webhook says that there is work: many calls are one run, and an elastic interval is short again."""
        if spec.enabled:
            within = self._world.random.choice([1.0, 5.0, 60.0])
            self._world.tables.run_now(self._world.now(), spec.id, within)
            self._may_move(spec, bool(spec.most))

    def stop(self, spec: Spec) -> None:
        self._world.tables.stop(self._world.now(), spec.id)

    def limit(self, spec: Spec) -> None:
        self.declare(PLACES, Limit(self._world.random.randint(1, 3)))

    def keys(self, spec: Spec) -> None:
        if spec.limits:
            keys = self._world.random.choice(CHOICES)
            self._world.tables.edit(self._world.now(), spec.id, limits=list(keys))
            spec.limits = keys

    def delete(self, spec: Spec) -> None:
        if self._world.random.random() < 0.3:
            self._world.tables.delete(self._world.now(), spec.id)
            spec.deleted = True

    def settle_down(self, longest: float) -> None:
        """Before the calm: everything is on again, and no interval is longer than the judge will wait for."""
        self.pauses.end_all()
        for spec in self.tasks.values():
            if not spec.deleted:
                self.enable(spec)
                self.resume(spec)
                self._world.tables.edit(self._world.now(), spec.id, function="poll")
                spec.function = "poll"
                if spec.longest > longest:
                    every = min(spec.every, longest if not spec.most else max(longest / 4, 1.0))
                    self._interval(spec, every, longest if spec.most else 0.0)


DEEDS = (
    "longer",
    "shorter",
    "function",
    "disable",
    "enable",
    "enable",
    "pause",
    "resume",
    "resume",
    "run_now",
    "news",
    "news",
    "wider",
    "stop",
    "delete",
    "pause_all",
    "pause_all",
    "resume_all",
    "resume_all",
    "resume_all",
    "group",
)
DEEDS_WITH_LIMITS = ("limit", "limit", "limit", "keys")
PAUSING = (
    ("pause_all",) * 4 + ("resume_all",) * 5 + ("pause", "resume", "disable", "enable", "group", "function", "run_now")
)
