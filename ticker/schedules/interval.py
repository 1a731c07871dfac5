"""Defines intervals, which count from the tick that found the task due."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from ticker.model import Kind
from ticker.schedules.duration import words

UTC = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of `every_ms` milliseconds of real time, which no zone affects."""

    every_ms: int
    zone: ZoneInfo = UTC
    kind: Kind = field(default=Kind.INTERVAL, init=False)

    @property
    def text(self) -> str:
        return words(self.every_ms)

    def next_after(self, instant: datetime) -> datetime:
        """Returns `instant`, which is aware, plus the interval."""
        return instant + timedelta(milliseconds=self.every_ms)

    def words(self) -> str:
        return f"Every {words(self.every_ms)}"
