"""Shows the journal, one run in full, and counts of drops. Stops a run."""

from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ticker import numbers
from ticker.db import steps
from ticker.errors import BadInput, UnknownTask
from ticker.model import Outcome, Reason
from ticker.read import entries, journal, tasks, why
from ticker.read.journal import Wanted
from ticker.registration import stops
from ticker.web.api import bookmarks
from ticker.web.api.fields import owner_in
from ticker.web.pages.actions import BY, report
from ticker.web.pages.screen import ROWS, Form, Shown, as_id, asked, change, id_of, paging, screen
from ticker.web.site import Site

DROPS = 50
PIECES = 100
HOURS = {"1": "the last hour", "24": "the last day", "168": "the last week"}


@screen("runs.html")
def runs(here: Site, request: Request) -> Shown:
    wanted = {name: asked(request, name) for name in ("task", "owner", "owner_type", "outcome", "reason")}
    with here.database.reading() as db:
        chosen = select(db, **wanted)
        page = journal.page(db, chosen, before=asked(request, "before", bookmarks.key_in), limit=ROWS)
        now, deleted = entries.instant(db), journal.deleted(db, [line.task_id for line in page.lines])
    is_ownerless = is_name(wanted["task"]) and wanted["owner"] is None
    return {
        "lines": page.lines, "now": now, "deleted": deleted, "wanted": wanted,
        "task_id": chosen.task_id, "is_ownerless": is_ownerless,
        "outcomes": list(Outcome), "reasons": list(Reason),
    } | paging(request, "before", page.next and bookmarks.of_key(page.next))  # fmt: skip


def select(db: Any, *, task: str | None, owner: str | None, **others: Any) -> Wanted:
    """Returns the selection that the filter describes. Suggests an owner if no task without an owner has the name."""
    who = None if owner is None else owner_in("owner", owner)
    named = as_id("task", task) if task and not is_name(task) else task
    try:
        return journal.select(db, task=named, owner=who, **others)
    except UnknownTask as error:
        if owner is not None:
            raise UnknownTask(f"{error} now; a deleted one is found by its id, or by its owner alone") from None
        raise UnknownTask(f"{error} without an owner; for an owner's task, add its owner or use its id") from None


def is_name(task: str | None) -> bool:
    """Returns whether this is a name. A string of digits is an id."""
    return task is not None and not task.isdecimal()


@screen("run.html")
def run(here: Site, request: Request) -> Shown:
    with here.database.reading() as db:
        after = asked(request, "after", bookmarks.of_task) or 0
        full = tasks.get_run(db, id_of(request), pieces=PIECES, after=after)
        now = entries.instant(db)
        words = here.words(steps.run(db, why.run_lines(None, [full.run], [], now))[0])
        deleted = journal.deleted(db, [full.run.task_id])
    shown = here.shown(full)
    return {
        "full": shown, "run": shown.run, "words": words, "now": now, "deleted": deleted, "hidden": here.settings.hide_args,
        "goes_on": any(one.state != "ended" for one in (full.run, *full.attempts, *full.pieces)),
    } | paging(request, "after", full.next)  # fmt: skip


@change
def stop(here: Site, request: Request, _: Form) -> Response:
    """Asks to stop the run at this address."""
    run = id_of(request)
    with here.database.writing() as db:
        stops.stop(db, run, by=BY)
    return report(f"run {run}: the next tick stops it")


@screen("texts.html")
def texts(here: Site, request: Request) -> Shown:
    """Shows the texts of a run in the table of a task's runs. They may be long, so they are loaded when opened."""
    with here.database.reading() as db:
        shown = here.shown(tasks.get_run(db, id_of(request), pieces=1))
    return {"run": shown.run, "full": shown, "hidden": here.settings.hide_args}


def offset_in(field: str, text: str) -> int:
    return numbers.whole(field, text, 0, journal.AFTER_AT_MOST)


@screen("drops.html")
def drops(here: Site, request: Request) -> Shown:
    by, hours, offset = (
        asked(request, "by") or "reason",
        asked(request, "hours") or "24",
        asked(request, "after", offset_in) or 0,
    )
    if hours not in HOURS:
        raise BadInput("hours", hours, f"is not one of: {', '.join(HOURS)}")
    with here.database.reading() as db:
        now = entries.instant(db)
        counted = journal.drops(db, by=by, since=now - timedelta(hours=int(hours)), limit=DROPS + 1, after=offset)
        deleted = journal.deleted(db, [one.example.task_id for one in counted if one.example])
    return {
        "counted": counted[:DROPS], "now": now, "deleted": deleted, "by": by, "groups": journal.GROUPS, "hours": hours, "spans": HOURS,
        "offset": offset,
    } | paging(request, "after", offset + DROPS if len(counted) > DROPS else None)  # fmt: skip
