"""Shows limits with their use, sets and removes them, and ends holds of keys."""

from collections import defaultdict

from starlette.requests import Request
from starlette.responses import Response

from ticker import numbers
from ticker.read import entries
from ticker.read.limits import KeyUser, list_limits, users_of_keys
from ticker.registration import limits as operations
from ticker.tasks.checks import MOST_AT_ONCE
from ticker.web.pages.actions import BY, report
from ticker.web.pages.forms import one
from ticker.web.pages.screen import Form, Shown, asked, change, screen
from ticker.web.site import Site

LISTED = 100


@screen("limits.html")
def limits(here: Site, request: Request) -> Shown:
    key, users = asked(request, "key"), defaultdict[str, list[KeyUser]](list)
    with here.database.reading() as db:
        statuses, now = list_limits(db, limit=LISTED + 1), entries.instant(db)
        for user in users_of_keys(db, [status.key for status in statuses]):
            users[user.key].append(user)
    chosen = next((status for status in statuses if key and status.limited_by == key), None)
    more = len(statuses) > LISTED
    return {"limits": statuses[:LISTED], "more": more, "users": users, "now": now, "key": key, "chosen": chosen}


@change
def declare(here: Site, _: Request, form: Form) -> Response:
    """Sets the limit of a key. It replaces the former one."""
    key, given = one(form, "key"), {name: one(form, name) for name in ("concurrency", "burst")}
    counts = {name: numbers.whole(name, text, 1, MOST_AT_ONCE) for name, text in given.items() if text}
    with here.database.writing() as db:
        operations.limit(db, key, rate=one(form, "rate") or None, by=BY, **counts)
    return report(f"{key}: the limit is set")


@change
def remove(here: Site, _: Request, form: Form) -> Response:
    key = one(form, "key")
    with here.database.writing() as db:
        operations.unlimit(db, key)
    return report(f"{key}: the limit is removed")


@change
def release(here: Site, _: Request, form: Form) -> Response:
    key = one(form, "key")
    with here.database.writing() as db:
        was_held = operations.release(db, key)
    return report(f"{key} is released" if was_held else f"{key} is not held")
