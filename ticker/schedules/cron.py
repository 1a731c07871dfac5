"""Reads cron expressions of 5, 6 or 7 fields: `[second] minute hour day-of-month month day-of-week [year]`.

Six fields begin with the second, and a year needs all seven. That is the order of FTL (seed 001), whose dialect has
only numbers, `*`, lists, ranges and steps. With five fields, names (`MON`, `JAN`) are accepted, too, as are shorthands
(`@daily`); both are normalized to numbers. If day of month and day of week are both given, a day that matches either
counts. If one of them begins with `*`, a day must match both. Weekdays are 0 to 7; Sunday is 0 and 7. `x/y` is every
y-th value, starting at x.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from typing import NoReturn
from zoneinfo import ZoneInfo

from ticker.errors import BadInput
from ticker.model import Kind
from ticker.schedules import zones
from ticker.schedules.zones import SECOND

LONGEST = 200  # characters
FIELDS = ("second", "minute", "hour", "day of month", "month", "day of week", "year")
LIMITS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7), (1970, 2199))
MOST_STEP = (60, 60, 24, 31, 12, 7, 230)
SHORTHANDS = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
NAMES = {
    4: {name: n for n, name in enumerate(MONTHS, 1)},
    5: {name: n for n, name in enumerate(WEEKDAYS)},
}
MONTH, WEEKDAY, YEAR = 4, 5, 6
FOREIGN = {
    "?": "write * instead",
    "L": "for the last day of a month, write a calendar event: *-*~01",
    "W": "for the nearest working day, name the days, or let the function decide",
    "#": "for the n-th weekday, write a calendar event: Mon *-*-01..07 for the first Monday",
}
_TERM = re.compile(r"(?:(\*)|([0-9]{1,4})(?:-([0-9]{1,4}))?)(?:/([0-9]{1,4}))?")


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression. `text` is normalized: numbers only, single spaces. Made by `parse`."""

    text: str
    zone: ZoneInfo
    kind: Kind = field(default=Kind.CRON, init=False)

    def next_after(self, instant: datetime) -> datetime | None:
        """Returns the first time after `instant` (aware), in UTC, or None if there is none before the year 2200."""
        rule = zones.gap_skipped_overlap_twice if self.is_wildcard else zones.gap_at_the_change
        return rule(self.shown_after, instant, self.zone)

    @property
    def is_wildcard(self) -> bool:
        """Whether second, minute or hour begins with `*`. Such times follow clock changes; others are fixed times."""
        return any(part.startswith("*") for part in self._parts[:3])

    @property
    def _parts(self) -> list[str]:
        parts = self.text.split()
        return ["0", *parts] if len(parts) == 5 else parts

    def words(self) -> str:
        """Returns the schedule in English, without its zone. Falls back to its text if the library fails (`*/2,3`)."""
        from cron_descriptor import Options, get_description

        options = Options()
        options.use_24hour_time_format = True
        options.verbose = not self.is_wildcard  # "At 09:00, every day", but "Every 5 minutes"
        try:
            return str(get_description(" ".join(_as_lists(self.text.split())), options))
        except Exception:  # the library raises several kinds, not all with a common root
            return self.text

    def shown_after(self, after: datetime) -> Iterator[datetime]:
        """Yields the clock times that the expression names after `after`, without a zone."""
        *six, year = [*self._parts, "*"][: YEAR + 1]
        if year == "*":
            return takewhile(lambda shown: shown.year <= LIMITS[YEAR][1], _times(" ".join(six), after))
        return _in_years(" ".join(six), _years(year), after)


def _as_lists(parts: list[str]) -> Iterator[str]:
    """Yields the fields, with lists for steps that do not divide them: `*/7` is every 7 minutes, but at :56 and at :00."""
    for number, part in enumerate(parts, 1 if len(parts) == 5 else 0):
        least, most = LIMITS[number] if number != WEEKDAY else (0, 6)
        step = int(part[2:]) if re.fullmatch(r"\*/[0-9]+", part) and number != YEAR else 1
        values = range(least, most + 1, step)
        yield ",".join(map(str, values)) if (most + 1 - least) % step and len(values) > 1 else part


def _times(text: str, after: datetime) -> Iterator[datetime]:
    from cronsim import CronSim  # takes 2 % of the start-up of a command that needs no schedule

    return CronSim(text, after)


def _in_years(text: str, years: list[int], after: datetime) -> Iterator[datetime]:
    """Yields the times of six fields that fall in these years."""
    while (shown := next(_times(text, after), None)) is not None:
        if shown.year in years:
            yield shown
            after = shown
            continue
        following = bisect_right(years, shown.year)
        if following == len(years):
            return
        after = zones.ANY.replace(year=years[following]) - SECOND


