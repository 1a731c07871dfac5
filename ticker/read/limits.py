"""Lists limits with their use, and the runs and tasks that use them or wait for them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from ticker import clock, numbers
from ticker.db.steps import Steps, reads
from ticker.tasks.queries import query

AT_MOST = 10_000  # rows of one answer


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """A limited key and its use, or a limit without a key in use. Times are in UTC.

    `limited_by` is the declared limit, which may be a pattern. None means that the key is only held. `concurrency`,
    `rate`, `period_ms` and `burst` are its limits. `active` counts the runs that use the concurrency, and `tokens` the
    runs that the rate lets start now. `waiting` counts the due tasks of the key. No run starts before `held_until`.
    After that, at most `allowed` runs are active until some have succeeded.
    """

    key: str
    limited_by: str | None
    concurrency: int | None
    rate: int | None
    period_ms: int | None
    burst: int | None
    active: int
    tokens: int | None
    waiting: int
    held_until: datetime | None
    allowed: int | None


@reads
def list_limits(*, limit: int = 1000) -> Steps[list[LimitStatus]]:
    """Returns up to `limit` limited keys, those with most due tasks first, and limits without a key in use."""
    rows = yield query("list_limits", now=clock.now(), limit=numbers.whole("limit", limit, 1, AT_MOST))
    return [LimitStatus(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class KeyUser:
    """A run that takes a part of a key's concurrency, or a due task of the key, for which `run_id` is None.

    `since` is when the run started, or when the task was due, in UTC.
    """

    key: str
    run_id: int | None
    task_id: int
    task_name: str
    owner_type: str
    owner_id: str
    since: datetime


@reads
def users_of_keys(keys: Iterable[str], *, limit: int = 5) -> Steps[list[KeyUser]]:
    """Returns up to `limit` runs and up to `limit` due tasks of each key, oldest first."""
    return [KeyUser(**row) for row in (yield query("users_of_keys", keys=[*keys], now=clock.now(), limit=limit))]
