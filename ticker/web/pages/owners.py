"""Owners: how many tasks each has, and how they are; those in trouble first."""

from starlette.requests import Request

from ticker import lines, status
from ticker.errors import BadInput
from ticker.owner_status import OwnerStatus, list_owners
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
        now = lines.instant(status.on(db))
    shown = found[:ROWS]
    last = shown[-1] if len(found) > ROWS else None
    return {
        "owners": shown, "now": now, "states": STATES, "wanted": {"state": state, "owner_type": owner_type},
        "following": filtered(request, after=last.owner, rest="" if last.in_trouble else "1") if last else "",
        "first": filtered(request, after=None, rest=None) if asked(request, "after") else "",
    }  # fmt: skip


def behind(request: Request) -> OwnerStatus | None:
    """The last owner of the page before; `rest`: it was one of those who are well."""
    after = asked(request, "after")
    if after is None:
        return None
    owner_type, _, owner_id = after.partition(":")
    trouble = 0 if asked(request, "rest") else 1
    return OwnerStatus(owner_type, owner_id, 1, trouble, 0, 0, 0, None, None)
