"""The ports of one pass, with one fault at one of its calls. The pass itself is the real one."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tests.doubles import job_id
from tests.simulation.record import Advance, Push
from tests.simulation.world import World
from ticker.engine.jobs import JobSpec
from ticker.engine.key_limits import LimitedTask
from ticker.engine.ports import JobState, Look, OpenPauses, Receipt, Refusal, RunAtWork
from ticker.errors import DatabaseUnavailable, QueueUnavailable
from ticker.model import DueTask

T = TypeVar("T")

IDLE_IN_TRANSACTION = 10.0  # seconds: then the server ends the transaction of a ticker that is stopped


class Killed(Exception):
    """SIGKILL: nothing of the pass goes on."""


@dataclass(frozen=True)
class Fault:
    """What strikes the pass at its `at`-th call, or at the call of that name. `how`: killed before, killed after, frozen, answer lost, cut."""

    how: str
    at: int | str
    seconds: float = 0.0


class Pass:
    """One pass of one ticker: counts its calls, and strikes once."""

    def __init__(self, world: World, fault: Fault | None) -> None:
        self.world, self.fault = world, fault
        self.calls = 0
        self.in_batch = False
        self.answered: set[str] = set()
        self.let_go = 0  # tasks that waited for a pause
        self.budget = 0  # the most that may go
        self.at_gate: int | None = None  # when
        self.now = world.now()
        self.still_frozen = 0.0

    def call(self, server: str, name: str, do: Callable[[], T]) -> T:
        self.calls += 1
        struck = self.fault if self.fault and self.fault.at in (self.calls, name) else None
        if struck is None:
            self.world.reach(server)
            return do()
        self.before(struck, name)
        self.world.reach(server)
        answer = do()
        self.behind(struck, server, name)
        return answer

    def before(self, struck: Fault, name: str) -> None:
        if struck.how == "killed before":
            self.strike(f"ticker killed before {name}")
            raise Killed
        if struck.how == "frozen":
            self.strike(f"ticker frozen before {name}")
            self.freeze(struck.seconds)

    def behind(self, struck: Fault, server: str, name: str) -> None:
        if struck.how == "killed after":
            self.strike(f"ticker killed after {name}")
            raise Killed
        if struck.how == "answer lost":
            self.strike(f"answer lost of {name}")
            raise QueueUnavailable("answer lost") if server == "redis" else DatabaseUnavailable("answer lost")

    def freeze(self, seconds: float) -> None:
        """Others go on. Rows stay locked for as long as the server lets an idle transaction live."""
        if not self.in_batch or seconds <= IDLE_IN_TRANSACTION:
            self.world.freeze(seconds)
            return
        self.world.freeze(IDLE_IN_TRANSACTION)
        self.still_frozen = seconds - IDLE_IN_TRANSACTION
        raise DatabaseUnavailable("terminating connection due to idle-in-transaction timeout")

    def strike(self, kind: str) -> None:
        self.world.fault(kind)


class FaultyStore:
    """A real store or its double, on the history's clock."""

    def __init__(self, inner: Any, pass_: Pass) -> None:
        self._inner, self._pass = inner, pass_

    @property
    def installation(self) -> str:
        return str(self._inner.installation)

    def now(self) -> datetime:
        self._pass.now = self._pass.call("postgres", "now", self._pass.world.now)
        return self._pass.now

    def look(self, now: datetime | None, look_ahead: int) -> Look:
        """None as in `clamp`."""
        return self._pass.call("postgres", "look", lambda: self._inner.look(now or self._pass.world.now(), look_ahead))

    def remove_done(self, limit: int) -> int:
        return self._pass.call("postgres", "remove_done", lambda: int(self._inner.remove_done(limit)))

    def drop_orphaned_plans(self, *args: Any) -> int:
        return self._pass.call("postgres", "drop_orphaned_plans", lambda: int(self._inner.drop_orphaned_plans(*args)))

    def stop_runs(self, *args: Any) -> Sequence[RunAtWork]:
        return self._pass.call("postgres", "stop_runs", lambda: self._inner.stop_runs(*args))

    def clamp(self, now: datetime | None, limit: int) -> bool:
        """None means the store's clock, read under the rows' locks: the history's clock at that instant."""
        return self._pass.call(
            "postgres", "clamp", lambda: bool(self._inner.clamp(now or self._pass.world.now(), limit))
        )

    def wake(self, now: datetime, limit: int) -> int:
        return self._pass.call("postgres", "wake", lambda: int(self._inner.wake(self._seen(now), limit)))

    def open_pauses(self, now: datetime) -> OpenPauses:
        def opened() -> OpenPauses:
            pauses: OpenPauses = self._inner.open_pauses(self._seen(now))
            self._pass.world.on_open(now)
            return pauses

        return self._pass.call("postgres", "open_pauses", opened)

    def _seen(self, now: datetime) -> datetime:
        """A ticker that was stopped while the clock was set back ends pauses by the time before that."""
        if now > self._pass.world.now():
            self._pass.world.history.peaks.append((self._pass.world.t, now))
        return now

    def wait_for_gate(self, *args: Any) -> tuple[datetime, int] | None:
        self._pass.at_gate = self._pass.world.t
        return self._pass.call("postgres", "wait_for_gate", lambda: self._inner.wait_for_gate(*args))

    def probe(self, now: datetime, period: int) -> None:
        self._pass.call("postgres", "probe", lambda: self._inner.probe(now, period))

    def grant_budget(self, now: datetime, look_ahead: int, _: int, __: int, full: Collection[str]) -> int | None:
        """With the period of the history's ticks, which the other steps of a simulated pass do not know."""
        period = round(self._pass.world.period * 1000)

        def granted() -> int | None:
            budget: int | None = self._inner.grant_budget(now, look_ahead, period, period, full)
            if budget is not None:
                self._pass.budget = self._pass.world.on_grant(now)
            return budget

        return self._pass.call("postgres", "grant_budget", granted)

    def let_go(self, now: datetime, limit: int) -> tuple[int, int]:
        def gone() -> tuple[int, int]:
            found, count = self._inner.let_go(now, limit)
            self._pass.let_go += count
            self._pass.world.on_let_go(count, self._pass.let_go, self._pass.budget)
            return found, count

        return self._pass.call("postgres", "let_go", gone)

    def close_pauses(self, now: datetime) -> None:
        def closed() -> None:
            self._inner.close_pauses(now)
            self._pass.world.on_close()

        self._pass.call("postgres", "close_pauses", closed)

    def end_overdue(self, now: datetime | None, limit: int, beat: int = 0) -> int:
        """None as in `clamp`."""
        return self._pass.call(
            "postgres", "end_overdue", lambda: int(self._inner.end_overdue(now or self._pass.world.now(), limit, beat))
        )

    def watched(self, *args: Any) -> timedelta:
        return self._pass.call("postgres", "watched", lambda: self._inner.watched(*args))

    def limited_due(self, *args: Any) -> tuple[Sequence[LimitedTask], bool]:
        return self._pass.call("postgres", "limited_due", lambda: self._inner.limited_due(*args))

    @contextmanager
    def batch(self) -> Iterator["FaultyBatch"]:
        self._pass.call("postgres", "begin", lambda: None)
        with self._inner.batch() as rows:
            self._pass.in_batch = True
            try:
                batch = FaultyBatch(rows, self._pass)
                yield batch
                self._pass.call("postgres", "commit", lambda: None)
            finally:
                self._pass.in_batch = False
        batch.committed()
        self._pass.call("postgres", "its end", lambda: None)


