"""Reads the clocks. No other module does.

Decisions use one clock, the database's. `now()` is None in production, and a statement that gets None reads
`clock_timestamp()`. Tests substitute their own source. `uptime()` only measures how long ago something
happened, because the database's clock may have been set since.
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
)  # as in `wrappers.sandbox.limits`: this clock also runs while the host is suspended
_BOOT = 13  # characters: 48 random bits tell hosts apart, and each run stores them
_source: ContextVar[Callable[[], datetime] | None] = ContextVar("ticker_clock", default=None)


def now() -> datetime | None:
    """Returns the instant to pass to a statement: None ("ask the database"), unless `use` substitutes a clock."""
    source = _source.get()
    return source() if source else None


def monotonic() -> float:
    """Returns seconds on a clock that is never set, for durations within one process."""
    return time.monotonic()


def uptime() -> tuple[str | None, int | None]:
    """Returns the id of this host's boot, and the microseconds since that boot on a clock that is never set.

    Both are None on systems other than Linux, and while `use` substitutes a clock, because the values would not match
    that clock.
    """
    boot = _boot()
    return (None, None) if boot is None or now() is not None else (boot, time.clock_gettime_ns(_CLOCK) // 1000)


@cache
def _boot() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:_BOOT]
    except OSError:
        return None


def python_utc() -> datetime:
    """Returns Python's wall clock in UTC, which freezegun freezes. Decisions depend on it only within `use`."""
    return datetime.now(UTC)


@contextmanager
def use(source: Callable[[], datetime] = python_utc) -> Iterator[None]:
    """Passes `source()` to statements within the block, and lets `run.quota` count by it. With freezegun: `with
    clock.use(): ...`.
    """
    token = _source.set(source)
    try:
        yield
    finally:
        _source.reset(token)
