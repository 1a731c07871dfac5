"""The limits of a history: tight ones, so that tasks wait for each other."""

import random

from tests.slots import Limit

PLACES = "places"  # people change this limit
CHOICES = (("places",), ("tokens",), ("both",), ("places", "tokens"), ("tokens", "places"), ("both", "places"))


def drawn(draw: random.Random, period: float) -> dict[str, Limit]:
    seconds = round(2 * period)
    return {
        PLACES: Limit(draw.randint(1, 3)),
        "tokens": Limit(None, 3, seconds, draw.randint(1, 3)),
        "both": Limit(draw.randint(1, 2), 2, seconds, draw.randint(1, 2)),
    }
