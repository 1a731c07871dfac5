"""Cron and zones by brute force, to compare with: every clock time of every day is looked at, every offset listed."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from heapq import nsmallest
from itertools import product
from zoneinfo import ZoneInfo

DAY = timedelta(days=1)
QUARTER = timedelta(minutes=15)
REACH = timedelta(hours=26)
RANGES = (range(60), range(60), range(24), range(1, 32), range(1, 13), range(8), range(1970, 2200))

Segment = tuple[datetime, datetime, timedelta]


def numbers(part: str, place: int) -> set[int]:
    found: set[int] = set()
    for term in part.split(","):
        span, _, step = term.partition("/")
        if span == "*":
            low, high = RANGES[place][0], RANGES[place][-1]
        else:
            low, high = (int(end) for end in span.split("-")) if "-" in span else (int(span), int(span))
            if step and "-" not in span:
                high = 6 if place == 5 and low < 7 else RANGES[place][-1]
        found.update(n for n in range(low, high + 1) if (n - low) % int(step or 1) == 0)
    return {n % 7 for n in found} if place == 5 else found


class Oracle:
    """One expression in one zone, from one instant on, for so many days."""

    def __init__(self, text: str, zone: ZoneInfo, instant: datetime, days: int) -> None:
        parts = text.split()
        parts = ["0", *parts] if len(parts) == 5 else parts
        parts = [*parts, "*"] if len(parts) == 6 else parts
        self.sets = [numbers(part, place) for place, part in enumerate(parts)]
        self.both = parts[3].startswith("*") or parts[5].startswith("*")
        self.wildcard = any(part.startswith("*") for part in parts[:3])
        self.zone, self.instant, self.days = zone, instant, days
        self.segments = segments(zone, instant - 3 * DAY, instant + (days + 3) * DAY)

    def next_times(self, count: int) -> list[datetime]:
        found: set[datetime] = set()
        bound = None
        for shown in self.shown():
            found.update(x for x in self.instants(shown) if x > self.instant)
            if len(found) >= count and bound is None:
                bound = shown + REACH  # a repeated hour may still bring earlier ones
            if bound is not None and shown > bound:
                break
        return nsmallest(count, found)

    def shown(self) -> Iterator[datetime]:
        first = (self.instant.astimezone(self.zone)).replace(tzinfo=None) - REACH
        times = sorted(time(*clock) for clock in product(*(self.sets[n] for n in (2, 1, 0))))
        for day in (first.date() + n * DAY for n in range(self.days)):
            if self.is_day(day):
                yield from (w for at in times if (w := datetime.combine(day, at)) >= first)

    def is_day(self, day: date) -> bool:
        if day.month not in self.sets[4] or day.year not in self.sets[6]:
            return False
        fits = (day.day in self.sets[3], day.isoweekday() % 7 in self.sets[5])
        return all(fits) if self.both else any(fits)

    def instants(self, shown: datetime) -> list[datetime]:
        """Lists every stretch of one offset, and asks each of them; between two of them lies what was passed over."""
        there = []
        for begin, end, offset in self.segments:
            x = shown.replace(tzinfo=UTC) - offset
            if begin <= x < end:
                there.append(x)
        if self.wildcard:
            return there
        if there:
            return there[:1]
        for (_, end, before), (begin, _, after) in zip(self.segments, self.segments[1:], strict=False):
            last = (end + before).replace(tzinfo=None) - timedelta(microseconds=1)
            new = (begin + after).replace(tzinfo=None)
            if last < shown < new:
                return [] if last.date() < shown.date() < new.date() else [begin]
        return []


def segments(zone: ZoneInfo, begin: datetime, end: datetime) -> list[Segment]:
    """The stretches of one offset, found by looking at each quarter of an hour."""
    at = begin.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    found: list[Segment] = []
    first, offset = at, at.astimezone(zone).utcoffset()
    while at < end:
        following = at + DAY
        if following.astimezone(zone).utcoffset() == offset:
            at = following
            continue
        at += QUARTER
        new = at.astimezone(zone).utcoffset()
        if new != offset:
            found.append((first, at, offset or timedelta(0)))
            first, offset = at, new
    found.append((first, at, offset or timedelta(0)))
    return found
