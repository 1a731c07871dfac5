"""Reads and writes durations as text: `90`, `30s`, `1h30m`, `PT5M`. All durations are whole milliseconds.

Also reads whole numbers, by one rule for the command line, HTTP, forms and the environment.
"""

import math
import re
from datetime import timedelta
from fractions import Fraction

from ticker.errors import BadInput

MILLISECOND = 1
SECOND = 1000 * MILLISECOND
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
LONGEST = 366 * DAY

_UNITS = {"d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": MILLISECOND}
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
_PLAIN = re.compile(_NUMBER)
_WHOLE = re.compile(r"-?[0-9]{1,19}")
_SHORT = re.compile("".join(rf"(?:({_NUMBER}){unit})?" for unit in _UNITS))
_ISO = re.compile(rf"P(?:({_NUMBER})D)?(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?")
_ISO_SIZES = (DAY, HOUR, MINUTE, SECOND)
_TOO_FINE = "is finer than a millisecond"
_HOW = "is not a duration; write 90 or 90s, 30s, 5m, 1h30m, 1d, or PT5M"

Duration = str | int | float | timedelta
"""The forms that users may write: seconds as a number, a text, or a timedelta."""


def milliseconds(field: str, value: object, *, least: int = 0, most: int = LONGEST) -> int:
    """Returns `value` as whole milliseconds from `least` to `most`. Raises BadInput, which names field, value and
    limit.
    """
    result = _read(field, value)
    if result < least:
        raise BadInput(field, value, f"is below the minimum of {words(least)}")
    if result > most:
        raise BadInput(field, value, f"is over the limit of {words(most)}")
    return result


def words(duration: int) -> str:
    """Returns the shortest text that `milliseconds` reads back as the same number: 5400000 is `1h30m`."""
    if duration == 0:
        return "0s"
    parts = []
    for unit, size in _UNITS.items():
        count, duration = divmod(duration, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def figure(duration: int) -> str:
    """Returns the exact duration as a person would write it: `45 s`, or, from two minutes on, as `words` does."""
    return f"{duration / SECOND:.3f}".rstrip("0").rstrip(".") + " s" if abs(duration) < 2 * MINUTE else words(duration)


def _read(field: str, value: object) -> int:
    if isinstance(value, str):
        return _read_text(field, value)
    if isinstance(value, timedelta):
        return _whole(field, value, value / timedelta(milliseconds=1))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(field, value, _HOW)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(field, value, _HOW)
    if abs(value) > LONGEST:  # 10**400 does not fit a float, and any number over all limits gives the same error
        return LONGEST * SECOND if value > 0 else -LONGEST
    return _whole(field, value, value * SECOND)


def _whole(field: str, value: object, exact: float) -> int:
    if abs(exact - round(exact)) > max(1e-6, 4 * math.ulp(exact)):  # half a year in milliseconds is exact to 4e-6
        raise BadInput(field, value, _TOO_FINE)
    return round(exact) or (-1 if exact < 0 else 0)  # -1e-9 is negative, not zero


def _read_text(field: str, text: str) -> int:
    stripped = text.strip(" ")
    if len(stripped) > 40:
        raise BadInput(field, text, _HOW)
    parts = _parts(stripped.removeprefix("-"))
    if not parts:
        raise BadInput(field, text, _why_not(stripped))
    total = sum(Fraction(number) * size for number, size in parts)
    if total.denominator != 1:
        raise BadInput(field, text, _TOO_FINE)
    return -int(total) if stripped.startswith("-") else int(total)


def _parts(text: str) -> list[tuple[str, int]]:
    """Returns the numbers in a text, each with the size of its unit, or an empty list if the text has none of the three
    forms.
    """
    if _PLAIN.fullmatch(text):
        return [(text, SECOND)]
    if match := _SHORT.fullmatch(text):
        return [(number, size) for number, size in zip(match.groups(), _UNITS.values(), strict=True) if number]
    if match := _ISO.fullmatch(text):
        return [(number, size) for number, size in zip(match.groups(), _ISO_SIZES, strict=True) if number]
    return []


def _why_not(text: str) -> str:
    if re.fullmatch(r"[0-9]+M", text):
        return f"could be minutes or months; write {text[:-1]}m or PT{text[:-1]}M for minutes"
    return _HOW


def is_plain(text: str) -> bool:
    """Returns whether the text is 1 to 19 ASCII digits, with an optional minus. `int` also takes `1_0`, `+1` and other
    digits.
    """
    return _WHOLE.fullmatch(text) is not None


def whole(field: str, value: object, least: int, most: int) -> int:
    """Returns a whole number, given as such or as a text of plain digits. Raises BadInput."""
    number = int(value) if isinstance(value, str) and is_plain(value) else value
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise BadInput(field, value, f"is not a whole number from {least:,} to {most:,}")
    return number
