"""Shows when tasks fall due, and spreads those that are due at the same time."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ticker.read import due as read_due
from ticker.read import overview
from ticker.tasks import spreading
from ticker.web.api.operation import NAME
from ticker.web.pages.screen import Form, Shown, change, filters, report, screen
from ticker.web.site import Site

CHOSEN = {"owner_type": NAME, "function": NAME}


@screen("/tasks/due", "due.html")
def due(_: Site, db: Any, __: Request) -> Shown:
    """Shows how many tasks fall due in each second of the next ten minutes."""
    seen = read_due.due_seconds(db)
    labels = [seen.begin + read_due.AHEAD * part / 5 for part in range(5)]
    return {"due": seen, "path": read_due.path(seen), "labels": labels, "functions": overview.functions(db)}


@screen("/tasks/spread", "spread.html")
def spreading_of(_: Site, __: Any, request: Request) -> Shown:
    """Names the tasks that would be spread. Their plan, which reads all of them, follows."""
    filters(request, CHOSEN)
    return {}


@screen("/tasks/spread/plan", "spread_plan.html")
def plan(_: Site, db: Any, request: Request) -> Shown:
    """Shows how much spreading would help. Changes nothing."""
    return {"plan": spreading.spread_plan(db, **filters(request, CHOSEN))}


@change("/tasks/spread")
def spread(here: Site, request: Request, _: Form) -> Response:
    """Gives the interval tasks of the filter in the address their own phases."""
    chosen = filters(request, CHOSEN)
    with here.database.reading() as db:
        done = spreading.spread(db, **chosen)
    return report(f"{done:,} tasks got a phase", f"{here.root}/tasks/due")
