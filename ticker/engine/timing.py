"""Computes tolerances, boxes, limits, expiry, and waits before retries. Pure: reads no clock.

I is the interval, T the tolerance, B the box and g the grace, all in ms.

The start statement uses the same formulas in the database. `tests/engine/test_timing.py` compares the two.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Self

from ticker.errors import BadInput
from ticker.schedules.duration import MINUTE, SECOND, milliseconds, words

USUAL_TICK = 30 * SECOND
WAITING_JOBS = 2
"""The usual maximum number of waiting jobs of a task. Of more of them, the guard would drop all but one."""
SHORTEST_INTERVAL = 1 * SECOND
SHORTEST_BOX = 100  # ms: a shorter box would be used up by the start statement alone
LEAST_RETRY = 1 * SECOND  # with less time left for its box, a retry is not made
LONGEST_BOX_BY_DEFAULT = 5 * MINUTE  # for tasks without an interval
LEAST_EXPIRY = 10 * MINUTE
RQ_MARGIN = 30  # seconds between our hard limit and RQ's own timeout, which is only a backstop
SHORTEST_BACK_OFF = 30 * SECOND
LONGEST_BACK_OFF = 60 * MINUTE
DOTS = ".."
LATEST = datetime(9999, 12, 31, tzinfo=UTC)  # the latest time that the tables accept


def span(ms: int) -> timedelta:
    return timedelta(milliseconds=ms)


def later(instant: datetime, ms: int) -> datetime:
    """Returns the instant `ms` later, but no later than LATEST: a row edited by hand may hold any time."""
    try:
        return min(instant + span(ms), LATEST)
    except OverflowError:
        return LATEST


def tolerance_by_default(every: int) -> int:
    """Returns T = min(I/4, max(5 s, I/20)): five seconds for the usual intervals."""
    return min(every // 4, max(5 * SECOND, every // 20))


def box_by_default(every: int, retries: int = 0) -> int:
    """Returns B = I/2 (the rule of seed 003), or I/4 with retries: a full box leaves time for another attempt."""
    return every // (4 if retries else 2)


def box_between(gap: int | None, retries: int = 0) -> int:
    """Returns B of a task without an interval: five minutes, or the usual share of the shortest gap, if that is less.

    `gap` is the shortest time between two occurrences, or None if there is only one.
    """
    if gap is None:
        return LONGEST_BOX_BY_DEFAULT
    return max(SHORTEST_BOX, min(LONGEST_BOX_BY_DEFAULT, box_by_default(gap, retries)))


def grace(every: int) -> int:
    """Returns g = min(1 s, I/10), the time from the end of the box to the kill."""
    return min(SECOND, every // 10)


def check_fit(every: int, tolerance: int, box: int, *, blame: str | None = None) -> None:
    """Checks T + B + g <= I, so that a run has ended before the next one may start.

    The BadInput names the field `blame`, or by default the larger of tolerance and box.
    """
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
    """Returns the first instant at which a scheduled run may start. `db/sql/start.sql` decides by the same rule."""
    return last_run + span(every - tolerance)


def expiry(every: int) -> int:
    """Returns how old a waiting occurrence may grow once a newer one waits: max(2 I, 10 min).

    The newest one never expires, so that even after a long outage there is one late run.
    """
    return max(2 * every, LEAST_EXPIRY)


def has_expired(occurrence: datetime, newest: datetime, now: datetime, every: int) -> bool:
    return occurrence < newest and occurrence < now - span(expiry(every))


LOOK_AHEAD = 1 * SECOND
"""Milliseconds. `ticker run` counts interval tasks as due so much earlier. Otherwise, milliseconds of jitter would make
a 60 s task wait for the following tick (77 s on average).
"""


def horizon(look_ahead: int, tolerance: int) -> int:
    """Returns how early an interval task may be due: `look_ahead`, but at most a fifth of its tolerance."""
    return min(look_ahead, tolerance // 5)


@lru_cache(maxsize=10_000)
def job_timeout(box: int, grace_ms: int) -> int:
    """Returns RQ's own timeout in whole seconds: ceil(B + g) + 30, a backstop after our hard limit."""
    return math.ceil((box + grace_ms) / SECOND) + RQ_MARGIN


def batch_timeout(limits: Sequence[int], concurrency: int = 1) -> int:
    """Returns RQ's timeout for a job that runs several tasks. `limits` holds B + g of each, in milliseconds.

    If the tasks run one after another, the timeout covers the sum. If up to `concurrency` of them run at the same time,
    it covers rounds of that many tasks, each round as long as the longest limit.
    """
    total = sum(limits) if concurrency == 1 else math.ceil(len(limits) / concurrency) * max(limits)
    return math.ceil(total / SECOND) + RQ_MARGIN


def granted_box(box: int, grace_ms: int, rq_timeout: int | None) -> int:
    """Returns the box, shortened if RQ's timeout of this job leaves less. The timeout was set at the push; the row may
    be newer.
    """
    if rq_timeout is None or rq_timeout < 0:
        return box
    return max(min(box, (rq_timeout - RQ_MARGIN) * SECOND - grace_ms), 0)


@lru_cache(maxsize=10_000)
def job_ttl(every: int) -> int:
    """Returns the seconds after which Redis may forget a waiting job. This only bounds memory; the expiry is much
    shorter.
    """
    return math.ceil(2 * expiry(every) / SECOND) + 3600


def back_off(errors: int) -> timedelta:
    """Returns how long a row waits after `errors` failed pushes in a row: 30 s, 1 min, 2 min ... 1 h."""
    return span(min(SHORTEST_BACK_OFF * 2 ** min(errors - 1, 20), LONGEST_BACK_OFF))


@dataclass(frozen=True, slots=True)
class Backoff:
    """A wait that starts at `least` and doubles after each attempt, up to `most`; constant if both are equal."""

    least: int = 10 * SECOND
    most: int = 5 * MINUTE

    @classmethod
    def parse(cls, field: str, value: object) -> Self:
        """Reads `10s..5m`, or a single duration. Raises BadInput."""
        if not isinstance(value, str) or DOTS not in value:
            return cls(*2 * (milliseconds(field, value, least=1),))
        least, most = (milliseconds(field, part, least=1) for part in value.split(DOTS, 1))
        if least > most:
            raise BadInput(field, value, "ends before it begins; write the shorter duration first, as in 10s..5m")
        return cls(least, most)

    @property
    def text(self) -> str:
        """The text that `parse` reads back."""
        return words(self.least) if self.least == self.most else f"{words(self.least)}{DOTS}{words(self.most)}"

    def after(self, attempt: int, seed: int) -> int:
        """Returns how long to wait after this attempt (1, 2, ...): half of the doubled value, and a share of the other
        half.

        The share depends on the seed and the attempt, so that tasks that fail together are not all retried together.
        """
        full = min(self.least << min(attempt - 1, 40), self.most)
        share = int.from_bytes(blake2b(f"{seed} {attempt}".encode(), digest_size=4).digest()) / 2**32
        return full // 2 + round(share * (full - full // 2))


def last_end(last_run: datetime, every: int, tolerance: int, grace: int) -> datetime:
    """Returns when the box of an interval task's attempt must be over: g before the next start is possible.

    So the box of a retry shrinks to the time left. If less than a second is left, there is no retry.
    """
    return later(last_run, every - tolerance - grace)
