"""Shows pauses of many tasks, and makes and ends them."""

from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response

from ticker.errors import BadInput, Unavailable
from ticker.read import entries
from ticker.read.pauses import has_tasks
from ticker.registration import pauses as operations
from ticker.schedules import once
from ticker.tasks.pauses import SCOPES
from ticker.web.pages.actions import BY, report
from ticker.web.pages.forms import one
from ticker.web.pages.screen import Form, Shown, change, screen
from ticker.web.site import Site


@screen("pauses.html")
def pauses(_: Site, __: Request) -> Shown:
    """Shows the pauses of the banner, which each screen has, and a form."""
    return {"scopes": SCOPES}


@change
def pause(here: Site, _: Request, form: Form) -> Response:
    until, chosen = one(form, "until"), scope(form)
    with here.database.writing() as db:
        end = once.instant("until", until, lambda: entries.instant(db)) if until else None
        paused = operations.pause_all(db, **chosen, by=BY, reason=one(form, "reason"), until=end)
    is_used = True
    with suppress(Unavailable), here.database.reading() as db:  # the pause has been committed
        is_used = has_tasks(db, paused)
    return report(f"{paused.words} are paused" + ("" if is_used else "; at present, there are none"))


@change
def resume(here: Site, _: Request, form: Form) -> Response:
    with here.database.writing() as db:
        resumed = operations.resume_all(db, **scope(form), by=BY)
    return report(f"{resumed.words} are resumed" if resumed else "this pause is over already")


def scope(form: Form) -> dict[str, str]:
    """Returns the arguments that choose the tasks."""
    name, value = one(form, "scope"), one(form, "value")
    if name == "all" and value:
        raise BadInput("value", value, "does not apply to all tasks; leave it empty, or choose what it names")
    if name != "all" and name not in SCOPES:
        raise BadInput("scope", name, f"is not one of: all, {', '.join(SCOPES)}")
    return {} if name == "all" else {name: value}
