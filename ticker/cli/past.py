"""Parses times in the past."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from ticker.errors import BadInput
from ticker.schedules import once
from ticker.schedules.duration import milliseconds

_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?Z?", re.ASCII)
_DATE = re.compile(r"\d{4}-", re.ASCII)


def past(field: str, text: str, now: Callable[[], datetime]) -> datetime:
    """Parses a time of day (today or yesterday), a duration before now, or an ISO 8601 time with a zone."""
    if match := _TIME_OF_DAY.fullmatch(text.strip()):
        hour, minute, second = (int(part or 0) for part in match.groups())
        today = now().replace(hour=hour, minute=minute, second=second, microsecond=0)
        return today if today <= now() else today - timedelta(days=1)
    bare = text.strip().removesuffix(" ago").rstrip()
    if _DATE.match(bare):
        return once.instant(field, bare, now)
    try:
        return now() - timedelta(milliseconds=milliseconds(field, bare))
    except BadInput:
        raise BadInput(
            field, text, "is not a time in the past; write 09:00 (UTC), 2h (ago), or 2026-07-01T12:00:00Z"
        ) from None
