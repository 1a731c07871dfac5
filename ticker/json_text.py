"""JSON texts that PostgreSQL can store: jsonb knows no NUL, no NaN and no half of a surrogate pair."""

import json
import re
from typing import Any

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # the escape of one character, and not six characters


def dumps(value: Any) -> str:
    """`value` as JSON; TypeError, ValueError or RecursionError where it is none that can be stored."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()  # UnicodeEncodeError is a ValueError
    if has_nul(text):
        raise ValueError("it has a NUL character, which PostgreSQL cannot store")
    return text


def has_nul(text: str) -> bool:
    return _NUL.search(text) is not None


def without_nul(text: str) -> str:
    """The same JSON with a replacement character for each NUL."""
    return _NUL.sub(lambda found: f"{found[1]}\ufffd", text)
