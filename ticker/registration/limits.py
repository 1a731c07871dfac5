"""Declares and removes limits of runs that share a key, and ends holds. Everything joins the caller's transaction."""

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

    None means no such limit. Up to `burst` runs may start at once. `by` declared these values at `updated_at`, in UTC.
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
    """Limits the runs of tasks that have this key in `limits`, on all workers together. Replaces the key's former
    limit.

    `concurrency` is how many runs (1 to 10,000) may be active at the same time, and `rate` how many may start per
    period, such as `"300/1m"`. At least one of the two is required. `burst` is how many of these may start at once. It
    defaults to the number that the rate allows in one second, but at least one.

    A key that ends with an asterisk, such as `"imap.*"`, is a pattern. It limits each key with this beginning
    separately, unless the key has its own limit or matches a longer pattern. A change applies when the transaction
    commits, and ends no run. `by` is the author, as in `register`. Raises BadInput, in which case nothing is written.
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
    """Removes the limit of a key or a pattern, and returns it, or None if it does not exist.

    The longest other pattern that matches applies to its keys from then on. Without one, they have no limit.
    """
    checks.key("key", key, pattern=True)
    yield query("lock_limits")
    found = yield query("find_limit", key=key)
    yield query("remove_limit", key=key)
    yield from task_rows.wake_up()
    return Limit(**found[0]) if found else None


@writes
def release(key: str) -> Steps[bool]:
    """Ends the hold of a key (`SlowDown`) early. Returns whether the key was held off.

    One run starts first, as after any hold. Raises BadInput for a pattern.
    """
    checks.key("key", key)
    was_held = bool((yield query("release_key", key=key, now=clock.now())))
    if was_held:
        yield from task_rows.wake_up()
    return was_held
