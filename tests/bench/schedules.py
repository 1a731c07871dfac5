"""How long it takes to read a schedule and find its next time: `python -m tests.bench.schedules [--rounds N]`.

Medians over random cron expressions of 5, 6 and 7 fields in zones that change their clocks, over the calendar events that
were recorded from systemd, and over what is refused. Prints a markdown table.
"""

import argparse
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from statistics import median
from time import perf_counter
from zoneinfo import ZoneInfo

from tests.schedules.expressions import RECORDED, REFUSED, ZONES, expression
from ticker.errors import BadInput
from ticker.schedules import calendar, cron
from ticker.tasks import preview

NOW = datetime(2026, 11, 21, 15, tzinfo=UTC)


def timed(calls: Iterable[Callable[[], object]]) -> list[float]:
    """Microseconds of each call; what is refused counts like what is taken."""
    found = []
    for call in calls:
        began = perf_counter()
        with suppress(BadInput):
            call()
        found.append(1e6 * (perf_counter() - began))
    return found


def crons(count: int) -> Iterable[Callable[[], object]]:
    dice = random.Random(1)
    for _ in range(count):
        text, zone = expression(dice), ZoneInfo(dice.choice(ZONES))
        yield lambda text=text, zone=zone: cron.parse(text, zone).next_after(NOW)  # type: ignore[misc]


def calendars() -> Iterable[Callable[[], object]]:
    for record in RECORDED:
        yield lambda text=record["expression"]: calendar.parse(text, None).next_after(NOW)  # type: ignore[misc]


def refusals() -> Iterable[Callable[[], object]]:
    for text, _ in REFUSED:
        yield lambda text=text: preview.validate(text, now=NOW)  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print("| what | calls | median | slowest |\n|---|---|---|---|")
    for name, calls in (("cron: read, next time", lambda: crons(2000)), ("calendar: read, next time", calendars),
                        ("refused by validate", refusals)):  # fmt: skip
        found = [microseconds for _ in range(rounds) for microseconds in timed(calls())]
        print(f"| {name} | {len(found)} | {median(found):.0f} us | {max(found) / 1000:.1f} ms |")


if __name__ == "__main__":
    main()
