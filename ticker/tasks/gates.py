"""Limits the runs that share a key, and pauses many tasks with one row. Everything joins the caller's transaction."""

from dataclasses import dataclass
from datetime import datetime

from ticker.db.steps import Steps, writes
from ticker.errors import BadInput
from ticker.model import Pause
from ticker.tasks import checks
from ticker.tasks.operations import pausing
from ticker.tasks.rows import query, wake_up


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
    columns = checks.limit_of_key(key, concurrency, rate, burst) | {"by": checks.author(by)}
    yield query("lock_limits")
    yield query("declare_limit", **columns)
    [row] = yield query("find_limit", key=key)
    yield from wake_up()
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
    yield from wake_up()
    return Limit(**found[0]) if found else None


@writes
def release(key: str) -> Steps[bool]:
    """Opens a key that `SlowDown` closed. Returns whether it was closed.

    One run starts first, as after any hold. Raises BadInput for a pattern.
    """
    checks.key("key", key)
    was_held = bool((yield query("release_key", key=key)))
    if was_held:
        yield from wake_up()
    return was_held


# --------------------------------------------------------------------------------------------- pauses of many tasks


@writes
def pause_all(
    *,
    group: str | None = None,
    function: str | None = None,
    queue: str | None = None,
    owner_type: str | None = None,
    limit: str | None = None,
    by: str | None = None,
    reason: str = "",
    until: datetime | None = None,
) -> Steps[Pause]:
    """Pauses all tasks, or those of one group, function, queue, type of owner or limit, until `resume_all` or `until`.

    However many tasks there are, this writes one row. It applies to each push and each start after its commit, and adds
    to the tasks' own pauses. Nothing that waits is lost: due tasks, and those whose job a worker takes meanwhile, wait
    in the table. `limit` is a key, or a pattern such as `imap.*`.

    Retries and pieces wait, too. Manual runs do so only if all tasks are paused. Active runs continue. A pause that is
    in force for the same tasks gets the new reason and end.

    `by` is the author, as in `register`. Raises BadInput if more than one of the five is given, or if `until` has
    passed.
    """
    scope = _scope(group=group, function=function, queue=queue, owner_type=owner_type, limit=limit)
    checked = yield from pausing(by, reason, until)
    [row] = yield query("pause_many", **scope, **checked)
    return Pause(**row)


@writes
def resume_all(
    *,
    group: str | None = None,
    function: str | None = None,
    queue: str | None = None,
    owner_type: str | None = None,
    limit: str | None = None,
    by: str | None = None,
) -> Steps[Pause | None]:
    """Ends the pause with this scope, and returns it, or None if none is in force.

    Each tick resumes waiting tasks, oldest first, within a budget: 1.2 times the runs that the intervals of the tasks
    require per tick, at least 1,000. Tasks with a pause of their own, or to which another pause applies, stay paused.
    """
    scope = _scope(group=group, function=function, queue=queue, owner_type=owner_type, limit=limit)
    rows = yield query("resume_many", by=checks.author(by), **scope)
    yield from wake_up()
    return Pause(**rows[0]) if rows else None


def _scope(**given: str | None) -> dict[str, str]:
    """Returns the only scope that is given, and its value, as columns. Without one, all tasks are meant."""
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) > 1:
        raise BadInput("pause", " and ".join(named), "cannot be combined; pause each of them")
    for name, value in named.items():
        accepted = checks.key(name, value, pattern=True) if name == "limit" else checks.plain(name, value)
        return {"scope": name, "value": accepted}
    return {"scope": "all", "value": ""}
