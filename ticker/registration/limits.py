"""Defines the functions with which applications limit the runs that share a key. They join the caller's transaction."""

from dataclasses import dataclass
from datetime import datetime

from ticker import clock
from ticker.db.steps import Steps, writes
from ticker.tasks import checks
from ticker.tasks import rows as task_rows
from ticker.tasks.queries import query


@dataclass(frozen=True, slots=True)
class Limit:
    """A declared limit: at most `concurrency` active runs of the key, and `rate` starts per `period_ms` milliseconds.

    None means no such limit. Up to `burst` starts may follow each other at once. `by` declared it at `updated_at`.
    """

    key: str
    concurrency: int | None
    rate: int | None
    period_ms: int | None
    burst: int | None
    by: str
    updated_at: datetime


@writes
def limit(
    key: str,
    *,
    concurrency: int | None = None,
    rate: str | None = None,
    burst: int | None = None,
    by: str | None = None,
) -> Steps[Limit]:
    """Limits the runs of tasks that have this key in `limits`, on all workers together. It replaces the key's former limit.

    At most `concurrency` runs (1 to 10,000) are active at the same time. At most `rate`, such as `"300/1m"`, start in a
    period. Up to `burst` of them start at once, by default as many as in one second. One of `concurrency` and `rate`
    is required.

    A key that ends with an asterisk, such as `"imap.*"`, is a pattern. It limits each key with this beginning by itself, unless
    the key has its own limit or matches a longer pattern. Changes apply at once, and end no run. `by` is the author, as in
    `register`. Raises BadInput. In that case nothing is written.
    """
    columns = checks.limit_of_key(key, concurrency, rate, burst)
    author = None if by is None else checks.plain("by", by)
    yield query("lock_limits")
    yield query("declare_limit", now=clock.now(), by=author, **columns)
    [row] = yield query("find_limit", key=key)
    yield from task_rows.wake_up()
    return Limit(**row)


@writes
def unlimit(key: str) -> Steps[Limit | None]:
    """Removes a limit, or a pattern, and returns it. A missing limit is not an error.

    The keys that it limited may match another pattern. Otherwise, they have no limit.
    """
    checks.key("key", key, pattern=True)
    yield query("lock_limits")
    found = yield query("find_limit", key=key)
    yield query("remove_limit", key=key)
    yield from task_rows.wake_up()
    return Limit(**found[0]) if found else None


@writes
def release(key: str) -> Steps[bool]:
    """Ends the hold of a key (`SlowDown`) before its time. Returns whether it was held.

    One run starts first, as after any hold.
    """
    checks.key("key", key)
    was_held = bool((yield query("release_key", key=key, now=clock.now())))
    if was_held:
        yield from task_rows.wake_up()
    return was_held
