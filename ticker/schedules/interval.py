"""Every so often, counted from the tick that found the task due."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from ticker.schedules.duration import words


@dataclass(frozen=True, slots=True)
class Interval:
    """`every_ms` milliseconds between two ticks' finds; added as real time, so that no zone matters."""

    every_ms: int

    def next_after(self, instant: datetime) -> datetime:
        """`instant` plus the interval. `instant` is aware."""
        return instant + timedelta(milliseconds=self.every_ms)

    def in_words(self) -> str:
        return f"every {self.normalized()}"

    def normalized(self) -> str:
        return words(self.every_ms)
