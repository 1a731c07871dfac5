"""Tickers, queues, workers and servers, and whether all is well; also where a server does not answer."""

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
    found = here.look()
    tables = {"now": clock.python_utc()} if found.database_error else of_tables(here)
    return {"health": found, "silent": silent(found), **tables, **attending(here)}


def of_tables(here: Site) -> dict[str, Any]:
    with here.database.reading() as db:
        version = overview.server_version(db)
        return {"functions": overview.functions(db), "now": entries.instant(db), "version_of_postgresql": version}


def silent(found: health.Health) -> dict[UUID, str]:
    """For how long, of the tickers that are."""
    silent = {ticker.id: health.silent_ms(ticker, found.max_age_ms) for ticker in found.tickers}
    return {id_: roughly(ms // SECOND) for id_, ms in silent.items() if ms}


def attending(here: Site) -> dict[str, Any]:
    """Queues and workers as RQ knows them; `unknown`: why they are not known."""
    try:
        url = here.settings.require_redis()
        return {"attendance": here.breaker.ask(health.REDIS, lambda: inspect.look(url)), "unknown": ""}
    except (Unavailable, ConfigurationError) as error:
        return {"attendance": Attendance(), "unknown": str(error)}
