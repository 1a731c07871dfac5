"""Runs and drops as they ended, one with all that is kept of it, and the drops counted by what they have in common."""

from datetime import timedelta
from typing import Any

from starlette.requests import Request

from ticker import numbers
from ticker.db import steps
from ticker.errors import BadInput, UnknownTask
from ticker.model import Outcome, Reason
from ticker.read import entries, journal, tasks, why
from ticker.read.journal import Wanted
from ticker.web.api import bookmarks
from ticker.web.api.fields import owner_in
from ticker.web.pages.screen import ROWS, Shown, as_id, asked, id_of, paging, screen
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
    is_nobodys = is_name(wanted["task"]) and wanted["owner"] is None
    return {
        "lines": page.lines, "now": now, "deleted": deleted, "wanted": wanted,
        "task_id": chosen.task_id, "is_nobodys": is_nobodys,
        "outcomes": list(Outcome), "reasons": list(Reason),
    } | paging(request, "before", page.next and bookmarks.of_key(page.next))  # fmt: skip


def select(db: Any, *, task: str | None, owner: str | None, **others: Any) -> Wanted:
    """What the filter's fields ask for; a name that nobody's task has is most often one of an owner's."""
    who = None if owner is None else owner_in("owner", owner)
    named = as_id("task", task) if task and not is_name(task) else task
    try:
        return journal.select(db, task=named, owner=who, **others)
    except UnknownTask as error:
        if owner is not None:
            raise UnknownTask(f"{error} now; one that was deleted is found by its id, or by its owner alone") from None
        raise UnknownTask(f"{error} without an owner; for an owner's task give its owner, too, or its id") from None


def is_name(task: str | None) -> bool:
    """Whether it names a task; digits are an id."""
    return task is not None and not task.isdecimal()


@screen("run.html")
def run(here: Site, request: Request) -> Shown:
    with here.database.reading() as db:
        after = asked(request, "after", bookmarks.of_task) or 0
        full = tasks.get_run(db, id_of(request), pieces=PIECES, after=after)
        now = entries.instant(db)
        words = here.words(steps.run(db, why.run_lines(None, [full.run], [], now))[0])
        deleted = journal.deleted(db, [full.run.task_id])
    found = here.shown(full)
    return {
        "full": found, "run": found.run, "words": words, "now": now, "deleted": deleted, "hidden": here.settings.hide_args,
        "goes_on": any(one.state != "ended" for one in (full.run, *full.attempts, *full.pieces)),
    } | paging(request, "after", full.next)  # fmt: skip


@screen("texts.html")
def texts(here: Site, request: Request) -> Shown:
    """What a run left in words, for the table of a task's runs: asked for once somebody opens it, as it may be long."""
    with here.database.reading() as db:
        found = here.shown(tasks.get_run(db, id_of(request), pieces=1))
    return {"run": found.run, "full": found, "hidden": here.settings.hide_args}


def told_in(field: str, text: str) -> int:
    return numbers.whole(field, text, 0, journal.AFTER_AT_MOST)


@screen("drops.html")
def drops(here: Site, request: Request) -> Shown:
    by, hours, told = (
        asked(request, "by") or "reason",
        asked(request, "hours") or "24",
        asked(request, "after", told_in) or 0,
    )
    if hours not in HOURS:
        raise BadInput("hours", hours, f"is none of: {', '.join(HOURS)}")
    with here.database.reading() as db:
        now = entries.instant(db)
        found = journal.drops(db, by=by, since=now - timedelta(hours=int(hours)), limit=DROPS + 1, after=told)
        deleted = journal.deleted(db, [one.example.task_id for one in found if one.example])
    return {
        "counted": found[:DROPS], "now": now, "deleted": deleted, "by": by, "groups": journal.GROUPS, "hours": hours, "spans": HOURS,
        "told": told,
    } | paging(request, "after", told + DROPS if len(found) > DROPS else None)  # fmt: skip
