"""Shows the list of tasks, and one task, and applies actions to one or many: pause, resume, run and others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from ticker.errors import BadInput, UnknownTask
from ticker.model import TASK_STATES
from ticker.read import entries, forecast, formatting, journal, overview, timeline
from ticker.read import tasks as read_tasks
from ticker.read.explain import counted
from ticker.read.tasks import late_since
from ticker.read.why import why as read_why
from ticker.registration import operations
from ticker.tasks.fields import Task
from ticker.tasks.preview import Preview
from ticker.web.api import tasks as api
from ticker.web.api.fields import ID, Schema, one_of
from ticker.web.api.operation import text_in
from ticker.web.pages.screen import ROWS, Form, Shown, change, fields_of, filters, id_of, one, paging, report, screen
from ticker.web.site import HIDDEN, Site

TIMES = 10
RUNS = 20
STRETCH, MOST = timedelta(minutes=1), timedelta(days=366)  # of the chart: without an interval, and at most
MANY = 1000  # tasks of one request


@screen("tasks.html")
def tasks(here: Site, request: Request) -> Shown:
    """Shows the list of tasks, filtered by its address, with the recent outcomes of each task."""
    given = filters(request, api.FILTERS) | {"limit": ROWS}
    if given.get("owner"):  # it has a type, whatever else the form says
        given.pop("owner_type", None)
    with here.database.reading() as db:
        page = api.list_tasks(here, db, **given)
        strips = overview.recent_outcomes(db, page["tasks"])
        now = entries.instant(db)
    return page | {
        "strips": strips, "now": now, "overdue": {task.id: overdue(task, now) for task in page["tasks"]},
        "states": TASK_STATES,
    } | paging(request, "after", page["next"])  # fmt: skip


def overdue(task: Task, now: datetime) -> str:
    """Returns `late`, or `limited` if the task waits for room under its limits. Otherwise returns an empty text."""
    return "late" if late_since(task, now) is not None else "limited" if task.is_held_back else ""


@screen("task.html")
def task(here: Site, request: Request) -> Shown:
    """Shows a task, or the history of a deleted one. Raises UnknownTask if no record of it is left."""
    wanted = id_of(request)
    with here.database.reading() as db:
        why = read_why(db, wanted)
        runs = journal.list_runs(db, task=wanted, limit=RUNS)
        if why.task is None:
            gone = journal.deleted(db, [wanted])[wanted]
            return {"task": None, "gone": gone, "why": why, "now": why.now, "runs": runs}
        warnings, tick = overview.warned(db, why.task).warnings, read_tasks.tick_ms(db)
    chart = timeline.svg(here.hide(why), stretch(why.task))
    return {
        "task": why.task, "why": why, "now": why.now, "runs": runs, "times": times(why.task, why.now, tick), "warnings": warnings,
        "details": details(here, why.task), "chart": Markup(chart),
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
    return min(12 * every or STRETCH, MOST)


def details(here: Site, task: Task) -> dict[str, Any]:
    """Returns the details of the task, with hidden values replaced."""
    values = formatting.details(task)
    if here.settings.hide_args:
        values |= {name: HIDDEN for name in ("arguments", "cursor", "metadata") if values.get(name)}
    return {name: value for name, value in values.items() if value not in ("", None)}


# ------------------------------------------------------------------------------------------------------------ actions


@dataclass(frozen=True, slots=True)
class Action:
    """`work` acts on a task, with the fields of `body` that were filled in. `result` describes what was done.

    `leaves`: the task's own screen no longer exists afterwards."""

    result: str
    work: Callable[..., Any]
    body: Schema | None = None
    leaves: bool = False


ACTIONS: Mapping[str, Action] = {
    "pause": Action("paused", api.pause_task, api.PAUSE),
    "resume": Action("resumed", lambda here, db, task: operations.resume(db, task, by=here.by)),
    "run": Action("planned to run at the next tick, or after the run at work", api.run_task),
    "enable": Action("enabled", lambda here, db, task: operations.edit(db, task, enabled=True, by=here.by)),
    "disable": Action("disabled", lambda here, db, task: operations.edit(db, task, enabled=False, by=here.by)),
    "delete": Action("deleted", api.delete_task, leaves=True),
}


@change
def do(here: Site, request: Request, form: Form) -> Response:
    """Applies the action to the task at this address."""
    wanted, task = action(form), id_of(request)
    with here.database.writing() as db:
        wanted.work(here, db, task, **fields_of(db, form, wanted.body))
    return report(f"task {task}: {wanted.result}", f"{here.root}/tasks" if wanted.leaves else "")


@change
def do_with_many(here: Site, _: Request, form: Form) -> Response:
    """Applies the action to the marked tasks in one transaction. Skips tasks that were deleted meanwhile or cannot run."""
    wanted, marks, count, refused = action(form), marked(form), 0, list[BadInput]()
    with here.database.writing() as db:
        given = fields_of(db, form, wanted.body)
        for task in sorted(marks):
            try:
                changed = wanted.work(here, db, task, **given)
                count += len(changed) if isinstance(changed, list) else 1
            except UnknownTask:
                continue
            except BadInput as error:
                if error.field != "task":
                    raise
                refused.append(error)
    such = "" if len(refused) == 1 else ", for example"
    skipped = f"; {len(refused)} skipped{such}: {refused[0].value} {refused[0].problem}" if refused else ""
    return report(f"{counted(count, 'task')}: {wanted.result}{skipped}")


def action(form: Form) -> Action:
    return ACTIONS[text_in("action", one_of(*ACTIONS), one(form, "action"))]


def marked(form: Form) -> set[int]:
    texts = form.get("id", [])
    if not texts or len(texts) > MANY:
        raise BadInput("id", len(texts), f"tasks are marked; mark 1 to {MANY}")
    return {text_in("id", ID, text) for text in texts}
