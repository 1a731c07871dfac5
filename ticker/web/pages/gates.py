"""Shows what keeps due tasks from starting: limits with their use, and pauses of many tasks. Sets and ends both."""

from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response

from ticker.errors import BadInput, Unavailable
from ticker.read import entries
from ticker.read.gates import KeyUser, has_tasks, list_limits, users_of_keys
from ticker.tasks.pauses import SCOPES
from ticker.web.api import gates
from ticker.web.api.tasks import PAUSE
from ticker.web.pages.screen import Form, Shown, asked, change, done, fields_of, one, report, screen
from ticker.web.site import Site

LISTED = 100


@screen("limits.html")
def limits(here: Site, request: Request) -> Shown:
    key = asked(request, "key")
    with here.database.reading() as db:
        statuses, now = list_limits(db, limit=LISTED + 1), entries.instant(db)
        users: dict[str, list[KeyUser]] = {status.key: [] for status in statuses}
        for user in users_of_keys(db, [status.key for status in statuses]):
            users[user.key].append(user)
    chosen = next((status for status in statuses if key and status.limited_by == key), None)
    more = len(statuses) > LISTED
    return {"limits": statuses[:LISTED], "more": more, "users": users, "now": now, "key": key, "chosen": chosen}


@change
def declare(here: Site, _: Request, form: Form) -> Response:
    """Sets the limit of a key. It replaces the former one."""
    key = one(form, "key")
    return done(
        here, lambda _: f"{key}: the limit is set", gates.declare_limit, key, **fields_of(None, form, gates.LIMIT)
    )


@change
def remove(here: Site, _: Request, form: Form) -> Response:
    key = one(form, "key")
    return done(here, lambda _: f"{key}: the limit is removed", gates.remove_limit, key)


@change
def release(here: Site, _: Request, form: Form) -> Response:
    key = one(form, "key")
    return done(here, lambda _: f"{key} is released", gates.release_key, key)


@screen("pauses.html")
def pauses(_: Site, __: Request) -> Shown:
    """Shows the pauses of the banner, which each screen has, and a form."""
    return {"scopes": SCOPES}


@change
def pause(here: Site, _: Request, form: Form) -> Response:
    with here.database.writing() as db:
        paused = gates.pause_many(here, db, **scope(form), **fields_of(db, form, PAUSE))
    is_used = True
    with suppress(Unavailable), here.database.reading() as db:  # the pause has been committed
        is_used = has_tasks(db, paused)
    return report(f"{paused.words} are paused" + ("" if is_used else "; at present, there are none"))


@change
def resume(here: Site, _: Request, form: Form) -> Response:
    return done(here, lambda resumed: f"{resumed.words} are resumed", gates.resume_many, **scope(form))


def scope(form: Form) -> dict[str, str]:
    """Returns the arguments that choose the tasks."""
    name, value = one(form, "scope"), one(form, "value")
    if name == "all" and value:
        raise BadInput("value", value, "does not apply to all tasks; leave it empty, or choose what it names")
    if name != "all" and name not in SCOPES:
        raise BadInput("scope", name, f"is not one of: all, {', '.join(SCOPES)}")
    return {} if name == "all" else {name: value}
