"""The list of tasks: filters that stay in the address, pages by cursor, and what became of each one's last occurrences."""

from starlette.requests import Request

from ticker import lines, overview, status
from ticker.web.api import bookmarks
from ticker.web.pages.screen import ROWS, Shown, asked, filtered, screen
from ticker.web.site import Site

FILTERS = ("search", "state", "owner", "owner_type", "function", "queue", "group", "submitter")


@screen("tasks.html")
def tasks(here: Site, request: Request) -> Shown:
    wanted = {name: asked(request, name) for name in FILTERS}
    with here.database.reading() as db:
        found = status.list_tasks(db, **wanted, after=behind(request), limit=ROWS + 1)
        shown = found[:ROWS]
        strips = overview.strips(db, shown)
        now = lines.instant(status.on(db))
    following = filtered(request, after=shown[-1].id) if len(found) > ROWS else ""
    return {
        "tasks": shown, "strips": strips, "now": now, "wanted": wanted, "states": status.STATES, "following": following,
        "first": filtered(request, after=None) if asked(request, "after") else None,
    }  # fmt: skip


def behind(request: Request) -> int:
    """The id of the last task of the page before."""
    after = asked(request, "after")
    return 0 if after is None else bookmarks.of_task("after", after)
