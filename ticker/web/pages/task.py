"""One task: its next times, why it ran or did not, its chart, and its last runs."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from markupsafe import Markup
from starlette.requests import Request

from ticker.errors import BadInput
from ticker.read import formatting, journal, overview, tasks, timeline
from ticker.read import why as read_why
from ticker.tasks import preview
from ticker.tasks.fields import Task
from ticker.web.pages.screen import Shown, id_of, screen
from ticker.web.site import HIDDEN, Site

TIMES = 10
RUNS = 20
LEAST, MOST = timedelta(minutes=1), timedelta(days=366)  # of the chart


@screen("task.html")
def task(here: Site, request: Request) -> Shown:
    """Shows a task, or the history of a deleted one. Raises UnknownTask if no record of it is left."""
    wanted = id_of(request)
    with here.database.reading() as db:
        why = read_why.why(db, wanted)
        runs = tasks.list_runs(db, task=wanted, limit=RUNS)
        if why.task is None:
            gone = journal.deleted(db, [wanted])[wanted]
            return {"task": None, "gone": gone, "why": why, "now": why.now, "runs": runs}
        drawn = timeline.of(db, wanted, since=stretch(why.task), now=why.now, why=why)
        warnings = overview.warned(db, why.task).warnings
    chart = replace(drawn, lines=tuple(replace(line, words=here.words(line)) for line in drawn.lines))
    return {
        "task": why.task, "why": why, "now": why.now, "runs": runs, "times": times(why.task, why.now), "warnings": warnings,
        "details": details(here, why.task), "chart": Markup(timeline.svg(chart)),
    }  # fmt: skip


def times(found: Task, now: datetime) -> preview.Preview | None:
    """None where a hand has spoilt the row."""
    try:
        return preview.of_task(found, now, TIMES)
    except BadInput:
        return None


def stretch(found: Task) -> timedelta:
    """How far back the chart looks: some twelve intervals, or twelve times as far as the next time lies behind the last."""
    every = timedelta(milliseconds=found.stretched_ms or found.every_ms)
    if not every and found.next_run and found.last_run:
        every = found.next_run - found.last_run
    return min(max(12 * every, LEAST), MOST)


def details(here: Site, found: Task) -> dict[str, Any]:
    """What was said of the task, but for what is to be hidden."""
    said = formatting.details(found)
    if here.settings.hide_args:
        said |= {name: HIDDEN for name in ("arguments", "cursor", "metadata") if said.get(name)}
    return {name: value for name, value in said.items() if value not in ("", None)}
