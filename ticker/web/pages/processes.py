"""Tickers, queues, workers and servers, and whether all is well."""

from typing import Any

from starlette.requests import Request

from ticker import attendance, health, lines, overview, status
from ticker.errors import ConfigurationError, QueueUnavailable
from ticker.web.pages.screen import Shown, screen
from ticker.web.site import Site


@screen("processes.html")
def processes(here: Site, _: Request) -> Shown:
    found = health.look(here.settings)
    with here.database.reading() as db:
        functions, now = overview.functions(db), lines.instant(status.on(db))
        [(version,)] = db.execute("SHOW server_version").fetchall()
    return {"health": found, "functions": functions, "now": now, "version_of_postgresql": version, **attending(here)}


def attending(here: Site) -> dict[str, Any]:
    """Queues and workers as RQ knows them; `unknown`: why they are not known."""
    try:
        queues, workers = attendance.look(here.settings.require_redis())
    except (QueueUnavailable, ConfigurationError) as error:
        return {"queues": [], "workers": [], "unknown": str(error)}
    return {"queues": queues, "workers": workers, "unknown": ""}
