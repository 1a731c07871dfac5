"""The arithmetic of DESIGN's rules, pure: no clock is read here. I interval, T tolerance, B box, g grace, in ms.

The start statement judges with the same formulas inside the database; `tests/engine/test_timing.py` compares the two.
"""

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from ticker.errors import BadInput
from ticker.schedules.duration import DAY, MINUTE, SECOND, words

SHORTEST_INTERVAL = 1 * SECOND
LONGEST_INTERVAL = 366 * DAY
SHORTEST_BOX = 100  # ms: under it, the start statement alone would use the box up
LONGEST_BOX_BY_DEFAULT = 5 * MINUTE  # where no interval says otherwise
LEAST_EXPIRY = 10 * MINUTE
RQ_MARGIN = 30  # seconds between our hard limit and RQ's own time-out, which is only a backstop
SHORTEST_BACK_OFF = 30 * SECOND
LONGEST_BACK_OFF = 60 * MINUTE
LATEST = datetime(9999, 12, 31, tzinfo=UTC)  # the tables take no later time


def span(ms: int) -> timedelta:
    return timedelta(milliseconds=ms)


def later(instant: datetime, ms: int) -> datetime:
    """So much later, and no later than a time can be: a hand may have written any into a row."""
    try:
        return min(instant + span(ms), LATEST)
    except OverflowError:
        return LATEST


def tolerance_by_default(every: int) -> int:
    """T = min(I/4, max(5 s, I/20)): five seconds for the usual intervals."""
    return min(every // 4, max(5 * SECOND, every // 20))


def box_by_default(every: int, retries: int = 0) -> int:
    """B = I/2, the rule of seed 003; I/4 with retries, so that an attempt that uses it up leaves time for another."""
    return every // (4 if retries else 2)


def box_between(gap: int | None, retries: int = 0) -> int:
    """B of a task with times: five minutes, or the same part of the shortest gap between two; `gap` None: there is one."""
    if gap is None:
        return LONGEST_BOX_BY_DEFAULT
    return max(SHORTEST_BOX, min(LONGEST_BOX_BY_DEFAULT, box_by_default(gap, retries)))


def grace(every: int) -> int:
    """g = min(1 s, I/10): from the end of the box to the kill."""
    return min(SECOND, every // 10)


def check_fit(every: int, tolerance: int, box: int, *, blame: str | None = None) -> None:
    """T + B + g <= I, so that a run is dead before the next may start; else BadInput naming `blame`, or the larger."""
    room = every - grace(every)
    if tolerance + box <= room:
        return
    field = blame or ("box" if box >= tolerance else "tolerance")
    value, other = (box, tolerance) if field == "box" else (tolerance, box)
    raise BadInput(
        field,
        words(value),
        f"is over the limit of {words(max(room - other, 0))}: tolerance + box + grace must fit into the interval of {words(every)}",
    )


def earliest_start(last_run: datetime, every: int, tolerance: int) -> datetime:
    """Returns the first instant at which a scheduled run may start. At a start, `db/sql/start.sql` decides by the same rule."""
    return last_run + span(every - tolerance)


def expiry(every: int) -> int:
    """How old a waiting occurrence may grow once a newer one waits: max(2 I, 10 min).

    The newest never expires: after an outage of any length there is one late run, not none.
    """
    return max(2 * every, LEAST_EXPIRY)


def has_expired(occurrence: datetime, newest: datetime, now: datetime, every: int) -> bool:
    return occurrence < newest and occurrence < now - span(expiry(every))


LONGEST_LOOK_AHEAD = 10 * SECOND
"""Milliseconds: as far as any ticker may be told to look."""


def horizon(look_ahead: int, tolerance: int) -> int:
    """How far past `now` an interval task is already due: the setting, and at most a fifth of its tolerance.

    With a fixed rhythm, milliseconds of jitter otherwise make a 60 s task wait for the tick after (77 s on average).
    """
    return min(look_ahead, tolerance // 5)


@lru_cache(maxsize=10_000)
def job_timeout(box: int, grace_ms: int) -> int:
    """RQ's own time-out in whole seconds: ceil(B + g) + 30, a backstop behind ours."""
    return math.ceil((box + grace_ms) / SECOND) + RQ_MARGIN


def batch_timeout(boxes: Iterable[tuple[int, int]]) -> int:
    """The same of a job that runs several tasks one after another: (box, grace) of each."""
    return math.ceil(sum(box + grace_ms for box, grace_ms in boxes) / SECOND) + RQ_MARGIN


def granted_box(box: int, grace_ms: int, rq_timeout: int | None) -> int:
    """The box, cut where RQ's time-out of this job (set at the push, before the row was edited) leaves less."""
    if rq_timeout is None or rq_timeout < 0:
        return box
    return max(min(box, (rq_timeout - RQ_MARGIN) * SECOND - grace_ms), 0)


@lru_cache(maxsize=10_000)
def job_ttl(every: int) -> int:
    """Seconds after which Redis may forget a waiting job: a bound on memory only, far behind the expiry."""
    return math.ceil(2 * expiry(every) / SECOND) + 3600


def back_off(errors: int) -> timedelta:
    """How long a row that could not be pushed `errors` times in a row waits: 30 s, 1 min, 2 min ... 1 h."""
    return span(min(SHORTEST_BACK_OFF * 2 ** min(errors - 1, 20), LONGEST_BACK_OFF))
