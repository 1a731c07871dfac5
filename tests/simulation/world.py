"""One clock for everything: a heap of events in true time, and a database clock that is off by as much as it was set."""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.doubles import Uptime
from tests.simulation.record import History
from tests.simulation.verdict import Tables
from ticker.errors import DatabaseUnavailable, QueueUnavailable

BASE = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = 1_000_000  # microseconds: true time is counted in whole ones
HOUR = 3_600 * SECOND
YEAR = 365 * 86_400 * SECOND
EARLIEST, LATEST = -50 * YEAR, 5_000 * YEAR  # off true time: a row holds no time before 1970 or after 9999


@dataclass
class World:
    """What all actors share. `t` is true time; what is down makes every call fail."""

    tables: Tables
    random: random.Random
    history: History
    t: int = 0
    offset: int = 0
    redis_up: bool = True
    postgres_up: bool = True
    slow_until: int = 0
    hosts: int = 1
    period: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    on_push: Callable[[], None] = lambda: None
    on_tick: Callable[[], None] = lambda: None
    on_claim: Callable[[str, Sequence[Any], datetime, int | None], None] = lambda name, rows, now, at_gate: None
    on_grant: Callable[[datetime], int] = lambda now: 0
    on_let_go: Callable[[int, int, int], None] = lambda count, in_this_tick, budget: None
    on_open: Callable[[datetime], None] = lambda now: None
    on_close: Callable[[], None] = lambda: None
    stopping: set[str] = field(default_factory=set)
    """The tokens of the runs that workers were asked to stop."""
    _heap: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _events: int = 0

    def now(self) -> datetime:
        """The database's clock."""
        return BASE + timedelta(microseconds=self.t + self.offset)

    def uptime(self, host: int = 0) -> Uptime:
        """Of one of the `hosts`: true time, which nobody sets; the second one was booted an hour later."""
        return f"boot {host % self.hosts}", self.t + HOUR * (2 - host % self.hosts)

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self._events += 1
        heapq.heappush(self._heap, (self.t + round(seconds * SECOND), self._events, event))

    def run_until(self, end: int) -> None:
        """Plays the events up to `end`. An event may call this: who freezes lets the others go on meanwhile."""
        while self._heap and self._heap[0][0] <= end:
            at, _, event = heapq.heappop(self._heap)
            self.t = max(self.t, at)
            self.counts["events"] += 1
            event()
        self.t = max(self.t, end)

    def freeze(self, seconds: float) -> None:
        self.run_until(self.t + round(seconds * SECOND))

    def set_clock(self, by: int) -> None:
        by = max(EARLIEST, min(LATEST, self.offset + by)) - self.offset
        self.history.peaks.append((self.t, self.now()))
        self.offset += by
        self.history.steps.append((self.t, by))
        self.say(f"the clock is set {'forward' if by > 0 else 'back'} by {timedelta(microseconds=abs(by))}")

    def reach(self, server: str) -> None:
        """Raises as the real ports do where the server is down."""
        if server == "redis" and not self.redis_up:
            raise QueueUnavailable("Redis is down")
        if server == "postgres" and not self.postgres_up:
            raise DatabaseUnavailable("PostgreSQL is down")

    def say(self, text: str) -> None:
        """A line of the story, for whoever reads a violation."""
        self.history.lines.append((self.t, self.now(), text))

    def fault(self, kind: str) -> None:
        self.counts[f"fault: {kind}"] += 1
        self.say(f"FAULT {kind}")
