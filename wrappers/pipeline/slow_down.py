"""Reads what `SlowDown` and `run.slow_down` are given: a key of the task, and the time until which it is closed."""

import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from ticker import clock
from ticker.errors import BadInput
from ticker.schedules.duration import Duration, milliseconds

Until = Duration | datetime

log = logging.getLogger("ticker.run")


class SlowDown(Exception):
    """A function raises this to end its run and to close a key of its task: no run of the key starts before `until`.

    The outcome is `slowed_down`, which is neither a success nor a failure. `key` defaults to the first key of the task.
    `until` is a datetime with a zone, a duration (seconds as a number, a timedelta, or a text such as `5m`), or the
    value of a `Retry-After` header. Without `until`, or with any other text, the key is closed for one minute. Each
    further `SlowDown` doubles this, up to an hour, until a run of the key succeeds. Raises BadInput if a datetime has
    no zone, a number or timedelta is negative, or one of these is more than 366 days away.
    """

    def __init__(self, key: str | None = None, until: Until | None = None) -> None:
        super().__init__(*(value for value in (key, until) if value is not None))
        self.key, self.for_ms = key, span(until)


def span(until: Until | None) -> int | None:
    """Returns the milliseconds from now until this time: 0 if it has passed, and None for a text that is not a time."""
    if not isinstance(until, str):
        return _span(until)
    try:
        return milliseconds("until", until)
    except BadInput as error:
        problem = error
    with suppress(ValueError, OverflowError, BadInput):
        date = parsedate_to_datetime(until)  # such as `Wed, 21 Oct 2026 07:28:00 GMT`
        return _span(date if date.tzinfo else date.replace(tzinfo=UTC))
    log.warning("%s; the key is closed as without a time", problem, extra={"event": "slow_down_without_time"})
    return None


def _span(until: float | timedelta | datetime | None) -> int | None:
    if isinstance(until, datetime):
        if until.tzinfo is None:
            raise BadInput("until", until, "has no time zone; write datetime.now(UTC) + timedelta(minutes=5)")
        until = max(until - clock.python_utc(), timedelta(0))
    if isinstance(until, timedelta):
        until = until.total_seconds()
    if isinstance(until, float) and math.isfinite(until):
        until = math.ceil(until * 1000) / 1000  # a computed time may be finer than a millisecond
    return None if until is None else milliseconds("until", until)


def checked_key(key: str | None, keys: Sequence[str]) -> str:
    """Returns the key, which defaults to the task's first. Raises BadInput if the task does not have it."""
    if key is None and keys:
        return keys[0]
    if key not in keys:
        known = f"its limits are {', '.join(keys)}" if keys else "it has no limits"
        raise BadInput("key", key, f"does not limit this task: {known}")
    return str(key)
