"""Runs and drops as they ended, one with all that is kept of it, and the drops counted by what they have in common."""

from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request

from ticker import ledger, lines, record, status
from ticker.errors import BadInput
from ticker.record import Key
from ticker.task import Outcome, Reason
from ticker.web.pages.screen import LARGEST_ID, ROWS, Shown, asked, filtered, id_of, screen
from ticker.web.site import HIDDEN, Site

DROPS = 50
HOURS = {"1": "the last hour", "24": "the last day", "168": "the last week"}


@screen("runs.html")
def runs(here: Site, request: Request) -> Shown:
    wanted = {name: asked(request, name) for name in ("owner", "owner_type", "outcome", "reason")}
    task = asked(request, "task")
    with here.database.reading() as db:
        chosen = record.select(db, task=int(task) if task and task.isdigit() else task, **wanted)  # type: ignore[arg-type]
        page = record.page(db, chosen, before=key_in(asked(request, "before")), limit=ROWS)
        now = lines.instant(status.on(db))
    following = filtered(request, before=key_text(page.next)) if page.next else ""
    return {
        "lines": page.lines, "now": now, "following": following, "wanted": wanted | {"task": task},
        "outcomes": list(Outcome), "reasons": list(Reason), "first": filtered(request, before=None) if asked(request, "before") else "",
    }  # fmt: skip


@screen("run.html")
def run(here: Site, request: Request) -> Shown:
    with here.database.reading() as db:
        found = status.get_run(db, id_of(request))
        now = lines.instant(status.on(db))
        words = ledger.told(status.on(db), None, [found.run], [], now)[0].words
    result = HIDDEN if here.settings.hide_args and found.run.result is not None else found.run.result
    return {"full": found, "run": found.run, "words": words, "now": now, "result": result}


@screen("drops.html")
def drops(here: Site, request: Request) -> Shown:
    by, hours = asked(request, "by") or "reason", asked(request, "hours") or "24"
    if hours not in HOURS:
        raise BadInput("hours", hours, f"is none of: {', '.join(HOURS)}")
    with here.database.reading() as db:
        now = lines.instant(status.on(db))
        counted = record.drops(db, by=by, since=now - timedelta(hours=int(hours)), limit=DROPS)
    return {"counted": counted, "now": now, "by": by, "groups": record.GROUPS, "hours": hours, "spans": HOURS}


def key_text(key: Key) -> str:
    """A cursor as it stands in an address: microseconds since 1970, what it was, and its id."""
    at, sort, id_ = key
    return f"{(at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)}-{sort}-{id_}"


def key_in(text: str | None) -> Key | None:
    """BadInput for what is no cursor of ours."""
    if text is None:
        return None
    parts: list[Any] = text.split("-")
    if len(parts) == 3 and parts[1] in ("run", "event") and all(p.isascii() and p.isdigit() for p in parts[::2]):
        microseconds, id_ = int(parts[0][:20]), int(parts[2][:20])
        if microseconds < 250_000_000_000_000_000 and id_ <= LARGEST_ID:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds), parts[1], id_
    raise BadInput("before", text, "is no place in this list; begin at its first page")
