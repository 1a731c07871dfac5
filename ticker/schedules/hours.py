"""Reads the hours in which an interval task is due, such as `9-17 mon-fri`, and computes when they begin and end.

They go by the clocks of a zone. When clocks change, each of them begins and ends once, by the rule of a fixed time of
cron: at the change if the clocks skip it, and the first time if they show it twice.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

from ticker.errors import BadInput
from ticker.model import Alarm, DueTask
from ticker.schedules import interval, zones
from ticker.schedules.calendar import rows
from ticker.schedules.duration import MINUTE
from ticker.schedules.interval import MILLISECOND, Interval

if TYPE_CHECKING:
    from ticker.tasks.fields import Task

LONGEST = 100  # characters
SHORTEST = 10 * MINUTE
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
A_DAY, A_WEEK = 24 * 60, 7 * 24 * 60  # minutes
WHOLE_DAY, WEEK = (0, A_DAY), timedelta(weeks=1)
BEFORE_THE_END = timedelta(minutes=10)  # a task that waits until later in its hours could miss them each time
GOLDEN = 2_654_435_769  # 2^32 divided by the golden ratio: multiples of it are evenly spread
SPANS_AT_MOST = 100  # computed for one alarm, in a third of a millisecond
_HOW = "is not hours of the day; write 9-17 mon-fri, 9:30-17:30, 22-6 sat,sun, 8-12,13-17 or mon-fri"
_RANGE = re.compile(r"([0-9]{1,2})(?::([0-9]{2}))?-([0-9]{1,2})(?::([0-9]{2}))?")

Minutes = tuple[int, int]
"""The minutes at which something begins and ends, counted from a midnight. The end may be on a later day."""


class Span(NamedTuple):
    """A span of time without a gap. It includes its beginning, and excludes its end."""

    begins: datetime
    ends: datetime


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours of the day, on days of the week. `text` is normalized; it is empty if they never end. Made by `parse`."""

    text: str
    spans: tuple[Minutes, ...]

    @property
    def shortest(self) -> int:
        """The length of the shortest span, in milliseconds, on days on which no clock changes."""
        return min(ends - begins for begins, ends in self.spans) * MINUTE

    def span(self, instant: datetime, zone: ZoneInfo) -> Span:
        """Returns the span that `instant` (aware) is in, or else the next one, in UTC."""
        today = zones.wall(instant, zone).date()
        monday = datetime.combine(today, time()) - timedelta(days=today.weekday()) - WEEK
        while True:
            for span in _of_week(self.spans, monday, zone):
                if span.ends > instant:
                    return span
            monday += WEEK


class InHours:
    """An interval whose times are only within the hours of its task."""

    def __init__(self, schedule: Interval, task: "DueTask | Task | Alarm") -> None:
        self.schedule, self.task = schedule, task
        self.kind, self.text, self.zone = schedule.kind, schedule.text, zones.zone("zone", task.zone)

    def next_after(self, instant: datetime) -> datetime:
        return in_hours(self.task, self.schedule.next_after(instant))

    def words(self) -> str:
        return f"{self.schedule.words()}, during {self.task.during}"


def parse(field: str, value: object) -> Hours:
    """Reads hours of the day, days of the week, or both. Raises BadInput."""
    if not isinstance(value, str):
        raise BadInput(field, value, "is not a string")
    if len(value) > LONGEST:
        raise BadInput(field, value, f"has {len(value)} characters; up to {LONGEST} are allowed")
    parts = value.lower().split()
    ranges = _ranges(field, value, parts.pop(0)) if parts and parts[0][0].isdigit() else [WHOLE_DAY]
    days = _days(field, value, parts.pop(0)) if parts else [True] * 7
    if parts or not value.strip():
        raise BadInput(field, value, _HOW)
    of_week = [(day * A_DAY + begins, day * A_DAY + ends) for day in range(7) if days[day] for begins, ends in ranges]
    spans = _joined(of_week)
    if spans[0][1] - spans[0][0] >= A_WEEK:
        return Hours("", ((0, A_WEEK),))
    of_day = "" if ranges == [WHOLE_DAY] else ",".join(map(_text, ranges))
    read = Hours(f"{of_day} {'' if all(days) else rows(days, DAYS, '-')}".strip(), spans)
    if read.shortest < SHORTEST:
        raise BadInput(field, value, "is shorter than the minimum of 10m")
    return read


@lru_cache(maxsize=10_000)
def stored(text: str) -> Hours:
    """Returns the hours in a task's row. Raises BadInput, for example for a row edited by hand."""
    return parse("during", text)


