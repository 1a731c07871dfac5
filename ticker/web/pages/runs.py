"""Shows the journal, one run in full, and counts of drops. Stops a run."""

from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ticker.db import steps
from ticker.errors import UnknownTask
from ticker.model import Outcome, Reason
from ticker.read import entries, journal, tasks, why
from ticker.read.journal import Wanted
from ticker.tasks.identity import Owner
from ticker.web.api import runs as api
from ticker.web.api.fields import AFTER_ID, BEFORE_KEY, ID, one_of
from ticker.web.api.operation import text_in
from ticker.web.pages.screen import ROWS, Form, Shown, asked, change, done, filters, id_of, paging, screen
from ticker.web.site import Site

DROPS = 50
PIECES = 100
HOURS = {"1": "the last hour", "24": "the last day", "168": "the last week"}


@screen("runs.html")
def runs(here: Site, request: Request) -> Shown:
    task, before = asked(request, "task"), asked(request, "before", BEFORE_KEY)
    given = filters(request, {name: api.FILTERS[name] for name in ("owner", "owner_type", "outcome", "reason")})
    with here.database.reading() as db:
        chosen = select(db, task=task, **given)
        page = journal.page(db, chosen, before=before, limit=ROWS)
        now, deleted = entries.instant(db), journal.deleted(db, [line.task_id for line in page.lines])
    return {
        "lines": page.lines, "now": now, "deleted": deleted,
        "outcomes": list(Outcome), "reasons": list(Reason),
    } | paging(request, "before", api.following(page))  # fmt: skip


def select(db: Any, *, task: str | None, owner: Owner | None = None, **others: Any) -> Wanted:
    """Returns the selection that the filter describes. Suggests an owner if no task without an owner has the name."""
    named = text_in("task", ID, task) if task and task.isdecimal() else task
    try:
        return journal.select(db, task=named, owner=owner, **others)
    except UnknownTask as error:
        if owner is not None:
            raise UnknownTask(f"{error} now; a deleted one is found by its id, or by its owner alone") from None
        raise UnknownTask(f"{error} without an owner; for an owner's task, add its owner or use its id") from None


@screen("run.html")
def run(here: Site, request: Request) -> Shown:
    with here.database.reading() as db:
        after = asked(request, "after", AFTER_ID) or 0
        full = tasks.get_run(db, id_of(request), pieces=PIECES, after=after)
        now = entries.instant(db)
        [line] = steps.run(db, why.run_lines(None, [full.run], [], now))
        deleted = journal.deleted(db, [full.run.task_id])
    return {
        "full": full, "run": full.run, "line": line, "now": now, "deleted": deleted, "hidden": here.settings.hide_args,
        "goes_on": any(one.state != "ended" for one in (full.run, *full.attempts, *full.pieces)),
    } | paging(request, "after", full.next)  # fmt: skip


@change
def stop(here: Site, request: Request, _: Form) -> Response:
    """Asks to stop the run at this address."""
    return done(here, lambda run: f"run {run.id}: the next tick stops it", api.stop_run, id_of(request))


@screen("texts.html")
def texts(here: Site, request: Request) -> Shown:
    """Shows the texts of a run in the table of a task's runs. They may be long, so they are loaded when opened."""
    with here.database.reading() as db:
        full = tasks.get_run(db, id_of(request), pieces=1)
    return {"run": full.run, "full": full, "hidden": here.settings.hide_args}


@screen("drops.html")
def drops(here: Site, request: Request) -> Shown:
    by, hours = asked(request, "by") or "reason", asked(request, "hours", one_of(*HOURS)) or "24"
    with here.database.reading() as db:
        now = entries.instant(db)
        counted = journal.drops(db, by=by, since=now - timedelta(hours=int(hours)), limit=DROPS)
        deleted = journal.deleted(db, [one.example.task_id for one in counted if one.example])
    return {
        "counted": counted, "now": now, "deleted": deleted, "by": by, "groups": journal.GROUPS, "hours": hours,
        "spans": HOURS, "is_full": len(counted) == DROPS,
    }  # fmt: skip
