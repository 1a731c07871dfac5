"""Shows the current state: what runs next, is late or failing, and why; the owners; and the processes and servers."""

from typing import Any
from uuid import UUID

from starlette.requests import Request

from ticker import clock
from ticker.errors import ConfigurationError, Unavailable
from ticker.queue import inspect
from ticker.queue.inspect import Attendance
from ticker.read import entries, health, journal
from ticker.read import overview as read_overview
from ticker.read.overview import Overview, last_failures, overview
from ticker.read.tasks import late_since
from ticker.schedules.duration import SECOND
from ticker.web.api.fields import AFTER_OWNER, NAME, one_of
from ticker.web.api.tasks import list_owners
from ticker.web.pages.phrases import roughly
from ticker.web.pages.screen import ROWS, Shown, asked, filters, paging, screen
from ticker.web.site import Site

STATES = ("failing", "late", "paused")


@screen("now.html")
def now(here: Site, _: Request) -> Shown:
    with here.database.reading() as db:
        snapshot = overview(db)
        failures = last_failures(db, snapshot.failing)
        deleted = journal.deleted(db, [one.example.task_id for one in snapshot.drops if one.example])
    look = here.look()
    late = [(task, late_since(task, snapshot.now) or task.next_run, health.cause(task, look)) for task in snapshot.late]
    failing = [(task, failures.get(task.id)) for task in snapshot.failing]
    return {
        "overview": snapshot, "now": snapshot.now, "late": late, "failing": failing, "is_quiet": is_quiet(snapshot),
        "problems": look.problems, "deleted": deleted,
    }  # fmt: skip


def is_quiet(snapshot: Overview) -> bool:
    return not (snapshot.late or snapshot.failing or snapshot.drops)


@screen("owners.html")
def owners(here: Site, request: Request) -> Shown:
    """Shows owners with their task counts. Those with failing or late tasks come first."""
    state = asked(request, "state", one_of(*STATES))
    given = filters(request, {"owner_type": NAME, "after": AFTER_OWNER}) | ({state: True} if state else {})
    with here.database.reading() as db:
        page, now = list_owners(here, db, **given, limit=ROWS), entries.instant(db)
    return page | {"now": now, "states": STATES} | paging(request, "after", page["next"])


@screen("processes.html")
def processes(here: Site, _: Request) -> Shown:
    """Shows tickers, queues, workers and servers, even if a server does not answer."""
    status = here.look()
    tables = {"now": clock.python_utc()} if status.database_error else of_tables(here)
    needs = {need.queue: need.enough for need in status.needs if not need.why_unknown}
    return {"health": status, "silent": silent(status), "needs": needs, **tables, **attending(here)}


def of_tables(here: Site) -> dict[str, Any]:
    with here.database.reading() as db:
        version = read_overview.server_version(db)
        return {"functions": read_overview.functions(db), "now": entries.instant(db), "version_of_postgresql": version}


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
