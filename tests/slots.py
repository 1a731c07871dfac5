"""What limits do to starts, in Python: the tables `limits`, `limited_keys` and `slots`, for the in-memory double."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

SECOND = timedelta(seconds=1)
SLOW_START_MOST = 64
LEFT_BEHIND = timedelta(minutes=10)  # after the clock was set back, the slot of a run that ended without freeing it


@dataclass(frozen=True)
class Limit:
    """At most `concurrency` runs at the same time, and `count` starts per `seconds`, up to `burst` of them at once."""

    concurrency: int | None = None
    count: int | None = None
    seconds: int = 1
    burst: int | None = None

    @property
    def rate(self) -> str | None:
        return None if self.count is None else f"{self.count}/{self.seconds}s"

    @property
    def token(self) -> timedelta:
        """How long a start uses up a token; rounded up, as in the table."""
        if self.count is None or self.burst is None:
            return timedelta(0)
        return timedelta(microseconds=-(-self.burst * self.seconds * 1_000_000 // self.count))

    @property
    def arguments(self) -> dict[str, Any]:
        """What `ticker.limit` takes."""
        return {"concurrency": self.concurrency, "rate": self.rate, "burst": self.burst}


@dataclass
class Key:
    """One key, with its limits, its hold, and the slots that were ever taken: by which token, and until when."""

    concurrency: int | None = None
    burst: int | None = None
    token_for: timedelta = timedelta(0)
    closed_at: datetime | None = None
    closed_until: datetime | None = None
    allowed: int | None = None
    taken: dict[tuple[str, int], tuple[UUID | None, datetime]] = field(default_factory=dict)

    def sizes(self) -> dict[str, int]:
        """How many slots of each kind there are; a kind without a limit is missing."""
        places = min((n for n in (self.concurrency, self.allowed) if n is not None), default=None)
        return {kind: size for kind, size in (("run", places), ("start", self.burst)) if size is not None}

    def is_held(self, now: datetime) -> bool:
        return self.closed_until is not None and self.closed_until > now

    def free(self, kind: str, now: datetime, is_alive: Callable[[UUID], bool] = lambda _: False) -> list[int]:
        """The free slots of a kind. After a step of the clock, the time of a slot may have passed though its run is alive."""
        slots = {n: self.taken.get((kind, n), (None, now)) for n in range(1, self.sizes()[kind] + 1)}
        return [n for n, (token, until) in slots.items() if until <= now and not (token and is_alive(token))]

    def room(self, now: datetime) -> int | None:
        """How many runs may start; None: as many as want to."""
        if self.is_held(now):
            return 0
        return min((len(self.free(kind, now)) for kind in self.sizes()), default=None)

    def close_key(self, now: datetime, for_: timedelta) -> None:
        if self.closed_at is not None and self.closed_until is not None and self.closed_at > now + SECOND:
            self.closed_until = now + (self.closed_until - self.closed_at)  # the clock was set back
        self.allowed, self.closed_at = 1, now
        self.closed_until = max(self.closed_until or now, now + for_)

    def succeeded(self, started_at: datetime) -> None:
        """After a hold, each success doubles how many may be active."""
        if self.allowed is not None and (self.closed_until is None or started_at >= self.closed_until):
            allowed, most = 2 * self.allowed, self.concurrency or SLOW_START_MOST
            self.allowed = allowed if allowed < most else None

    def clamp(self, now: datetime, span_of: Callable[[UUID | None], timedelta | None]) -> None:
        """After the clock was set back. `span_of`: how long the run with this token holds its slot, if it has not ended."""
        for slot, (token, until) in self.taken.items():
            latest = now + (self.token_for if slot[0] == "start" else span_of(token) or LEFT_BEHIND)
            if until > latest + SECOND:
                self.taken[slot] = token, latest
        if self.closed_at is not None and self.closed_until is not None and self.closed_at > now + SECOND:
            self.closed_at, self.closed_until = now, now + (self.closed_until - self.closed_at)


def take(
    keys: Mapping[str, Key], wanted: Sequence[str], now: datetime, token: UUID, span: timedelta, is_alive: Callable[[UUID], bool]
) -> bool:  # fmt: skip
    """Takes a slot of each kind of each of these keys, or none. Returns whether it did."""
    chosen = []
    for key in (keys[name] for name in wanted):
        if key.is_held(now):
            return False
        for kind in key.sizes():
            free = key.free(kind, now, is_alive)
            if not free:
                return False
            chosen.append((key, kind, free[0]))
    for key, kind, n in chosen:
        key.taken[kind, n] = (token, now + span) if kind == "run" else (None, now + key.token_for)
    return True


def give_back(keys: Iterable[Key], token: UUID) -> list[Key]:
    """Frees the slots of a run that ended, and returns their keys."""
    given = [(key, slot) for key in keys for slot, (of, _) in key.taken.items() if of == token]
    for key, slot in given:
        del key.taken[slot]
    return [key for key, _ in given]
