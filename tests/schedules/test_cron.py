"""Cron: what is taken, what is refused and how, and each next time compared with one found by brute force."""

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.schedules.expressions import ZONES, expression
from tests.schedules.oracle import Oracle
from ticker.errors import BadInput
from ticker.schedules import cron
from ticker.schedules.kinds import times

CHANGES = (
    datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC), datetime(2026, 3, 8, 7, tzinfo=UTC),
    datetime(2026, 4, 4, 15, tzinfo=UTC), datetime(2026, 10, 3, 15, 30, tzinfo=UTC), datetime(2011, 12, 30, 10, tzinfo=UTC),
    datetime(2026, 9, 6, 4, tzinfo=UTC), datetime(2026, 2, 15, 2, tzinfo=UTC), datetime(2026, 3, 28, 22, tzinfo=UTC),
)  # fmt: skip


def compare(seed: int, count: int) -> None:
    dice = random.Random(seed)
    for _ in range(count):
        zone, text = ZoneInfo(dice.choice(ZONES)), expression(dice)
        instant = dice.choice(CHANGES) + timedelta(seconds=dice.randint(-200_000, 100_000))
        try:
            schedule = cron.parse(text, zone)
        except BadInput as error:
            assert "never fires" in str(error), (text, str(error))
            assert Oracle(text, zone, instant, 3000).next_times(1) == [], text
            continue
        days = 40
        while len(expected := Oracle(text, zone, instant, days).next_times(5)) < 5 and days < 3000:
            days *= 9
        found = times(schedule, instant, 5)
        assert found[: len(expected)] == expected, (text, zone.key, instant.isoformat(), found, expected)
        horizon = instant + timedelta(days=days - 3)
        assert len(expected) == 5 or all(x > horizon for x in found[len(expected) :]), (text, zone.key, found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_next_five_times_are_those_that_brute_force_finds(seed):
    compare(seed, 60)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 110))
def test_the_same_for_ten_thousand_expressions(seed):
    compare(seed, 1000)
