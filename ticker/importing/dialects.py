"""Reads the cron expressions of other schedulers, and translates their meaning, not their text, to fields of `register`.

source               fields                         both days given   clocks forward, 02:30       others
rq-scheduler         5; 6: year last; 7: as here    AND               01:30 before Python 3.12    L, L5
rq-cron (croniter)   5; 6: second last; 7: + year   either            03:30                       L, L5, 5#2, 22-2
django-celery-beat   5                              AND               03:30                       22-2, whole names
crontab              as here                        as here           as here                     as here

Nothing here imports a package of a source: tests compare the rules with those packages (crontab 0.23 and 1.0, croniter 6.2 and
7.0, celery 5.5 and 5.7; celery 5.4 is an hour off on days when clocks change). A text whose meaning is unclear, or depends on
the version of the package, is refused.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from ticker.errors import BadInput, quoted
from ticker.schedules import calendar, cron, zones
from ticker.schedules.cron import FIELDS, LIMITS, MONTH, SHORTHANDS, WEEKDAY, YEAR

Times = Callable[[datetime, int], list[datetime]]

SECOND, MINUTE, HOUR, DAY = range(4)
STANDARD = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)
LAST_YEAR = 2099  # of the packages
YEARS = tuple(range(1970, LAST_YEAR + 1))
_TERM = re.compile(r"(\*|[a-z]+|[0-9]{1,4})(?:-([a-z]+|[0-9]{1,4}))?(?:/([0-9]{1,4}))?")
_WHOLE_NAMES = (
    "sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "january", "february", "march", "april", "may",
    "june", "july", "august", "september", "october", "november", "december",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Translated:
    """The meaning of a source's cron expression: fields of `register`, or one sentence that refuses it.

    `times` returns the next times by the source's own rule; None means that the rule is ours.
    """

    wanted: Mapping[str, Any]
    refusal: str | None = None
    times: Times | None = None


@lru_cache(maxsize=10_000)
def translate(source: str, text: str, zone: str) -> Translated:
    """Translates a cron expression of a source, whose clocks show the times of `zone`."""
    try:
        place = zones.zone("zone", zone)
        if source == "crontab":
            return Translated({"cron": cron.parse(text, place).text, "zone": zone})
        rule = _read(DIALECTS[source], text, place)
        kind, written = rule.written()
        parse = cron.parse if kind == "cron" else calendar.parse
        return Translated({kind: parse(written, place).text, "zone": zone}, times=rule.times)
    except BadInput as error:
        return Translated({}, refusal=str(error))


@dataclass(frozen=True, slots=True)
class Dialect:
    fields: Mapping[int, tuple[int, ...]]
    shorthands: Mapping[str, str]
    either_day: bool = False  # otherwise, both days must match
    wraps: bool = False  # 22-2
    steps_from: bool = True  # 5/15
    sunday_is_7: bool = True
    has_last: bool = True  # L, L5 and ?
    whole_names: bool = False  # Monday
    skips_backwards: bool = False  # a skipped time is the one before the clocks changed


SEVEN = (SECOND, *STANDARD, YEAR)
DIALECTS = {
    "rq-scheduler": Dialect(
        {5: STANDARD, 6: (*STANDARD, YEAR), 7: SEVEN},
        {text: meaning for text, meaning in SHORTHANDS.items() if text != "@midnight"},
        skips_backwards=sys.version_info < (3, 12),  # Python's astimezone; entries' scheduler is taken to run on this Python
    ),
    "rq-cron": Dialect(
        {5: STANDARD, 6: (*STANDARD, SECOND), 7: (*STANDARD, SECOND, YEAR)}, SHORTHANDS, either_day=True, wraps=True
    ),
    "django-celery-beat": Dialect(
        {5: STANDARD}, {}, wraps=True, steps_from=False, sunday_is_7=False, has_last=False, whole_names=True
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """The meaning of a cron expression. `days` and `weekdays` are None if any day matches."""

    zone: ZoneInfo
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: tuple[int, ...]
    years: tuple[int, ...]
    days: tuple[int, ...] | None
    weekdays: tuple[int, ...] | None
    weeks: tuple[int, ...]  # only the n-th of these weekdays in the month; -1 is the last
    is_last_day: bool
    either_day: bool
    starred: frozenset[int]  # fields that began with *
    skips_backwards: bool

    def times(self, after: datetime, count: int) -> list[datetime]:
        """Returns the next `count` times after an instant, or as many as there are, in UTC."""
        result: list[datetime] = []
        while len(result) < count and (following := self.next_after(result[-1] if result else after)):
            result.append(following)
        return result

    def next_after(self, instant: datetime) -> datetime | None:
        """Returns the next time. A time shown twice is the first; a skipped time is as far from the change as it is."""
        for shown in self.shown_after(zones.wall(instant, self.zone)):
            fold = self.skips_backwards and not zones.instants(shown, self.zone)
            at = shown.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)
            if at > instant:
                return at
        return None

    def shown_after(self, after: datetime) -> Iterator[datetime]:
        """Yields the clock times that the rule names after `after`, without a zone."""
        day, start = after.date(), (after.hour, after.minute)
        while day.year <= self.years[-1]:
            if day.year not in self.years or day.month not in self.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                start = (0, 0)
                continue
            if self._has(day):
                moments = ((h, m) for h in self.hours if h >= start[0] for m in self.minutes if (h, m) >= start)
                for hour, minute in moments:
                    for second in self.seconds:
                        shown = datetime(day.year, day.month, day.day, hour, minute, second)  # noqa: DTZ001 without a zone
                        if shown > after:
                            yield shown
            day, start = day + timedelta(days=1), (0, 0)

    def _has(self, day: date) -> bool:
        week = timedelta(days=7)
        checks = []
        if self.is_last_day:
            checks.append((day + timedelta(days=1)).day == 1)
        if self.days is not None:
            checks.append(day.day in self.days)
        if self.weekdays is not None:
            nth = not self.weeks or any(
                (day + week).month != day.month if n < 0 else (day.day + 6) // 7 == n for n in self.weeks
            )
            checks.append(nth and day.isoweekday() % 7 in self.weekdays)
        return any(checks) or not checks if self.either_day else all(checks)

    def written(self) -> tuple[str, str]:
        """Returns cron or calendar, and the text in our dialect."""
        if self.is_last_day or self.weeks or (self.days and self.weekdays and not self.either_day):
            return "calendar", self._calendar()
        days_starred = not (self.days and self.weekdays)
        parts = [
            self._cron(SECOND, self.seconds),
            self._cron(MINUTE, self.minutes),
            self._cron(HOUR, self.hours),
            self._cron(DAY, self.days, starred=days_starred),
            self._cron(MONTH, None if len(self.months) == 12 else self.months),
            self._cron(WEEKDAY, self.weekdays, starred=days_starred),
            self._cron(YEAR, None if self.years == YEARS else self.years),
        ]
        if parts[-1] == "*":
            parts.pop()
            parts = parts[1:] if parts[0] == "0" else parts
        return "cron", " ".join(parts)

    def _cron(self, number: int, values: tuple[int, ...] | None, *, starred: bool = True) -> str:
        if values is None:
            return "*"
        least, most = _limits(number)
        step = values[1] - values[0] if len(values) > 1 else 1
        if starred and number in self.starred and values == tuple(range(least, most + 1, step)):
            return "*" if step == 1 else f"*/{step}"
        return _spans(values, "-", "")

    def _calendar(self) -> str:
        names = [calendar.DAYS[day - 1] for day in self.weekdays or ()]
        days = "-*" if self.days is None else "-" + _spans(self.days, "..", "02")
        if self.is_last_day:
            days = "~01"
        elif self.weeks == (-1,):
            days = "~01..07"
        elif self.weeks:
            days = "-" + _spans(tuple(d for n in self.weeks for d in range(7 * n - 6, min(7 * n, 31) + 1)), "..", "02")
        months = "*" if len(self.months) == 12 else _spans(self.months, "..", "02")
        years = "*" if self.years == YEARS else _spans(self.years, "..", "04")
        hours, minutes, seconds = (
            "*" if values == tuple(range(most + 1)) else _spans(values, "..", "02")
            for values, most in ((self.hours, 23), (self.minutes, 59), (self.seconds, 59))
        )
        return f"{','.join(names)} {years}-{months}{days} {hours}:{minutes}:{seconds}".strip()


def _spans(values: tuple[int, ...], to: str, width: str) -> str:
    """Returns values as one range with a step, or else as a list with ranges of three or more."""
    gaps = {b - a for a, b in pairwise(values)}
    if len(values) > 2 and len(gaps) == 1 and (step := gaps.pop()) > 1:
        return f"{values[0]:{width}}{to}{values[-1]:{width}}/{step}"
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    short = [
        f"{run[0]:{width}}{to}{run[-1]:{width}}" if len(run) > 2 else ",".join(f"{value:{width}}" for value in run)
        for run in runs
    ]
    return ",".join(short)


@dataclass(slots=True)
class _Reader:
    """Reads the fields of one text."""

    dialect: Dialect
    text: str
    weeks: set[tuple[int, int]] = field(default_factory=set)  # (2, 5) is 5#2, and (-1, 5) is L5
    is_last_day: bool = False

    def refusal(self, problem: str) -> BadInput:
        return BadInput("cron", self.text, problem)

    def values(self, number: int, part: str) -> tuple[set[int], bool]:
        """Returns the values of a field, and whether it leaves the field open with `*` or `?`."""
        if part == "?" and number in (DAY, WEEKDAY) and self.dialect.has_last:
            return set(), True
        values: set[int] = set()
        terms, special = part.split(","), 0
        for term in terms:
            if number == DAY and term == "l" and self.dialect.has_last:
                self.is_last_day, special = True, special + 1
            elif number == WEEKDAY and (nth := self._nth(term)):
                self.weeks.add(nth)
                special += 1
            elif term != "*":
                values |= self._term(number, term)
        if special not in (0, len(terms)):
            raise self.refusal(f"mixes L or # with other days in the {FIELDS[number]}; register a task for each")
        return values, "*" in terms

    def _nth(self, term: str) -> tuple[int, int] | None:
        """Returns the week and the weekday of `L5` and `5#2`."""
        if self.dialect.has_last and (last := re.fullmatch(r"l([0-7])", term)):
            return -1, int(last[1]) % 7
        if self.dialect.either_day and (nth := re.fullmatch(r"([a-z0-9]+)#([1-5])", term)):
            return int(nth[2]), self._number(WEEKDAY, nth[1]) % 7
        return None

    def _term(self, number: int, term: str) -> set[int]:
        least, most = _limits(number)
        match = _TERM.fullmatch(term)
        if match is None:
            raise self._unread(number, term)
        first, last, step = match.groups()
        low = least if first == "*" else self._number(number, first)
        high = self._number(number, last) if last else most if step else low
        if number == WEEKDAY and high == 0 < low and not self.dialect.wraps:
            high = 7  # sat-sun
        if high < low and self.dialect.wraps and not step:
            return {*range(low, most + 1), *range(least, high + 1)}
        is_start = step and not last and first != "*"  # 5/15
        if (
            (last and (high <= low or first == "*"))
            or (is_start and not self.dialect.steps_from)
            or (step and not 1 <= int(step) <= high - low)
        ):
            raise self._unread(number, term)
        return {value % 7 if number == WEEKDAY else value for value in range(low, high + 1, int(step or 1))}

    def _unread(self, number: int, term: str) -> BadInput:
        return self.refusal(
            f"has {quoted(term)} in the {FIELDS[number]}, which its source refuses, or whose meaning depends on the source's version; "
            "write numbers, *, lists (1,3), ranges (1-5) or steps (*/5)"
        )

    def _number(self, number: int, text: str) -> int:
        least, most = LIMITS[number] if number == WEEKDAY and self.dialect.sunday_is_7 else _limits(number)
        name = text[:3] if self.dialect.whole_names and text in _WHOLE_NAMES else text
        value = int(text) if text.isdigit() else cron.NAMES.get(number, {}).get(name.upper(), -1)
        if not least <= value <= most:
            raise self.refusal(f"has {quoted(text)} in the {FIELDS[number]}; {least} to {most} are allowed")
        return value


def _limits(number: int) -> tuple[int, int]:
    least, most = LIMITS[number]
    return least, 6 if number == WEEKDAY else min(most, LAST_YEAR)


def _read(dialect: Dialect, text: str, zone: ZoneInfo) -> Rule:
    """Reads a text by the source's grammar. Raises BadInput."""
    reader = _Reader(dialect, text)
    parts = dialect.shorthands.get(text, text).lower().split()
    if len(parts) not in dialect.fields:
        raise reader.refusal(f"has {len(parts)} fields; its source accepts {', '.join(map(str, dialect.fields))}")
    texts = dict(zip(dialect.fields[len(parts)], parts, strict=True))
    read = {number: reader.values(number, part) for number, part in texts.items()}
    values: dict[int, tuple[int, ...]] = {SECOND: (0,), YEAR: YEARS}
    for number, (some, is_open) in read.items():
        least, most = _limits(number)
        values[number] = tuple(range(least, most + 1)) if is_open else tuple(sorted(some))
    # a full list of days is like *, but croniter looks for a * in the text of the other field of days
    any_day, any_weekday = (
        read[number][1]
        or (len(values[number]) == full and (not dialect.either_day or "*" in texts[DAY + WEEKDAY - number]))
        for number, full in ((DAY, 31), (WEEKDAY, 7))
    )
    weeks, weekdays = (tuple(sorted({pair[n] for pair in reader.weeks})) for n in (0, 1))
    if (reader.weeks and (not any_day or len(reader.weeks) < len(weeks) * len(weekdays) or -1 in weeks[:-1])) or (
        reader.is_last_day and dialect.either_day and not any_weekday
    ):
        raise reader.refusal("means days that one task cannot express; register several tasks")
    return Rule(
        zone, values[SECOND], values[MINUTE], values[HOUR], values[MONTH], values[YEAR],
        days=None if any_day or reader.is_last_day else values[DAY],
        weekdays=weekdays or (None if any_weekday else values[WEEKDAY]),
        weeks=weeks,
        is_last_day=reader.is_last_day,
        either_day=dialect.either_day,
        starred=frozenset(number for number, part in texts.items() if part.startswith("*")),
        skips_backwards=dialect.skips_backwards,
    )  # fmt: skip
