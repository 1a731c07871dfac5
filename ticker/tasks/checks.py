"""Checks the values of a task's fields. Each rule returns the value for the column, or raises BadInput."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from ticker.db import json_text
from ticker.engine.timing import Backoff
from ticker.errors import BadInput, of_type
from ticker.model import (
    JSON_AT_MOST,
    NAME_AT_MOST,
    POSITIONAL,
    TEXT_AT_MOST,
    Kind,
    stored_arguments,
)
from ticker.schedules import calendar, cron, hours, interval, once, zones
from ticker.schedules.duration import SECOND, is_plain, milliseconds
from ticker.schedules.interval import UTC
from ticker.schedules.kinds import Schedule

MOST_RUNS = 1_000_000_000
KEYS_AT_MOST = 2
MOST_AT_ONCE = 10_000  # slots of a key; each is a row
MOST_PER_PERIOD = 1_000_000
_KEY = r"[-!-)+.-~]+"
_PATTERN = rf"{_KEY}\*?|\*"
OBJECT, ARRAY = '{"name": value}', "[value, value]"

Check = Callable[[str, object], Any]
"""Takes a field's name and value, and returns the value for its column. Raises BadInput."""


def _text(field: str, value: object, *, least: int, most: int) -> str:
    if not isinstance(value, str):
        raise BadInput(field, value, "is not a string")
    if not least <= len(value) <= most:
        raise BadInput(field, value, f"has {len(value)} characters; {least} to {most} are allowed")
    if not value.isprintable():
        raise BadInput(field, value, "has characters that cannot be printed")
    return value


def plain(field: str, value: object) -> str:
    """Checks a name: printable text of 1 to 200 characters, not only blanks."""
    text = _text(field, value, least=1, most=NAME_AT_MOST)
    if text.isspace():
        raise BadInput(field, value, "is blank; write a name")
    return text


prose = partial(_text, least=0, most=TEXT_AT_MOST)
"""Checks a text for people: printable, up to 2,000 characters."""

label = partial(_text, least=0, most=NAME_AT_MOST)
"""Accepts a name or an empty text."""


def author(by: str | None) -> str | None:
    """Checks the name of whoever makes a change. None means the setting `ticker.by`, or else the database user."""
    return None if by is None else plain("by", by)


def json_object(field: str, value: object) -> dict[str, Any]:
    """Checks a JSON object of up to 64 kB, and returns it as PostgreSQL will return it.

    Errors do not show the value, which may be a secret.
    """
    if not isinstance(value, Mapping):
        raise BadInput(field, None, f"{of_type(value)} is not a JSON object; write {OBJECT}")
    if not all(isinstance(key, str) for key in value):
        raise BadInput(field, None, f"has a name that is not a text; write {OBJECT}")
    return dict(_stored(field, value, "is not JSON that can be stored"))


def _stored(field: str, value: object, problem: str) -> Any:
    try:
        text = json_text.dumps(value, most=JSON_AT_MOST)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(field, None, f"{problem}: {error}") from None
    return json_text.stored(text)


def positional(field: str, value: object) -> list[Any]:
    """Checks the positional arguments of a function, as `json_object` checks an object."""
    if not isinstance(value, list | tuple):
        raise BadInput(field, None, f"{of_type(value)} is not a JSON array; write {ARRAY}")
    return list(_stored(field, value, "is not JSON that can be stored"))


def call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Checks that a function's arguments can be stored together. Raises BadInput."""
    if args:
        _stored("args", stored_arguments(args, kwargs), "cannot be stored together with kwargs")


def arguments(field: str, value: object) -> dict[str, Any]:
    """Checks the arguments of a function, whose first parameter gets the run if it is named `run`."""
    checked = json_object(field, value)
    if "run" in checked:
        raise BadInput(
            field, "run", "cannot be an argument of a task: the worker passes the run itself; use another name"
        )
    if POSITIONAL in checked:
        raise BadInput(
            field, POSITIONAL, "cannot be the name of an argument: it is reserved for positional arguments; use args"
        )
    return checked


def flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadInput(field, value, "is neither true nor false")
    return value


def schedule(given: Mapping[str, Any]) -> dict[str, Any]:
    """Checks the fields of a schedule: one of `every`, `cron`, `calendar` and `at`, and an optional zone.

    Whether the zone applies to `every` depends on `during`, so this is checked when both are known.
    """
    names = [field for field in NAMES.values() if field in given]
    if len(names) > 1:
        raise BadInput(names[-1], given[names[-1]], f"cannot be combined with {names[0]}; a task has one schedule")
    zone = zones.zone("zone", given["zone"]) if "zone" in given else None
    named = {} if zone is None else {"zone": zone.key}
    if names in ([], ["every"]):
        return named | (_interval(given["every"]) if names else {})
    return _times(names[0], given[names[0]], zone)


def _interval(value: object) -> dict[str, Any]:
    every = interval.parse("every", value)
    return {"kind": Kind.INTERVAL, "expression": "", "every_ms": every.every_ms, "every_most_ms": every.most_ms}


def _times(field: str, value: object, zone: ZoneInfo | None) -> dict[str, Any]:
    """Checks a schedule other than an interval. If neither the arguments nor the text name a zone, the task keeps its
    zone.
    """
    if field != "at" and not isinstance(value, str):
        raise BadInput(field, value, "is not a string")
    read = READ[field](value, zone)
    named = zone is not None or (field == "calendar" and calendar.names_zone(str(value)))
    given = {"kind": read.kind, "expression": read.text, "every_ms": 0, "every_most_ms": None}
    return given | ({"zone": read.zone.key} if named else {})


