"""Provides the functions of `ticker` for asynchronous connections of SQLAlchemy (or an AsyncSession), asyncpg and
psycopg.

await ticker.aio.register(session, "mail.fetch", owner=channel, every="1m")
"""

import ticker
from ticker.db.steps import asynchronous

register = asynchronous(ticker.register)
register_many = asynchronous(ticker.register_many)
unregister = asynchronous(ticker.unregister)
reconcile = asynchronous(ticker.reconcile)
edit = asynchronous(ticker.edit)
pause = asynchronous(ticker.pause)
resume = asynchronous(ticker.resume)
pause_all = asynchronous(ticker.pause_all)
resume_all = asynchronous(ticker.resume_all)
run_now = asynchronous(ticker.run_now)
stop = asynchronous(ticker.stop)
bulk = asynchronous(ticker.bulk)
defaults = asynchronous(ticker.defaults)
limit = asynchronous(ticker.limit)
unlimit = asynchronous(ticker.unlimit)
release = asynchronous(ticker.release)
get = asynchronous(ticker.get)
list_tasks = asynchronous(ticker.list_tasks)
list_owners = asynchronous(ticker.list_owners)
list_limits = asynchronous(ticker.list_limits)
list_pauses = asynchronous(ticker.list_pauses)
list_runs = asynchronous(ticker.list_runs)
get_run = asynchronous(ticker.get_run)
why = asynchronous(ticker.why)
journal = asynchronous(ticker.journal)
drops = asynchronous(ticker.drops)

__all__ = [name for name in ticker.__all__ if name in globals()]


def __dir__() -> list[str]:
    return __all__
