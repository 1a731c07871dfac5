"""Reads a time in the past, as people and programs write it."""

import re
from datetime import datetime, timedelta

from ticker.errors import BadInput
from ticker.schedules import once
from ticker.schedules.duration import milliseconds

Past = datetime | timedelta | str | None
"""A time with a zone, or a duration before now; as text, `09:00` (UTC, today or yesterday), `2h` (ago) or ISO 8601 with
a zone.
"""

_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?Z?", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-", re.ASCII)


def past(field: str, value: Past, now: datetime) -> datetime | None:
    """Returns the time. Raises BadInput if it is not a time, or is after `now`."""
    if value is None:
        return None
    at = _text(field, value, now) if isinstance(value, str) else now - value if isinstance(value, timedelta) else value
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise BadInput(field, value, "is not a time with a zone; write datetime(..., tzinfo=UTC)")
    if at > now:
        raise BadInput(field, at.isoformat(), "is in the future; for upcoming times, use: ticker next")
    return at


def between(since: Past, until: Past, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Returns the two times. Raises BadInput if the second one is not after the first."""
    begin, end = past("since", since, now), past("until", until, now)
    if begin and end and end <= begin:
        raise BadInput("until", end.isoformat(), f"is not after since, which is {begin.isoformat()}")
    return begin, end


def _text(field: str, text: str, now: datetime) -> datetime:
    if match := _TIME_OF_DAY.fullmatch(text.strip()):
        hour, minute, second = (int(part or 0) for part in match.groups())
        today = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return today if today <= now else today - timedelta(days=1)
    bare = text.strip().removesuffix(" ago").rstrip()
    if _DATE.match(bare):
        return once.instant(field, bare, lambda: now)
    try:
        return now - timedelta(milliseconds=milliseconds(field, bare))
    except BadInput:
        raise BadInput(
            field, text, "is not a time in the past; write 09:00 (UTC), 2h (ago), or 2026-07-01T12:00:00Z"
        ) from None
