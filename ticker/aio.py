"""Provides the functions of `ticker` for asynchronous connections of SQLAlchemy (or an AsyncSession), asyncpg and
psycopg.

await ticker.aio.register(session, "mail.fetch", owner=channel, every="1m")
"""

from ticker.db.steps import asynchronous
from ticker.read import gates as _gates
from ticker.read import journal as _journal
from ticker.read import owners as _owners
from ticker.read import tasks as _tasks
from ticker.read import why as _why
from ticker.registration import defaults as _defaults
from ticker.registration import limits as _limits
from ticker.registration import operations as _operations
from ticker.registration import pauses as _pauses
from ticker.registration import stops as _stops

register = asynchronous(_operations.register)
unregister = asynchronous(_operations.unregister)
reconcile = asynchronous(_operations.reconcile)
edit = asynchronous(_operations.edit)
pause = asynchronous(_operations.pause)
resume = asynchronous(_operations.resume)
pause_all = asynchronous(_pauses.pause_all)
resume_all = asynchronous(_pauses.resume_all)
run_now = asynchronous(_operations.run_now)
stop = asynchronous(_stops.stop)
defaults = asynchronous(_defaults.defaults)
limit = asynchronous(_limits.limit)
unlimit = asynchronous(_limits.unlimit)
release = asynchronous(_limits.release)
get = asynchronous(_tasks.get)
list_tasks = asynchronous(_tasks.list_tasks)
list_owners = asynchronous(_owners.list_owners)
list_limits = asynchronous(_gates.list_limits)
list_pauses = asynchronous(_gates.list_pauses)
list_runs = asynchronous(_journal.list_runs)
get_run = asynchronous(_tasks.get_run)
why = asynchronous(_why.why)
journal = asynchronous(_journal.journal)
drops = asynchronous(_journal.drops)

__all__ = [
    "register", "unregister", "reconcile", "edit", "pause", "resume", "pause_all", "resume_all", "run_now", "stop", "defaults", "limit", "unlimit", "release",
    "get", "list_tasks", "list_owners", "list_limits", "list_pauses", "list_runs", "get_run", "why", "journal", "drops",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
