"""Reads whole numbers from texts, by one rule for the command line, HTTP, forms and the environment."""

import re

from ticker.errors import BadInput

_PLAIN = re.compile(r"-?[0-9]{1,19}")


def is_plain(text: str) -> bool:
    """Returns whether the text is 1 to 19 ASCII digits, with an optional minus. `int` also takes `1_0`, `+1` and other
    digits.
    """
    return _PLAIN.fullmatch(text) is not None


def whole(field: str, value: object, least: int, most: int) -> int:
    """Returns a whole number, given as such or as a text of plain digits. Raises BadInput."""
    number = int(value) if isinstance(value, str) and is_plain(value) else value
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise BadInput(field, value, f"is not a whole number from {least:,} to {most:,}")
    return number
