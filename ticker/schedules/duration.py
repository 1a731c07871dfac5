"""Texts for durations, and back: `90`, `30s`, `1h30m`, `PT5M`. Everything is whole milliseconds."""

import math
import re
from datetime import timedelta

from ticker.errors import BadInput

MILLISECOND = 1
SECOND = 1000 * MILLISECOND
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
LONGEST = 366 * DAY

_UNITS = {"d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": MILLISECOND}
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,3})?"
_PLAIN = re.compile(_NUMBER)
_SHORT = re.compile(
    rf"(?:({_NUMBER})(d))?(?:({_NUMBER})(h))?(?:({_NUMBER})(m))?(?:({_NUMBER})(s))?(?:({_NUMBER})(ms))?"
)
_ISO = re.compile(rf"P(?:({_NUMBER})D)?(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?")
_HOW = "is no duration; write 90 or 90s, 30s, 5m, 1h30m, 1d, or PT5M"

Duration = str | int | float | timedelta
"""What users may write: seconds as a number, a text, or a timedelta."""


def milliseconds(field: str, value: object, *, least: int = 0, most: int = LONGEST) -> int:
    """`value` as whole milliseconds between `least` and `most`, else BadInput naming `field`, value and limit."""
    result = _read(field, value)
    if result < least:
        raise BadInput(field, value, f"is under the limit of {words(least)}")
    if result > most:
        raise BadInput(field, value, f"is over the limit of {words(most)}")
    return result


def words(duration: int) -> str:
    """The shortest text that `milliseconds` reads back to the same number: 5400000 is `1h30m`."""
    if duration == 0:
        return "0s"
    parts = []
    for unit, size in _UNITS.items():
        count, duration = divmod(duration, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _read(field: str, value: object) -> int:
    if isinstance(value, str):
        return _read_text(field, value)
    if isinstance(value, timedelta):
        return _whole(field, value, value / timedelta(milliseconds=1))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(field, value, _HOW)
    if not math.isfinite(value):
        raise BadInput(field, value, _HOW)
    if abs(value) > LONGEST:  # before the multiplication: 2**63 and 1e308 are refused by their size
        raise BadInput(field, value, f"is over the limit of {words(LONGEST)}" if value > 0 else _under_zero())
    return _whole(field, value, value * SECOND)


def _under_zero() -> str:
    return "is under the limit of 0s"


def _whole(field: str, value: object, exact: float) -> int:
    if exact < 0:
        raise BadInput(field, value, _under_zero())
    if abs(exact - round(exact)) > 1e-6:
        raise BadInput(field, value, "is finer than a millisecond")
    return round(exact)


def _read_text(field: str, text: str) -> int:
    stripped = text.strip(" ")
    if len(stripped) > 40 or not stripped:
        raise BadInput(field, text, _HOW)
    if _PLAIN.fullmatch(stripped):
        return _scaled(stripped, SECOND)
    if match := _SHORT.fullmatch(stripped):
        numbers = match.groups()
        return sum(_scaled(n, _UNITS[u]) for n, u in zip(numbers[::2], numbers[1::2], strict=True) if n)
    if match := _ISO.fullmatch(stripped):
        if any(match.groups()):
            sizes = (DAY, HOUR, MINUTE, SECOND)
            return sum(_scaled(n, size) for n, size in zip(match.groups(), sizes, strict=True) if n)
        raise BadInput(field, text, _HOW)
    raise BadInput(field, text, _why_not(stripped))


def _scaled(number: str, size: int) -> int:
    """A decimal text times a unit, rounded to the millisecond; exact, as no float is involved."""
    whole, _, fraction = number.partition(".")
    return int(whole) * size + (int(fraction) * size // 10 ** len(fraction) if fraction else 0)


def _why_not(text: str) -> str:
    if re.fullmatch(r"[0-9]+M", text):
        return f"could be minutes or months; write {text[:-1]}m or PT{text[:-1]}M for minutes"
    if text.startswith("-"):
        return _under_zero()
    return _HOW
