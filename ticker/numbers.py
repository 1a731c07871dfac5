"""Whole numbers in texts: the one rule for the command line, HTTP, forms and the environment."""

import re

from ticker.errors import BadInput

_PLAIN = re.compile(r"-?[0-9]{1,19}")


def is_plain(text: str) -> bool:
    """Whether it is digits alone, with a minus where it is negative: `int` would take `1_0`, `+1` and other digits, too."""
    return _PLAIN.fullmatch(text) is not None


def whole(field: str, text: str, least: int, most: int) -> int:
    """The number that a text writes in plain digits. BadInput."""
    if not is_plain(text) or not least <= int(text) <= most:
        raise BadInput(field, text, f"is no whole number from {least:,} to {most:,}")
    return int(text)
