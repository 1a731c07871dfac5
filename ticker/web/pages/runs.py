"""Runs and drops as they ended, one with all that is kept of it, and the drops counted by what they have in common."""

from datetime import timedelta

from starlette.requests import Request

from ticker import ledger, lines, record, status
from ticker.errors import BadInput
from ticker.record import Key
from ticker.task import Outcome, Reason
from ticker.web.api import bookmarks
from ticker.web.pages.screen import ROWS, Shown, as_id, asked, filtered, id_of, screen
from ticker.web.site import Site

DROPS = 50
HOURS = {"1": "the last hour", "24": "the last day", "168": "the last week"}


@screen("runs.html")
def runs(here: Site, request: Request) -> Shown:
    wanted = {name: asked(request, name) for name in ("owner", "owner_type", "outcome", "reason")}
    task = asked(request, "task")
    with here.database.reading() as db:
        named = as_id("task", task) if task and task.isdecimal() else task
        chosen = record.select(db, task=named, **wanted)  # type: ignore[arg-type]  # select checks what they are
        page = record.page(db, chosen, before=before(request), limit=ROWS)
        now = lines.instant(status.on(db))
    following = filtered(request, before=bookmarks.of_key(page.next)) if page.next else ""
    return {
        "lines": page.lines, "now": now, "following": following, "wanted": wanted | {"task": task},
        "outcomes": list(Outcome), "reasons": list(Reason), "first": filtered(request, before=None) if asked(request, "before") else None,
    }  # fmt: skip


@screen("run.html")
def run(here: Site, request: Request) -> Shown:
    with here.database.reading() as db:
        full = status.get_run(db, id_of(request))
        now = lines.instant(status.on(db))
        words = here.words(ledger.told(status.on(db), None, [full.run], [], now)[0])
    found = here.shown(full)
    return {"full": found, "run": found.run, "words": words, "now": now, "hidden": here.settings.hide_args}


def before(request: Request) -> Key | None:
    """Where the page before ended."""
    text = asked(request, "before")
    return None if text is None else bookmarks.key_in("before", text)


@screen("drops.html")
def drops(here: Site, request: Request) -> Shown:
    by, hours = asked(request, "by") or "reason", asked(request, "hours") or "24"
    if hours not in HOURS:
        raise BadInput("hours", hours, f"is none of: {', '.join(HOURS)}")
    with here.database.reading() as db:
        now = lines.instant(status.on(db))
        counted = record.drops(db, by=by, since=now - timedelta(hours=int(hours)), limit=DROPS)
    return {"counted": counted, "now": now, "by": by, "groups": record.GROUPS, "hours": hours, "spans": HOURS}
