"""Shows tickers, queues, workers and servers, and whether all is well, even if a server does not answer."""

from typing import Any
from uuid import UUID

from starlette.requests import Request

from ticker import clock
from ticker.errors import ConfigurationError, Unavailable
from ticker.queue import inspect
from ticker.queue.inspect import Attendance
from ticker.read import entries, health, overview
from ticker.schedules.duration import SECOND
from ticker.web.pages.phrases import roughly
from ticker.web.pages.screen import Shown, screen
from ticker.web.site import Site


@screen("processes.html")
def processes(here: Site, _: Request) -> Shown:
    status = here.look()
    tables = {"now": clock.python_utc()} if status.database_error else of_tables(here)
    needs = {need.queue: need.enough for need in status.needs if not need.why_unknown}
    return {"health": status, "silent": silent(status), "needs": needs, **tables, **attending(here)}


def of_tables(here: Site) -> dict[str, Any]:
    with here.database.reading() as db:
        version = overview.server_version(db)
        return {"functions": overview.functions(db), "now": entries.instant(db), "version_of_postgresql": version}


def silent(status: health.Health) -> dict[UUID, str]:
    """Returns how long each silent ticker has been silent."""
    silent = {ticker.id: health.silent_ms(ticker, status.max_age_ms) for ticker in status.tickers}
    return {id_: roughly(ms // SECOND) for id_, ms in silent.items() if ms}


def attending(here: Site) -> dict[str, Any]:
    """Returns queues and workers as RQ knows them. `unknown` explains why they are not known, or is empty."""
    try:
        url = here.settings.require_redis()
        return {"attendance": here.breaker.ask(health.REDIS, lambda: inspect.look(url)), "unknown": ""}
    except (Unavailable, ConfigurationError) as error:
        return {"attendance": Attendance(), "unknown": str(error)}