def during(field: str, value: object) -> str:
    """Accepts hours of the day and days of the week, and returns their normalized text. An empty text removes them."""
    return "" if value == "" else hours.parse(field, value).text


def bound(field: str, value: object) -> str:
    """Checks a time at which a schedule begins or ends. An empty text removes the limit."""
    return "" if value == "" else once.parse(value, UTC, field).text


def integer(least: int, most: int, more: str = "") -> Check:
    """Returns a check that accepts a whole number between these bounds."""

    def check(field: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise BadInput(field, value, f"is not a whole number from {least:,} to {most:,}{more}")
        return value

    return check


def limit(most: int) -> Check:
    """Returns a check that accepts a count of at least 1, or 0 to remove the limit."""
    number = integer(0, most, " (0: no limit)")
    return lambda field, value: number(field, value) or None


def words(choices: Sequence[str]) -> list[str]:
    return [choice.partition(" ")[0] for choice in choices]


def one_of(*choices: str) -> Check:
    """Returns a check that accepts one of these words. Each choice is a word, optionally with its meaning in brackets."""
    known = words(choices)

    def check(field: str, value: object) -> str:
        if value not in known:
            raise BadInput(field, value, f"is not one of: {', '.join(choices)}")
        return str(value)

    return check


def span_or_none(least: int) -> Check:
    """Returns a check that accepts a duration, or 0 to remove it."""
    return lambda field, value: milliseconds(field, value, least=least if value not in (0, "0") else 0) or None


def backoff(field: str, value: object) -> str:
    """Accepts a back-off and returns its shortest form: `10s`, or `10s..5m`."""
    return Backoff.parse(field, value).text


def key(field: str, value: object, *, pattern: bool = False) -> str:
    """Accepts the key of a limit, such as a host or an account. With `pattern`, an asterisk may follow, or stand alone."""
    if isinstance(value, str) and len(value) <= NAME_AT_MOST and re.fullmatch(_PATTERN if pattern else _KEY, value):
        return value
    form = f"is not a key of 1 to {NAME_AT_MOST} printable ASCII characters without spaces, commas and asterisks"
    raise BadInput(field, value, form + ("; a pattern ends with an asterisk" if pattern else ""))


def keys(field: str, value: object) -> list[str] | None:
    """Accepts the keys of a task, in a list or in a text with commas. Without a key, the task has no limits."""
    found = [part.strip() for part in value.split(",") if value] if isinstance(value, str) else value
    if not isinstance(found, list | tuple):
        raise BadInput(field, value, "is not a list of keys")
    if len(found) > KEYS_AT_MOST:
        raise BadInput(field, value, f"has {len(found)} keys; at most {KEYS_AT_MOST} are allowed")
    if len({key(field, one) for one in found}) < len(found):
        raise BadInput(field, value, "has the same key twice")
    return list(found) or None


def limit_of_key(name: str, concurrency: int | None, rate: str | None, burst: int | None) -> dict[str, Any]:
    """Accepts the arguments of `ticker.limit`, and returns the columns of the limit."""
    if concurrency is None and rate is None:
        raise BadInput("concurrency", None, "is missing; give a concurrency such as 20, a rate such as 300/1m, or both")
    if rate is None and burst is not None:
        raise BadInput("burst", burst, "needs a rate, such as 300/1m")
    return {
        "key": key("key", name, pattern=True),
        "concurrency": None if concurrency is None else integer(1, MOST_AT_ONCE)("concurrency", concurrency),
        **({"rate": None, "period_ms": None, "burst": None} if rate is None else _starts(rate, burst)),
    }


def _starts(rate: object, burst: int | None) -> dict[str, int]:
    """Returns the columns of a rate. The burst defaults to the starts of one second, at least one."""
    text, slash, period = rate.partition("/") if isinstance(rate, str) else ("", "", "")
    if not slash or not is_plain(text) or not 1 <= int(text) <= MOST_PER_PERIOD:
        raise BadInput("rate", rate, f"is not a count from 1 to {MOST_PER_PERIOD:,} per duration; write 300/1m")
    count, period_ms = int(text), milliseconds("rate", period, least=SECOND)
    most = min(count, MOST_AT_ONCE)
    a_second = min(math.ceil(count * SECOND / period_ms), most)
    burst = a_second if burst is None else integer(1, most)("burst", burst)
    return {"rate": count, "period_ms": period_ms, "burst": burst}


NAMES = {Kind.INTERVAL: "every", Kind.CRON: "cron", Kind.CALENDAR: "calendar", Kind.ONCE: "at"}
READ: Mapping[str, Callable[[Any, ZoneInfo | None], Schedule]] = {
    "cron": lambda text, zone: cron.parse(text, zone or UTC),
    "calendar": calendar.parse,
    "at": lambda value, zone: once.parse(value, zone or UTC),
}


def json_value(field: str, text: str) -> Any:
    """Returns the JSON value of a text. Errors never show it, because it may be a secret. The type is checked later."""
    form = ARRAY if field == "args" else OBJECT
    try:
        value = json.loads(text)
    except RecursionError:
        raise BadInput(field, None, "is nested too deeply") from None
    except ValueError as error:
        raise BadInput(field, None, f"is not JSON: {error}; write {form}") from None
    if value is None:  # which means "not passed" to `register`
        raise BadInput(field, "null", f"is not a JSON {'object' if form is OBJECT else 'array'}; write {form}")
    return value
