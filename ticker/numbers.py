"""Reads whole numbers in texts, by one rule for the command line, HTTP, forms and the environment."""

import re

from ticker.errors import BadInput

_PLAIN = re.compile(r"-?[0-9]{1,19}")


def is_plain(text: str) -> bool:
    """Returns whether the text is only digits, with a minus if it is negative: `int` also takes `1_0`, `+1` and other digits."""
    return _PLAIN.fullmatch(text) is not None


def whole(field: str, value: object, least: int, most: int) -> int:
    """Returns a whole number, given as such or as a text of plain digits. Raises BadInput."""
    found = int(value) if isinstance(value, str) and is_plain(value) else value
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise BadInput(field, value, f"is no whole number from {least:,} to {most:,}")
    return found
