"""Defines intervals, which count from the tick that found the task due."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from ticker.errors import BadInput
from ticker.model import Kind
from ticker.schedules.duration import SECOND, milliseconds, words

UTC = ZoneInfo("UTC")
DOTS = ".."


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of `every_ms` milliseconds of real time, which no zone affects.

    With `most_ms`, it is elastic: `every_ms` is its lower bound, and `most_ms` its upper bound.
    """

    every_ms: int
    zone: ZoneInfo = UTC
    kind: Kind = field(default=Kind.INTERVAL, init=False)
    most_ms: int | None = None

    @property
    def text(self) -> str:
        return words(self.every_ms) + (f"{DOTS}{words(self.most_ms)}" if self.most_ms else "")

    def next_after(self, instant: datetime) -> datetime:
        """Returns `instant`, which is aware, plus the interval."""
        return instant + timedelta(milliseconds=self.every_ms)

    def words(self) -> str:
        return f"Every {words(self.every_ms)}" + (f" to {words(self.most_ms)}" if self.most_ms else "")


def parse(field: str, value: object, zone: ZoneInfo = UTC) -> Interval:
    """Reads an interval: a duration, or `1m..30m` for an elastic one. Raises BadInput."""
    if not isinstance(value, str) or DOTS not in value:
        return Interval(milliseconds(field, value, least=SECOND), zone)
    least, most = (milliseconds(field, part, least=SECOND) for part in value.split(DOTS, 1))
    if least >= most:
        raise BadInput(field, value, "is not a range; write the shorter interval first, as in 1m..30m")
    return Interval(least, zone, most_ms=most)
