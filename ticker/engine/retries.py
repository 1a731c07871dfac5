"""Decides how long to wait before a failed occurrence is attempted again, and whether there is time. Durations in ms.

All functions are pure. Like any attempt, a retry must end before the next start is possible. So its box shrinks to the
time left, `last_run + I - T - g - now`. If less than a second is left, there is no retry.
"""

from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Self

from ticker.engine import timing
from ticker.errors import BadInput
from ticker.schedules.duration import MINUTE, SECOND, milliseconds, words

LEAST_BOX = 1 * SECOND  # with less time, there is no attempt
DOTS = ".."


@dataclass(frozen=True, slots=True)
class Backoff:
    """A wait that starts at `least` and doubles after each attempt, up to `most`; constant if both are equal."""

    least: int = 10 * SECOND
    most: int = 5 * MINUTE

    @classmethod
    def parse(cls, field: str, value: object) -> Self:
        """Reads `10s..5m`, or a single duration. Raises BadInput."""
        if not isinstance(value, str) or DOTS not in value:
            return cls(*2 * (milliseconds(field, value, least=1),))
        least, most = (milliseconds(field, part, least=1) for part in value.split(DOTS, 1))
        if least > most:
            raise BadInput(field, value, "ends before it begins; write the shorter duration first, as in 10s..5m")
        return cls(least, most)

    @property
    def text(self) -> str:
        """The text that `parse` reads back."""
        return words(self.least) if self.least == self.most else f"{words(self.least)}{DOTS}{words(self.most)}"

    def after(self, attempt: int, seed: int) -> int:
        """Returns how long to wait after this attempt (1, 2, ...): half of the doubled value, and a share of the other
        half.

        The share depends on the seed and the attempt, so that tasks that fail together are not all retried together.
        """
        full = min(self.least << min(attempt - 1, 40), self.most)
        share = int.from_bytes(blake2b(f"{seed} {attempt}".encode(), digest_size=4).digest()) / 2**32
        return full // 2 + round(share * (full - full // 2))


def last_end(last_run: datetime, every: int, tolerance: int, grace: int) -> datetime:
    """Returns when the box of an interval task's attempt must be over: g before the next start is possible."""
    return timing.later(last_run, every - tolerance - grace)
