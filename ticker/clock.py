"""The only reader of clocks.

Decisions use one clock, the database's: `now()` is None in production, and every statement reads
`clock_timestamp()` where it is handed None. A test or a replay puts a source of its own in its place. `uptime()` only
tells how long ago something was, where the database's clock may have been set since.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

_CLOCK = getattr(
    time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC
)  # as `wrappers.sandbox.limits`: a suspended host's goes on
_source: ContextVar[Callable[[], datetime] | None] = ContextVar("ticker_clock", default=None)


def now() -> datetime | None:
    """The instant to hand to a statement: None, "ask the database", unless a clock was put in its place."""
    source = _source.get()
    return source() if source else None


def monotonic() -> float:
    """Seconds on a clock that is never set, for durations inside one process."""
    return time.monotonic()


def uptime() -> tuple[str | None, int | None]:
    """Which boot of which host this is, and microseconds since then, on a clock that is never set; or no answer.

    There is none off Linux, nor while a clock stands in the database's place: the two would not go together.
    """
    boot = _boot()
    return (None, None) if boot is None or now() is not None else (boot, time.clock_gettime_ns(_CLOCK) // 1000)


@cache
def _boot() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def python_utc() -> datetime:
    """Python's wall clock in UTC: what freezegun freezes. Never used to decide; see `use`."""
    return datetime.now(UTC)


@contextmanager
def use(source: Callable[[], datetime] = python_utc) -> Iterator[None]:
    """Within the block, statements are handed `source()`. With freezegun: `with clock.use(): ...`."""
    token = _source.set(source)
    try:
        yield
    finally:
        _source.reset(token)
