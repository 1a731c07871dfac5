"""Owners: how many tasks each has, and how they are; those in trouble first."""

from starlette.requests import Request

from ticker.errors import BadInput
from ticker.read import entries, tasks
from ticker.read.owners import OwnerStatus, list_owners
from ticker.web.api import bookmarks
from ticker.web.pages.screen import ROWS, Shown, asked, filtered, screen
from ticker.web.site import Site

STATES = ("failing", "late", "paused")


@screen("owners.html")
def owners(here: Site, request: Request) -> Shown:
    state, owner_type = asked(request, "state"), asked(request, "owner_type")
    if state is not None and state not in STATES:
        raise BadInput("state", state, f"is none of: {', '.join(STATES)}")
    with here.database.reading() as db:
        flags = {name: name == state for name in STATES}
        found = list_owners(db, owner_type=owner_type, **flags, after=behind(request), limit=ROWS + 1)
        now = entries.instant(tasks.on(db))
    shown = found[:ROWS]
    last = shown[-1] if len(found) > ROWS else None
    return {
        "owners": shown, "now": now, "states": STATES, "wanted": {"state": state, "owner_type": owner_type},
        "following": filtered(request, after=bookmarks.of_owner(last)) if last else "",
        "first": filtered(request, after=None) if asked(request, "after") else None,
    }  # fmt: skip


def behind(request: Request) -> OwnerStatus | None:
    """The last owner of the page before."""
    after = asked(request, "after")
    return None if after is None else bookmarks.owner_before("after", after)
