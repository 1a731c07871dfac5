"""Reads systemd's calendar events: `Mon..Fri *-*-* 09:00`, `daily`, `*:0/15`, `*-*~01`. A zone may follow the text.

The times are systemd's, even on days when clocks change. A time that the clocks skip never fires. A time that they show
twice fires only once, the first time. Fractions of seconds and `@epoch` are refused.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

from ticker.errors import BadInput
from ticker.model import Kind
from ticker.schedules import zones
from ticker.schedules.zones import zone as zone_named

LONGEST = 200  # characters
SPECIALS = {
    "minutely": "*-*-* *:*:00", "hourly": "*-*-* *:00:00", "daily": "*-*-* 00:00:00", "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00", "quarterly": "*-01,04,07,10-01 00:00:00", "semiannually": "*-01,07-01 00:00:00",
    "semi-annually": "*-01,07-01 00:00:00", "biannually": "*-01,07-01 00:00:00", "bi-annually": "*-01,07-01 00:00:00",
    "yearly": "*-01-01 00:00:00", "annually": "*-01-01 00:00:00", "anually": "*-01-01 00:00:00",
}  # fmt: skip
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
FROM_END = "day from the end of the month"
MOST_STEP = {"year": 229, "month": 11, "day": 30, FROM_END: 30, "hour": 23, "minute": 59, "second": 59}
LEAST = {"year": 1970, "month": 1, "day": 1, FROM_END: 1}
_HOW = "is not a calendar event; write one such as Mon..Fri *-*-* 09:00:00, daily, or *:0/15"
_ATOM = re.compile(r"([0-9]{1,4})(?:\.\.([0-9]{1,4}))?(?:/([0-9]{1,4}))?")


@dataclass(frozen=True, slots=True)
class Calendar:
    """A calendar event. `text` is normalized as in systemd, without a zone. Made by `parse`."""

    text: str
    zone: ZoneInfo
    kind: Kind = field(default=Kind.CALENDAR, init=False)

    def next_after(self, instant: datetime) -> datetime | None:
        """Returns the first time after `instant` (aware), in UTC, or None if there is none before the year 2200."""
        return zones.gap_skipped_overlap_once(self.shown_after, instant, self.zone)

    def words(self) -> str:
        """Returns the event in English, without its zone."""
        *days, date, time = self.text.split()
        on = days[0].replace("..", " to ").replace(",", ", ") if days else "Every day"
        when = "" if date == "*-*-*" else f", on dates {date}"
        return f"{on}{when}, at {time}"

    def shown_after(self, after: datetime) -> Iterator[datetime]:
        """Yields the clock times that the event names after `after`, without a zone."""
        from oncalendar import BaseIterator  # takes 2 % of the start-up of a command that needs no schedule

        return BaseIterator(self.text, after)


def parse(text: str, zone: ZoneInfo | None, field: str = "calendar") -> Calendar:
    """Reads a calendar event, without checking that it ever fires. Raises BadInput.

    `zone` defaults to the zone in the text, or to UTC.
    """
    from oncalendar import BaseIterator, OnCalendarError

    if len(text) > LONGEST:
        raise BadInput(field, text, f"has {len(text)} characters; up to {LONGEST} are allowed")
    if not text.isascii() or not text.isprintable() or not text.split():
        raise BadInput(field, text, _HOW)
    _refuse_foreign(field, text)
    parts, named = _without_zone(field, text.split())
    if zone is not None and named is not None and zone.key != named.key:
        raise BadInput(field, text, f"names a zone, but {zone.key} is also given; leave out one of them")
    normal = _normal(field, text, parts)
    try:
        BaseIterator(normal, zones.ANY)
    except OnCalendarError as error:
        raise BadInput(field, text, f"{_HOW} ({str(error)[:1].lower()}{str(error)[1:]})") from None
    return Calendar(normal, named or zone or ZoneInfo("UTC"))


def may_begin(word: str) -> bool:
    """Returns whether an event can begin with this word. The word must begin with a letter."""
    return word.lower() in SPECIALS or word[:3].title() in DAYS


def names_zone(text: str) -> bool:
    """Returns whether a valid calendar event ends with a zone."""
    return _without_zone("calendar", text.split())[1] is not None


def _refuse_foreign(field: str, text: str) -> None:
    if "@" in text:
        raise BadInput(field, text, "has @, which names a single time; use at, with seconds since 1970 or an ISO time")
    if re.search(r":[0-9*/,.]*[0-9]\.[0-9](?!\.)", text) and ".." not in text.rsplit(":", 1)[-1]:
        raise BadInput(field, text, "has a fraction of a second; only whole seconds are supported")


def _without_zone(field: str, parts: list[str]) -> tuple[list[str], ZoneInfo | None]:
    """Splits off the zone, if the last part is one.

    Only a zone begins with a letter and is neither a weekday nor a word like `daily`.
    """
    last = parts[-1]
    if len(parts) == 1 or not last[0].isalpha() or last.lower() in SPECIALS or _is_days(last):
        return parts, None
    return parts[:-1], zone_named(f"{field} zone", "UTC" if last.upper() == "UTC" else last)  # systemd reads utc, too


def _is_days(part: str) -> bool:
    return all(name[:3].title() in DAYS for name in re.split(r"\.\.|[-,]", part) if name)


def _normal(field: str, text: str, parts: Sequence[str]) -> str:
    if len(parts) == 1 and parts[0].lower() in SPECIALS:
        return SPECIALS[parts[0].lower()]
    rest = list(parts)
    time = _time(field, text, rest.pop()) if ":" in rest[-1] else "00:00:00"
    date = _date(field, text, rest.pop()) if rest and re.match(r"[0-9*]", rest[-1]) else "*-*-*"
    if rest and rest[-1] == ",":
        rest.pop()
    if len(rest) > 1:
        raise BadInput(field, text, _HOW)
    days = _days(field, text, rest[0]) if rest else ""
    return " ".join(part for part in (days, date, time) if part)


def _time(field: str, text: str, part: str) -> str:
    parts = part.split(":")
    if len(parts) not in (2, 3):
        raise BadInput(field, text, _HOW)
    names = ("hour", "minute", "second")
    return ":".join(_component(field, text, name, value) for name, value in zip(names, [*parts, "0"], strict=False))


def _date(field: str, text: str, part: str) -> str:
    """Normalizes year, month and day; `~` counts days from the end of the month."""
    head, tilde, last = part.partition("~")
    parts = [*head.split("-"), last] if tilde else part.split("-")
    if len(parts) not in (2, 3):
        raise BadInput(field, text, _HOW)
    *year, month, day = parts
    written = [_component(field, text, "year", year[0])] if year else ["*"]
    written.append(_component(field, text, "month", month))
    return "-".join(written) + ("~" if tilde else "-") + _component(field, text, FROM_END if tilde else "day", day)


def _component(field: str, text: str, name: str, value: str) -> str:
    """Returns one part of a date or time, sorted and padded."""
    if value == "*":
        return "*"
    return ",".join(sorted({_atom(field, text, name, atom) for atom in value.split(",")}))


def _atom(field: str, text: str, name: str, atom: str) -> str:
    if atom.startswith("*/"):
        least = LEAST.get(name, 0)
        raise BadInput(field, text, f"has {atom[:20]} for its {name}; write {least:02}{atom[1:20]}")
    match = _ATOM.fullmatch(atom)
    if match is None:
        raise BadInput(
            field, text, f"has {atom[:20]!r} for its {name}; {_HOW.removeprefix('is not a calendar event; ')}"
        )
    low, high, step = match.groups()
    if step is not None and not 1 <= int(step) <= MOST_STEP[name]:
        raise BadInput(field, text, f"has a step of {step} in the {name}; 1 to {MOST_STEP[name]} are allowed")
    if high is not None and int(high) < int(low):
        raise BadInput(field, text, f"has the {name} range {low}..{high}, which runs backwards")
    if name == FROM_END and step is not None and high is None and int(low) - int(step) < 1:
        raise BadInput(field, text, f"has {atom} for its {name}, but the step never repeats; write {low}")
    first, last = _number(name, low), _number(name, high or low)
    if high is None:
        return first if step is None else f"{first}/{int(step)}"
    if first == last or (step is not None and int(first) + int(step) > int(last)):
        return first  # oncalendar would continue after the end of the range
    return f"{first}..{last}" if step is None else f"{first}..{last}/{int(step)}"


def _number(name: str, digits: str) -> str:
    value = int(digits)
    if name == "year":
        return f"{value + (2000 if value < 70 else 1900 if value < 100 else 0):04}"
    return f"{value:02}"


def _days(field: str, text: str, part: str) -> str:
    """Normalizes weekdays to the order of the week, with three or more in a row as a range."""
    named = [False] * 7
    for term in part.rstrip(",").split(","):
        ends = [_day(field, text, name) for name in re.split(r"\.\.|-", term, maxsplit=1)]
        if ends[-1] < ends[0]:
            raise BadInput(field, text, f"has the range {term}, which runs backwards")
        named[ends[0] : ends[-1] + 1] = [True] * (ends[-1] - ends[0] + 1)
    if all(named):
        return ""
    return rows(named, DAYS, "..")


def _day(field: str, text: str, name: str) -> int:
    full = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    for number, day in enumerate(full):
        if name.lower() in (day, day[:3]):
            return number
    raise BadInput(field, text, f"{_HOW} ({name[:20]!r} is not a weekday)")


def rows(named: Sequence[bool], days: Sequence[str], to: str) -> str:
    """Returns the named days, with three or more in a row as a range."""
    marks = "".join("x" if is_named else " " for is_named in named)
    return ",".join(
        f"{days[row.start()]}{to}{days[row.end() - 1]}" if len(row[0]) > 2 else ",".join(days[row.start() : row.end()])
        for row in re.finditer("x+", marks)
    )
