"""Shows one task: its next times, why it ran or did not, its chart, and its last runs."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from markupsafe import Markup
from starlette.requests import Request

from ticker.errors import BadInput
from ticker.read import forecast, formatting, journal, overview, tasks, timeline
from ticker.read import why as read_why
from ticker.tasks.fields import Task
from ticker.tasks.preview import Preview
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
        runs = journal.list_runs(db, task=wanted, limit=RUNS)
        if why.task is None:
            gone = journal.deleted(db, [wanted])[wanted]
            return {"task": None, "gone": gone, "why": why, "now": why.now, "runs": runs}
        drawn = timeline.of(db, wanted, since=stretch(why.task), now=why.now, why=why)
        warnings, tick = overview.warned(db, why.task).warnings, tasks.tick_ms(db)
    chart = replace(drawn, lines=tuple(replace(line, words=here.words(line)) for line in drawn.lines))
    return {
        "task": why.task, "why": why, "now": why.now, "runs": runs, "times": times(why.task, why.now, tick), "warnings": warnings,
        "details": details(here, why.task), "chart": Markup(timeline.svg(chart)),
    }  # fmt: skip


def times(task: Task, now: datetime, tick_ms: int | None) -> Preview | None:
    """Returns the next times, or None if the row was edited by hand and is invalid."""
    try:
        return forecast.next_times(task, now, TIMES, tick_ms)
    except BadInput:
        return None


def stretch(task: Task) -> timedelta:
    """Returns how far back the chart goes: twelve intervals, or twelve times the span from the last run to the next."""
    every = timedelta(milliseconds=task.interval_ms)
    if not every and task.next_run and task.last_run:
        every = task.next_run - task.last_run
    return min(max(12 * every, LEAST), MOST)


def details(here: Site, task: Task) -> dict[str, Any]:
    """Returns the details of the task, with hidden values replaced."""
    values = formatting.details(task)
    if here.settings.hide_args:
        values |= {name: HIDDEN for name in ("arguments", "cursor", "metadata") if values.get(name)}
    return {name: value for name, value in values.items() if value not in ("", None)}
