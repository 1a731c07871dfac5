"""Shows the outcomes of the tasks of a filter, or of one owner, over time. Runs, pauses and resumes the tasks of an owner."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from ticker.errors import UnknownTask
from ticker.model import LARGEST_ID
from ticker.read import formatting, journal, owners
from ticker.read import grid as read_grid
from ticker.read.explain import counted
from ticker.read.grid import Grid
from ticker.read.overview import OccurrenceStatus
from ticker.tasks.sorts import Schema
from ticker.web.api import handlers as api
from ticker.web.api.operation import OWNER, one_of, text_in
from ticker.web.pages import phrases
from ticker.web.pages.screen import (
    ROWS,
    Form,
    Shown,
    asked,
    change,
    done,
    fields_of,
    filters,
    one,
    paging,
    screen,
)
from ticker.web.site import Site

CURSOR: Schema = {"type": "integer", "minimum": -read_grid.SORTED, "maximum": LARGEST_ID - 1}
LAST_RUNS = 10
LABELS = 4
SHORT = 120  # characters of a mark's label
DRAWN_LAST = {"bad": 2, "warn": 1}  # what is worse is drawn over what is better


@screen("/tasks/grid", "grid.html", owned=True)
def grid(here: Site, db: Any, request: Request) -> Shown:
    """Shows the tasks of a filter, the worst first, with a mark for each of their occurrences."""
    others = "after", "limit", "sort"
    wanted = filters(request, {name: schema for name, schema in api.OF_TASKS.items() if name not in others})
    if "owner" in wanted:  # it has a type, whatever else the form says
        wanted.pop("owner_type", None)
    return drawn(here, db, request, **wanted)


@screen("/owners/one", "owner.html", owned=True)
def owner(here: Site, db: Any, request: Request) -> Shown:
    """Shows one owner: its tasks, and its last runs, which may be those of deleted tasks."""
    named = text_in("owner", OWNER, request.query_params.get("owner", ""))
    status = owners.owner_status(db, named)
    last = journal.page(db, journal.select(db, owner=named)._replace(events=False), limit=LAST_RUNS).lines
    if status is None and not last:
        raise UnknownTask(f"owner {named} has no tasks, and no records of any")
    deleted = journal.deleted(db, [line.task_id for line in last])
    return drawn(here, db, request, owner=named) | {"owner": named, "status": status, "lines": last, "deleted": deleted}


def drawn(here: Site, db: Any, request: Request, **wanted: Any) -> Shown:
    """Returns the data for the macro `grid`."""
    span = asked(request, "span", one_of(*read_grid.SPANS)) or "1h"
    seen = read_grid.grid(db, span=span, after=asked(request, "after", CURSOR) or 0, limit=ROWS, **wanted)
    others = {name: request.query_params[name] for name in wanted}
    labels = [seen.begin + (seen.end - seen.begin) * part / LABELS for part in range(LABELS)]
    return {
        "grid": seen, "rows": {task.id: row(here, seen, seen.marks[task.id]) for task in seen.tasks}, "span": span,
        "spans": list(read_grid.SPANS), "others": others, "labels": labels, "most": read_grid.MARKS,
    } | paging(request, "after", seen.next)  # fmt: skip


def row(here: Site, seen: Grid, statuses: Sequence[OccurrenceStatus]) -> Markup:
    """Returns the marks of a task as SVG. They are at a share of its width, so that they keep their shape."""
    inner = "".join(marks(f"{escape(here.root)}/runs/", seen, statuses))
    return Markup(f'<svg class="row" height="24" aria-hidden="true" focusable="false">{inner}</svg>')


def marks(runs: str, seen: Grid, statuses: Sequence[OccurrenceStatus]) -> Iterator[str]:
    def x(at: datetime) -> str:
        return f"{100 * ((at - seen.begin) / (seen.end - seen.begin)):.2f}%"

    if len(statuses) == read_grid.MARKS:
        yield f'<text x="{x(statuses[0].due)}" dx="-12" y="17">←</text>'
    for status in sorted(statuses, key=lambda status: DRAWN_LAST.get(formatting.tone(status.outcome), 0)):
        what = status.outcome or status.state
        label = escape(phrases.status(status, seen.end)[:SHORT])
        yield (
            f'<a href="{runs}{status.run_id}" tabindex="-1"><text class="{formatting.tone(what)}" x="{x(status.due)}" y="17">'
            f"{phrases.mark(what)}<title>{label}</title></text></a>"
        )


# ------------------------------------------------------------------------------------------------- all tasks of an owner

ACTIONS = {
    "run": (api.run_owner, "planned to run at the next tick"),
    "pause": (api.pause_owner, "paused"), "resume": (api.resume_owner, "resumed"),
}  # fmt: skip


@change("/owners/do")
def do_with_all(here: Site, _: Request, form: Form) -> Response:
    """Runs, pauses or resumes all tasks of an owner."""
    named = text_in("owner", OWNER, one(form, "owner"))
    operation, result = ACTIONS[text_in("action", one_of(*ACTIONS), one(form, "action"))]

    def says(answer: Any) -> str:
        return f"{counted(len(answer.get('tasks', answer.get('run_ids'))), 'task')} of {named}: {result}"

    return done(here, says, operation, named, **fields_of(None, form, operation.body))