def in_hours(task: "DueTask | Task | Alarm", instant: datetime) -> datetime:
    """Returns `instant` if it is in the hours of the task, else when the task is due after they have begun again.

    Then the tasks are spread over their interval in force, so that they are not all due at once. A task with a phase is
    due in phase. Raises BadInput for a row that cannot be scheduled.
    """
    if not task.during:
        return instant
    current = span(task.during, task.zone, instant)
    if current.begins <= instant:
        return instant
    every, pace, share = task.every_ms, task.pace_ms or task.every_ms, task.id * GOLDEN % 2**32 / 2**32
    last = current.ends - min((current.ends - current.begins) / 2, BEFORE_THE_END)
    if task.phase_ms is not None:
        whole = int(pace // every * share) * every * MILLISECOND
        if (in_phase := interval.first_in_phase(current.begins + whole, every, task.phase_ms)) <= last:
            return in_phase
    return current.begins + min(pace * MILLISECOND, last - current.begins) * share


def span(during: str, zone: str, instant: datetime) -> Span:
    """Returns the span of stored hours that `instant` is in, or else the next one. Raises BadInput."""
    return stored(during).span(instant, zones.zone("zone", zone))


def nth_due(task: Alarm, count: int) -> datetime:
    """Returns when a task with hours is due for the `count`-th time after `since`. After many spans, the time is an
    estimate.
    """
    every, at, left = (task.pace_ms or task.every_ms) * MILLISECOND, task.since, count
    for _ in range(SPANS_AT_MOST):
        begins, ends = span(task.during, task.zone, at)
        inside = (ends - at - timedelta.resolution) // every if begins <= at else 0
        if left <= inside:
            return at + left * every
        at, left = in_hours(task, at + (inside + 1) * every), left - inside - 1
        if not left:
            return at
    return at + (at - task.since) / (count - left) * left


@lru_cache(maxsize=10_000)
def _of_week(spans: Sequence[Minutes], monday: datetime, zone: ZoneInfo) -> Sequence[Span]:
    """Returns the spans that begin in this week. A span that the clocks skip is left out."""
    instants = [Span(*(_instant(monday + timedelta(minutes=shown), zone) for shown in span)) for span in spans]
    return [span for span in instants if span.begins < span.ends]


def _instant(shown: datetime, zone: ZoneInfo) -> datetime:
    shown_at = zones.instants(shown, zone)
    return shown_at[0] if shown_at else zones.skipped_by(shown, zone)


def _joined(spans: Iterable[Minutes]) -> tuple[Minutes, ...]:
    """Joins spans of a week that overlap or touch, also at the end of the week."""
    joined: list[Minutes] = []
    for begins, ends in sorted(spans):
        if joined and begins <= joined[-1][1]:
            begins, ends = joined[-1][0], max(ends, joined.pop()[1])
        joined.append((begins, ends))
    while len(joined) > 1 and joined[-1][1] >= A_WEEK + joined[0][0]:
        begins, ends = joined.pop()
        joined[:1] = [(begins, max(ends, A_WEEK + joined[0][1]))]
    return tuple(sorted(joined))


def _ranges(field: str, value: str, text: str) -> list[Minutes]:
    return sorted({_range(field, value, part) for part in text.split(",")})


def _range(field: str, value: str, text: str) -> Minutes:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise BadInput(field, value, _HOW)
    hour, minute, last_hour, last_minute = (int(digits or 0) for digits in match.groups())
    begins, ends = 60 * hour + minute, 60 * last_hour + last_minute
    if max(minute, last_minute) > 59 or begins >= A_DAY or ends > A_DAY:
        raise BadInput(field, value, f"has {text}; hours are 0 to 24, and minutes 00 to 59")
    if begins == ends:
        raise BadInput(field, value, f"has {text}, which ends when it begins; write 0-24 for the whole day")
    return begins, ends if ends > begins else ends + A_DAY


def _text(minutes: Minutes) -> str:
    begins, ends = minutes
    return f"{_clock(begins)}-{_clock(ends - A_DAY if ends > A_DAY else ends)}"


def _clock(minutes: int) -> str:
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}" if minute else str(hour)


def _days(field: str, value: str, text: str) -> list[bool]:
    """Returns for each day of the week whether the text names it. A range may pass the end of the week."""
    named = [False] * 7
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first not in DAYS or (last or first) not in DAYS or part.endswith("-"):
            raise BadInput(field, value, f"has {part[:20]!r} for its days; {_HOW.partition('; ')[2]}")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        for day in range(begin, end + 1 + 7 * (end < begin)):
            named[day % 7] = True
    return named


def begins_again(during: str, zone: str, instant: datetime) -> datetime | None:
    """Returns when these hours begin, if `instant` is outside them."""
    try:
        begins = span(during, zone, instant).begins if during else instant
    except BadInput:  # a row edited by hand: the push reports the error
        return None
    return begins if instant < begins else None