class FaultyBatch:
    """The calls within one transaction; whatever is raised here rolls it back."""

    def __init__(self, inner: Any, pass_: Pass) -> None:
        self._inner, self._pass = inner, pass_
        self._advances: list[Advance] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._inner, name)

        def called(*args: Any) -> Any:
            answer = method(*args)
            if name.startswith("claim_"):
                self._pass.world.on_claim(name, answer, self._pass.now, self._pass.at_gate)
            return answer

        return lambda *args: self._pass.call("postgres", name, lambda: called(*args))

    def advance(self, tasks: Sequence[tuple[DueTask, datetime | None, str | None]]) -> None:
        self._pass.call("postgres", "advance", lambda: self._inner.advance(tasks))
        self._advances += [self._advance(task) for task, *_ in tasks]

    def _advance(self, task: DueTask) -> Advance:
        world, id_ = self._pass.world, job_id(task.id, task.occurrence)
        instant = max(self._pass.now or task.occurrence, task.occurrence)
        world.counts["judged: pushes of tasks with hours"] += bool(task.during)
        if task.during and not is_open(task.during, instant):
            world.history.complain("L1", f"{id_} was pushed at {instant}, outside the hours {task.during}")
        late = (world.now() - task.occurrence).total_seconds()
        return Advance(world.t, task.id, id_, id_ in self._pass.answered, late)

    def committed(self) -> None:
        self._pass.world.history.advances += self._advances


