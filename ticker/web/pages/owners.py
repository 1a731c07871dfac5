"""Shows owners with their task counts. Those with failing or late tasks come first."""

from starlette.requests import Request

from ticker.errors import BadInput
from ticker.read import entries
from ticker.read.owners import list_owners
from ticker.web.api import bookmarks
from ticker.web.pages.screen import ROWS, Shown, asked, paging, screen
from ticker.web.site import Site

STATES = ("failing", "late", "paused")


@screen("owners.html")
def owners(here: Site, request: Request) -> Shown:
    state, owner_type = asked(request, "state"), asked(request, "owner_type")
    if state is not None and state not in STATES:
        raise BadInput("state", state, f"is not one of: {', '.join(STATES)}")
    with here.database.reading() as db:
        flags = {name: name == state for name in STATES}
        after = asked(request, "after", bookmarks.owner_before)
        statuses = list_owners(db, owner_type=owner_type, **flags, after=after, limit=ROWS + 1)
        now = entries.instant(db)
    following = bookmarks.of_owner(statuses[ROWS - 1]) if len(statuses) > ROWS else None
    return {
        "owners": statuses[:ROWS], "now": now, "states": STATES, "wanted": {"state": state, "owner_type": owner_type},
    } | paging(request, "after", following)  # fmt: skip