def parse(text: str, zone: ZoneInfo, field: str = "cron") -> Cron:
    """Reads a cron expression, without checking that it ever fires. Raises BadInput with a remedy."""
    if len(text) > LONGEST:
        raise BadInput(field, text, f"has {len(text)} characters; up to {LONGEST} are allowed")
    if text.strip().startswith("@"):
        text = _shorthand(field, text)
    if zone_match := re.match(r"\s*(?:CRON_)?TZ=(\S*)", text):
        raise BadInput(field, text, f"begins with a time zone; give it as the zone: {zone_match[1] or 'Europe/Berlin'}")
    parts = text.split()
    if not 5 <= len(parts) <= 7:
        raise BadInput(field, text, f"has {_count(len(parts))}; cron has 5, 6 (seconds first) or 7 (year last)")
    first = 0 if len(parts) > 5 else 1
    checked = [_field(field, text, first + n, part, plain=len(parts) == 5) for n, part in enumerate(parts)]
    if _is_late(checked[3 - first]):
        _check_days(field, text, checked)
    return Cron(" ".join(checked), zone)


def _is_late(days: str) -> bool:
    """Returns whether the field names only days after the 28th, which not every month has."""
    return "*" not in days and all(
        int(day) > 28 for term in days.split(",") for day in term.partition("/")[0].split("-")
    )


def _check_days(field: str, text: str, checked: list[str]) -> None:
    from cronsim import CronSimError

    try:
        _times(" ".join((["0", *checked] if len(checked) == 5 else checked)[:YEAR]), zones.ANY)
    except CronSimError:
        raise BadInput(field, text, "never fires: none of its months has a day with that number") from None


def _shorthand(field: str, text: str) -> str:
    known = SHORTHANDS.get(text.strip().lower())
    if known is None:
        raise BadInput(field, text, f"is not a cron shorthand; write one of {', '.join(SHORTHANDS)}")
    return known


def _count(fields: int) -> str:
    return "1 field" if fields == 1 else f"{fields} fields"


def _field(field: str, text: str, number: int, part: str, *, plain: bool) -> str:
    """Returns one field as checked numbers."""
    return ",".join(_term(field, text, number, term, plain=plain) for term in part.upper().split(","))


def _term(field: str, text: str, number: int, term: str, *, plain: bool) -> str:
    for name, value in NAMES.get(number, {}).items() if plain else ():
        term = re.sub(rf"(?<![A-Z]){name}(?![A-Z])", str(value), term)
    match = _TERM.fullmatch(term)
    if match is None:
        _refuse(field, text, number, term)
    star, *numbers = match.groups()
    low, high, step = (None if n is None else int(n) for n in numbers)
    _check_range(field, text, number, low, high)
    _check_step(field, text, number, step)
    if star is not None:
        return "*" if step is None else f"*/{step}"
    if step is not None and high is None:
        high = 6 if number == WEEKDAY and low != 7 else LIMITS[number][1]
    if high is None or high == low:  # cronsim would read 3-3/2 as 3/2
        return f"{low}"
    return f"{low}-{high}" if step is None else f"{low}-{high}/{step}"


def _check_range(field: str, text: str, number: int, low: int | None, high: int | None) -> None:
    least, most = LIMITS[number]
    for value in (low, high):
        if value is not None and not least <= value <= most:
            hint = "; a year needs all seven fields" if number == WEEKDAY and 1970 <= value <= 2199 else ""
            raise BadInput(field, text, f"has {FIELDS[number]} {value}; {least} to {most} are allowed{hint}")
    if low is not None and high is not None and high < low:
        split = f"{low}-{most},{least}-{high}"
        raise BadInput(field, text, f"has the {FIELDS[number]} range {low}-{high}, which runs backwards; write {split}")


def _check_step(field: str, text: str, number: int, step: int | None) -> None:
    if step is not None and not 1 <= step <= MOST_STEP[number]:
        raise BadInput(
            field, text, f"has a step of {step} in the {FIELDS[number]}; 1 to {MOST_STEP[number]} are allowed"
        )


def _refuse(field: str, text: str, number: int, term: str) -> NoReturn:
    where = f"in the {FIELDS[number]}"
    if re.fullmatch(r"/[0-9]+", term):
        raise BadInput(field, text, f"has {term} {where}; write *{term}")
    if any(name in term for name in NAMES.get(number, {})):
        raise BadInput(
            field, text, f"has a name {where}, but only cron with 5 fields may contain names; write its number"
        )
    for sign, instead in FOREIGN.items():
        if sign in term:
            raise BadInput(field, text, f"has {sign} {where}, which is not supported; {instead}")
    raise BadInput(
        field, text, f"has {term[:20]!r} {where}; write numbers, *, lists (1,3), ranges (1-5) or steps (*/5)"
    )


def _years(part: str) -> list[int]:
    """Returns the years that a checked year field names."""
    least, most = LIMITS[YEAR]
    years: set[int] = set()
    for term in part.split(","):
        span, _, step = term.partition("/")
        low, _, high = span.partition("-")
        first, last = (least, most) if low == "*" else (int(low), int(high or low))
        years.update(range(first, last + 1, int(step or 1)))
    return sorted(years)