def is_open(hours: str, instant: datetime) -> bool:
    """Whether these hours, in UTC on every day, include the instant."""
    begins, ends = (_minutes(text) for text in hours.split("-"))
    now = instant.hour * 60 + instant.minute
    return begins <= now < ends if begins < ends else not ends <= now < begins


def _minutes(text: str) -> int:
    hour, _, minute = text.partition(":")
    return int(hour) * 60 + int(minute or 0)


class FaultyQueue:
    """The queue; of a call whose answer is lost everything has happened but the answer."""

    def __init__(self, inner: Any, pass_: Pass) -> None:
        self._inner, self._pass = inner, pass_

    def push(self, specs: Sequence[JobSpec]) -> Sequence[Receipt]:
        fault, world = self._pass.fault, self._pass.world
        if specs and fault and fault.how == "cut" and world.redis_up:
            self._pass.fault = None
            self._pass.strike("ticker killed within push")
            self._push(specs[: int(fault.seconds) % len(specs)])
            raise Killed
        receipts = self._pass.call("redis", "push", lambda: self._push(specs))
        answered = [e.job_id for e, receipt in zip(specs, receipts, strict=True) if receipt.stored or receipt.held]
        self._pass.answered |= set(answered)
        return receipts

    def _push(self, specs: Sequence[JobSpec]) -> Sequence[Receipt]:
        receipts: Sequence[Receipt] = self._inner.push(specs)
        world = self._pass.world
        for sent, receipt in zip(specs, receipts, strict=True):
            answer = "stored" if receipt.stored else "held" if receipt.held else receipt.error
            world.history.pushes.append(Push(world.t, sent.job_id, answer))
            world.counts[f"push: {answer if receipt.stored or receipt.held else 'refused'}"] += 1
        if specs:
            world.say(f"pushed {[e.job_id for e in specs]}")
            world.on_push()
        return receipts

    def lengths(self, names: Sequence[str]) -> Mapping[str, int]:
        return self._pass.call("redis", "lengths", lambda: self._inner.lengths(names)) if names else {}

    def states(self, job_ids: Sequence[str]) -> Sequence[JobState]:
        return self._pass.call("redis", "states", lambda: self._inner.states(job_ids))

    def refusals(self, job_ids: Sequence[str]) -> Sequence[Refusal]:
        return self._pass.call("redis", "refusals", lambda: self._inner.refusals(job_ids))

    def forget(self, job_ids: Collection[str], queues: Collection[str] = ()) -> None:
        self._pass.call("redis", "forget", lambda: self._inner.forget(job_ids, queues))

    def stop(self, runs: Sequence[RunAtWork]) -> None:
        if runs:
            self._pass.call("redis", "stop", lambda: self._stop(runs))

    def _stop(self, runs: Sequence[RunAtWork]) -> None:
        self._inner.stop(runs)
        self._pass.world.stopping |= {run.token for run in runs}
