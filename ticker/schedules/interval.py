"""Every so often, counted from the tick that found the task due."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Interval:
    """`every_ms` milliseconds between two ticks' finds; added as real time, so that no zone matters."""

    every_ms: int

    def next_after(self, instant: datetime) -> datetime:
        """`instant` plus the interval. `instant` is aware."""
        return instant + timedelta(milliseconds=self.every_ms)
