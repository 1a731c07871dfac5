"""Pauses many tasks with one row, and resumes them. Everything joins the caller's transaction."""

from datetime import datetime

from ticker import clock
from ticker.db.steps import Steps, writes
from ticker.registration.operations import ahead
from ticker.tasks import checks
from ticker.tasks import rows as task_rows
from ticker.tasks.pauses import Pause, pause_from, scope_of
from ticker.tasks.queries import query


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
    scope = scope_of({"group": group, "function": function, "queue": queue, "owner_type": owner_type, "limit": limit})
    checked = {
        "by": None if by is None else checks.plain("by", by),
        "reason": checks.prose("reason", reason),
        "until": (yield from ahead("until", until)),
    }
    [row] = yield query("pause_many", now=clock.now(), **scope, **checked)
    return pause_from(row)


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
    scope = scope_of({"group": group, "function": function, "queue": queue, "owner_type": owner_type, "limit": limit})
    author = None if by is None else checks.plain("by", by)
    rows = yield query("resume_many", now=clock.now(), by=author, **scope)
    yield from task_rows.wake_up()
    return pause_from(rows[0]) if rows else None
