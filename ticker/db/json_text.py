"""Writes JSON texts that PostgreSQL can store and Python can read back: no NUL, no NaN, no lone surrogate."""

import json
import re
from decimal import Decimal
from itertools import accumulate
from typing import Any

NESTED_AT_MOST = 250  # levels: far below the limit of Python's reader, about 900 less the caller's stack
DIGITS_AT_MOST = 308  # digits of a number that fits a double, in every language that may read it

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # the escape of one character, not six characters
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_LONG = re.compile(f"[0-9]{{{DIGITS_AT_MOST + 1}}}")
_EXPONENT = re.compile(r"[eE][+-]?([0-9]+)")
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_DECODER = json.JSONDecoder(parse_float=lambda number: int(Decimal(number)) if "e+" in number else float(number))


def dumps(value: Any, most: int | None = None) -> str:
    """Returns `value` as JSON of at most `most` bytes. Raises TypeError, ValueError or RecursionError."""
    text = _ENCODER.encode(value)
    text.encode()  # UnicodeEncodeError is a ValueError
    if most is not None and (length := len(text) if len(text) > most else size(text)) > most:
        raise ValueError(f"it is {length} bytes long, over the limit of {most}")
    if has_nul(text):
        raise ValueError("it has a NUL character")
    if len(text) > min(DIGITS_AT_MOST, NESTED_AT_MOST):  # a shorter text has neither
        if has_long_number(text):
            raise ValueError(f"it has a number with over {DIGITS_AT_MOST} digits")
        if depth(text) > NESTED_AT_MOST:
            raise ValueError(f"it is nested over {NESTED_AT_MOST} levels deep")
    return text


def stored(text: str) -> Any:
    """Returns the value of a JSON text as jsonb returns it. jsonb writes Python's 1.5e+22 as a whole number."""
    return _DECODER.decode(text)


def size(text: str) -> int:
    """Returns the size in bytes of a JSON text as PostgreSQL will return it. Its jsonb writes 1e300 with all its zeros."""
    exponents = (int(digits) for digits in _EXPONENT.findall(_STRING.sub("", text)))
    return len(text.encode()) + sum(exponents)


def depth(text: str) -> int:
    """Returns how deeply the arrays and objects of a JSON text are nested."""
    steps = (_STEPS.get(character, 0) for character in _STRING.sub("", text))
    return max(accumulate(steps), default=0)


def has_long_number(text: str) -> bool:
    return _LONG.search(_STRING.sub("", text)) is not None


def has_nul(text: str) -> bool:
    return _NUL.search(text) is not None


def without_nul(text: str) -> str:
    """Returns the same JSON with a replacement character for each NUL."""
    return _NUL.sub(lambda match: f"{match[1]}\ufffd", text)
