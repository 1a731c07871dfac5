"""The limits of a history: tight ones, so that tasks wait for each other."""

import random
from dataclasses import dataclass
from datetime import timedelta

PLACES = "places"  # people change this limit
CHOICES = (("places",), ("tokens",), ("both",), ("places", "tokens"), ("tokens", "places"), ("both", "places"))


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


def drawn(draw: random.Random, period: float) -> dict[str, Limit]:
    seconds = round(2 * period)
    return {
        PLACES: Limit(draw.randint(1, 3)),
        "tokens": Limit(None, 3, seconds, draw.randint(1, 3)),
        "both": Limit(draw.randint(1, 2), 2, seconds, draw.randint(1, 2)),
    }
