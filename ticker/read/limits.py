"""Lists limits with their use, the runs that hold their slots, and the tasks that are due."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from ticker import clock, numbers
from ticker.db.steps import Steps, reads
from ticker.tasks.queries import query

AT_MOST = 10_000  # rows of one answer


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """A limited key and its use, or a limit without a key in use. Times are in UTC.

    `limited_by` is the declared limit, which may be a pattern. None means that the key has no limit, but is held off or
    starting again. `concurrency`, `rate`, `period_ms` and `burst` are its limits. `active` counts the runs that have a
    slot, and `tokens` the runs that the rate lets start now. `waiting` counts the due tasks of the key. No run starts
    before `held_until`. After that, at most `allowed` runs are active, and twice as many after each success.
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
    """Returns up to `limit` limited keys, those with the most due tasks first, and limits without a key in use."""
    rows = yield query("list_limits", now=clock.now(), limit=numbers.whole("limit", limit, 1, AT_MOST))
    return [LimitStatus(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class KeyUser:
    """An active run that has a slot of a key, or a due task of the key. `run_id` is None for a due task.

    `since` is when the run started, or when the task became due, in UTC.
    """

    key: str
    run_id: int | None
    task_id: int
    task_name: str
    owner_type: str
    owner_id: str
    since: datetime


def oldest_runs(keys: Sequence[str]) -> Steps[dict[str, KeyUser]]:
    """Returns the run of each key that has been active for longest. A key without an active run is left out."""
    rows = (yield query("oldest_runs_of_keys", keys=keys, now=clock.now(), limit=1)) if keys else []
    return {row["key"]: KeyUser(**row) for row in rows}


@reads
def users_of_keys(keys: Iterable[str], *, limit: int = 5) -> Steps[list[KeyUser]]:
    """Returns up to `limit` runs and up to `limit` due tasks of each key, oldest first."""
    return [KeyUser(**row) for row in (yield query("users_of_keys", keys=[*keys], now=clock.now(), limit=limit))]
