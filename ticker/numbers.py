"""Reads whole numbers in texts, by one rule for the command line, HTTP, forms and the environment."""

import re

from ticker.errors import BadInput

_PLAIN = re.compile(r"-?[0-9]{1,19}")


def is_plain(text: str) -> bool:
    """Returns whether the text is only digits, with a minus if it is negative: `int` also takes `1_0`, `+1` and other digits."""
    return _PLAIN.fullmatch(text) is not None


def whole(field: str, text: str, least: int, most: int) -> int:
    """Returns the number in a text of plain digits. Raises BadInput."""
    if not is_plain(text) or not least <= int(text) <= most:
        raise BadInput(field, text, f"is no whole number from {least:,} to {most:,}")
    return int(text)
