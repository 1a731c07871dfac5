"""Shows the list of tasks, and one task with its form. Applies actions to one or many: pause, resume, run and others."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ticker.db import steps
from ticker.errors import BadInput, UnknownTask, not_announced
from ticker.model import JSON_AT_MOST, SCOPES, TASK_STATES, Kind
from ticker.read import entries, forecast, formatting, journal, overview, timeline
from ticker.read import tasks as read_tasks
from ticker.read.explain import counted
from ticker.read.why import why as read_why
from ticker.schedules import kinds
from ticker.schedules.duration import words
from ticker.schedules.interval import Interval
from ticker.tasks import bulk, checks, operations, preview, rows
from ticker.tasks.checks import json_value
from ticker.tasks.definition import has_usual_box, has_usual_tolerance
from ticker.tasks.fields import FIELDS, GROUPS, OF_NEW, SETTINGS, Task
from ticker.tasks.preview import Preview
from ticker.tasks.sorts import DURATION, Field, Schema, Sort
from ticker.web.api import handlers as api
from ticker.web.api.operation import ID, TEXT, check_required, one_of, text_in
from ticker.web.pages.phrases import as_json
from ticker.web.pages.screen import (
    ROWS,
    YES,
    Form,
    Shown,
    asked,
    change,
    fields_of,
    filters,
    id_of,
    one,
    paging,
    report,
    screen,
    value_of,
)
from ticker.web.site import HIDDEN, OF_TASKS, Site

TIMES = 10
OCCURRENCES = 20  # in the history, and in the chart
IN_THE_HEAD = frozenset({"subject", "state", "next run", "last run", "last outcome"})
STRETCH, MOST = timedelta(minutes=1), timedelta(days=366)  # of the chart: without an interval, and at most
MANY = 1000  # tasks of one request
NO_FILTERS = frozenset({"action", "after", "at", "back", "limit", "sort"})  # in the address of a list of tasks
ORDERS = {"failures": "most failures first", "lateness": "latest first"}
UNDONE = 300  # tasks of which an answer's headers name the ids


@screen("/tasks", "tasks.html", owned=True)
def tasks(here: Site, db: Any, request: Request) -> Shown | Response:
    """Shows the list of tasks, filtered by its address, with the recent outcomes of each task. With `at`, leads to that time of
    the task, if only one matches, and no other page may have more.
    """
    known = {
        name: schema for name, schema in api.OF_TASKS.items() if name in ("after", "sort") or name in where(request)
    }
    page: Shown = api.list_tasks(here, db, **filters(request, known), limit=ROWS)
    is_whole = page["next"] is None and "after" not in request.query_params
    if (at := asked(request, "at")) and is_whole and len(page["tasks"]) == 1:
        return RedirectResponse(f"{here.root}/tasks/{page['tasks'][0].id}?{urlencode({'at': at})}", 303)
    strips = overview.recent_outcomes(db, page["tasks"])
    shown = {"strips": strips, "states": TASK_STATES, "of_all": OF_ALL, "where": where(request)}
    shown |= {"functions": overview.functions(db), "sorts": ORDERS, "scopes": SCOPES}
    return page | shown | paging(request, "after", page["next"])


# ------------------------------------------------------------------------------------------------------ all that match

OF_ALL = {
    "run": ("Run", "Run {} now?"), "retry": ("Retry failed", "Retry {}?"), "pause": ("Pause", "Pause {}?"),
    "resume": ("Resume", "Resume {}?"), "enable": ("Enable", "Enable {}?"), "disable": ("Disable", "Disable {}?"),
    "delete": ("Delete", "Delete {}? The records of their runs are kept."),
}  # fmt: skip
"""The actions on all tasks that match, each with its label and its question about their number."""


def where(request: Request) -> dict[str, str]:
    """Returns the filters in the address as they are written there, even unknown ones, which `bulk` refuses."""
    others = {name: text.strip() for name, text in request.query_params.items() if name not in NO_FILTERS}
    given = {name: text for name, text in others.items() if text}
    if "owner" in given:  # it has a type, whatever else the form says
        given.pop("owner_type", None)
    return given


def of_all(request: Request) -> tuple[dict[str, Any], str]:
    """Returns the filter and the action in the address."""
    action = text_in("action", one_of(*OF_ALL), request.query_params.get("action", ""))
    return {name: asked(request, name, api.OF_TASKS.get(name, TEXT)) for name in where(request)}, action


@screen("/tasks/all", "all.html", owned=True)
def plan(here: Site, db: Any, request: Request) -> Shown:
    """Shows what an action would do with all tasks that match, and asks with their number. Changes nothing."""
    chosen, action = of_all(request)
    planned, (label, question) = bulk.plan(db, chosen, action, by=here.by), OF_ALL[action]
    return {
        "plan": planned,
        "label": label,
        "question": question.format(counted(planned.changed, "task")),
        "where": where(request),
    }


@change("/tasks/all", owned=True)
def do_with_all(here: Site, request: Request, form: Form) -> Response:
    """Applies the action to all tasks that match at that time, in steps of a thousand.

    Then leads to the list of the tasks, unless the form asks to `stay`.
    """
    chosen, action = of_all(request)
    with here.database.reading() as db:
        given = fields_of(db, form, ACTIONS[action].body if action in ACTIONS else None)
        is_undone = action in ACTIONS and ACTIONS[action].undo
        page = read_tasks.page_of_tasks(db, **chosen, limit=UNDONE) if is_undone else None
        before = page.tasks if page and page.next is None else ()  # a search may have ended before its last task
        done = bulk.bulk(db, chosen, action, apply=True, by=here.by, **given)
    address = "" if one(form, "stay") else f"{here.root}/tasks?{urlencode(where(request))}"
    return report(formatting.bulk_in_words(done), address, undoing(action, before))


# ------------------------------------------------------------------------------------------------------------- the form

PREVIEWED = 5

SCHEDULE = Field(
    Sort({}, ""), "Schedule", "", "An interval such as 5m, a cron expression, a systemd calendar event, or a time.", "5m   0 9 * * 1-5   Mon..Fri 09:00",
    name="schedule",
)  # fmt: skip
FUNCTION, ZONE = FIELDS["function"], FIELDS["zone"]
PASSED = FIELDS["args"], FIELDS["kwargs"]
NAME, OWNER, FIRST = OF_NEW
WHOSE, WHEN = (OWNER, NAME), (SCHEDULE, ZONE)
MORE: Mapping[str, Sequence[Field]] = {
    group: [field for field in (FIRST, *SETTINGS.values()) if field.group == group] for group in GROUPS
}
ARGUMENTS = (FUNCTION, *PASSED, *(field for group in MORE.values() for field in group))
"""The fields whose values are arguments of `register`, without those of the schedule."""
EMPTY = {"zone": "UTC"} | {one.name: "0" for one in ARGUMENTS if one.schema is DURATION and one.default is None}
"""The values of fields whose emptiness means something else than an empty text."""
CONTROLS = {
    "function": FUNCTION, "whose": WHOSE, "when": WHEN, "passed": PASSED, "groups": MORE,
}  # fmt: skip
"""The fields that `form.html` shows, group by group, for new and existing tasks."""


@screen("/tasks/new", "form.html")
def new(_: Site, db: Any, __: Request) -> Shown:
    return {"task": None, "functions": overview.functions(db), "filled": {}, "hidden": (), "more": False} | CONTROLS


@screen("/tasks/{id}/edit", "form.html")
def edit(here: Site, db: Any, request: Request) -> Shown:
    task, functions = read_tasks.get(db, id_of(request)), overview.functions(db)
    now = entries.instant(db)
    is_kept = steps.run(db, rows.keeps_subject(task.owner_type))
    hidden = (*(OF_TASKS if here.settings.hide_args else ()), *(["subject"] if is_kept else []), FIRST.name)
    filled = {name: text for name, text in filled_in(task).items() if name not in hidden}
    return {
        "task": task, "functions": functions, "hidden": hidden,
        "filled": filled, "was": {name: digest(text) for name, text in filled.items()},
        "more": any(is_set(one, task, now) for group in MORE.values() for one in group if one.name not in hidden),
    } | CONTROLS  # fmt: skip


@screen("/tasks/preview", "preview.html")
def previewed(_: Site, db: Any, request: Request) -> Shown:
    """Explains the typed schedule in words, or shows its error. Stores nothing."""
    sent = {name: request.query_params.get(name, "").strip() for name in ("schedule", "zone", "during", "function")}
    text, function = sent["schedule"], sent["function"]
    now, announced, tick = entries.instant(db), overview.functions(db), read_tasks.tick_ms(db)
    explained, problem = None, ""
    try:
        of_interval = {name: sent[name] or None for name in ("zone", "during")}
        with errors_of_the_form():
            explained = preview.validate(text, **of_interval, count=PREVIEWED, now=now, tick_ms=tick) if text else None
    except BadInput as error:
        problem = str(error)
    return {
        "preview": explained,
        "problem": problem,
        "now": now,
        "unknown": not_announced("function", function, [one.name for one in announced]) if function else "",
    }


@change("/tasks/create")
def create(here: Site, _: Request, form: Form) -> Response:
    """Registers a new task."""
    with errors_of_the_form(), here.database.writing() as db:
        given = typed(db, form, api.REGISTER["properties"], None)
        check_required(given, api.REGISTER)
        for there in api.tasks_named(db, **given):
            raise BadInput("name", there.name, f"already exists as task {there.id}; edit that one")
        task = operations.register(db, **given, by=here.by)
    return gone_to(here, task, "; ".join(("registered", *task.warnings)))


@change("/tasks/{id}/change")
def save(here: Site, request: Request, form: Form) -> Response:
    """Writes the fields that differ from the values with which the form was filled."""
    with errors_of_the_form(), here.database.writing() as db:
        task = read_tasks.get(db, id_of(request))
        given = typed(db, form, api.EDIT["properties"], task)
        task = operations.edit(db, task.id, by=here.by, **given) if given else task
    return gone_to(here, task, "changed" if given else "nothing was changed")


@contextmanager
def errors_of_the_form() -> Iterator[None]:
    """Shows the errors of all schedules at the form's only field for them."""
    try:
        yield
    except BadInput as error:
        if error.field not in ("expression", *checks.NAMES.values()):
            raise
        raise BadInput(SCHEDULE.name, error.value, error.problem) from None


def typed(db: Any, form: Form, known: Mapping[str, Schema], task: Task | None) -> dict[str, Any]:
    """Returns the known fields that were filled in or, for an existing task, those that were changed."""
    before = shown(form) if task else {}
    news = {name: one(form, name) for name in form if digest(one(form, name)) != before.get(name, digest(""))}
    given = {
        name: value_of(db, name, known[name], text or EMPTY.get(name, ""))
        for name, text in news.items()
        if name in known
    }
    kind = task.kind if task else None
    if task is None or SCHEDULE.name in news:
        kind = kind_of(text := one(form, SCHEDULE.name))
        given[checks.NAMES[kind]] = text
    zone = one(form, ZONE.name)
    if kind is Kind.ONCE and zone and news.keys() & {SCHEDULE.name, ZONE.name}:
        raise BadInput(ZONE.name, zone, "does not apply to a single time; leave it empty")
    return given


def kind_of(text: str) -> Kind:
    """Returns the kind of the schedule that was typed. Raises BadInput."""
    if not text:
        problem = "is missing; write 5m, 0 9 * * 1-5, Mon..Fri 09:00, or 2027-01-01T00:00:00Z"
        raise BadInput(SCHEDULE.name, None, problem)
    return kinds.detect(text).kind


def digest(text: str) -> str:
    """Returns the digest of a field's text, stripped and with uniform line endings, because browsers change both."""
    return hashlib.sha256("\n".join(text.strip().splitlines()).encode()).hexdigest()


def shown(form: Form) -> dict[str, str]:
    """Returns the digests of the values with which the form was filled. Another user may have changed the task since."""
    before = json_value("was", one(form, "was") or "{}")
    if not isinstance(before, dict):
        raise BadInput("was", None, "does not contain the values with which the form was filled; load the form again")
    return before


def gone_to(here: Site, task: Task, result: str) -> Response:
    return report(f"{task.name}: {result}", f"{here.root}/tasks/{task.id}")


def filled_in(task: Task) -> dict[str, str]:
    """Returns the contents of the form's fields for a task."""
    is_interval = task.kind is Kind.INTERVAL
    schedule = Interval(task.every_ms, most_ms=task.every_most_ms).text if is_interval else task.expression
    texts = {one.name: as_text(one.column, getattr(task, one.column)) for one in ARGUMENTS if one is not FIRST}
    return texts | {"schedule": schedule, "zone": "" if task.zone == "UTC" else task.zone}


def is_set(field: Field, task: Task, now: datetime) -> bool:
    """Returns whether the field differs from its default."""
    match field.name:
        case "tolerance":
            return not has_usual_tolerance(task)
        case "box":
            return not has_usual_box(task, now)
    return as_text(field.column, getattr(task, field.column)) != as_text(field.column, field.default)


def as_text(column: str, value: Any) -> str:
    """Formats the value of a column as the form shows it and reads it back."""
    match value:
        case None | False:
            return ""
        case True:
            return YES
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case Mapping() | list():
            return as_object(value) if value else ""
        case tuple():
            return ", ".join(value)
        case int() if column.endswith("_ms"):
            return words(value)
    return str(value)


def as_object(value: Any) -> str:
    """Formats an object over several lines, unless it would then exceed the size limit."""
    text = as_json(value)
    return text if len(text.encode()) <= JSON_AT_MOST else json.dumps(value, ensure_ascii=False)


# ------------------------------------------------------------------------------------------------------------- one task


@screen("/tasks/{id}", "task.html", owned=True)
def task(here: Site, db: Any, request: Request) -> Shown:
    """Shows a task, or the history of a deleted one: now, or around a time (`at`). Raises UnknownTask if no record of it is
    left.
    """
    wanted = id_of(request)
    why = read_why(db, wanted, at=asked(request, "at", api.AROUND["at"]), limit=OCCURRENCES)
    shown = {"why": why, "sentences": sorted(why.next, key=forecast.is_of_now)}
    if why.task is None:
        gone = journal.deleted(db, [wanted])[wanted]
        return shown | {"task": None, "gone": gone}
    failed = next((line.run for line in why.lines[::-1] if line.run and formatting.tone(line.what) == "bad"), None)
    warnings, tick = overview.warned(db, why.task).warnings, read_tasks.tick_ms(db)
    chart = "" if why.at else timeline.svg(here.hide(why), stretch(why.task), OCCURRENCES)
    return shown | {
        "task": why.task, "times": times(why.task, why.now, tick), "warnings": warnings,
        "details": details(here, why.task), "chart": Markup(chart), "failed": failed,
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
    """Returns the details of the task that its head does not show, with hidden values replaced."""
    values = {name: value for name, value in formatting.details(task).items() if name not in IN_THE_HEAD}
    if here.settings.hide_args:
        values |= {name: HIDDEN for name in ("arguments", "cursor", "metadata") if values.get(name)}
    return {name: value for name, value in values.items() if value not in ("", None)}


# ------------------------------------------------------------------------------------------------------------ actions


@dataclass(frozen=True, slots=True)
class Action:
    """`work` acts on a task, with the fields of `body` that were filled in. `result` describes what was done.

    `leaves`: the task's own screen no longer exists afterwards. `undo` is the action that undoes it, for a task of which
    `changes` is true."""

    result: str
    work: Callable[..., Any]
    body: Schema | None = None
    leaves: bool = False
    undo: str = ""
    changes: Callable[[Task], bool] = bool


ACTIONS: Mapping[str, Action] = {
    "pause": Action("paused", api.pause_task, api.PAUSE, undo="resume", changes=lambda task: task.paused_by is None),
    "resume": Action("resumed", lambda here, db, task: operations.resume(db, task, by=here.by)),
    "run": Action("planned to run at the next tick, or after the run at work", api.run_task),
    "enable": Action("enabled", lambda here, db, task: operations.edit(db, task, enabled=True, by=here.by)),
    "disable": Action(
        "disabled",
        lambda here, db, task: operations.edit(db, task, enabled=False, by=here.by),
        undo="enable",
        changes=lambda task: task.enabled,
    ),
    "delete": Action("deleted", api.delete_task, leaves=True),
}


@change("/tasks/{id}/do", owned=True)
def do(here: Site, request: Request, form: Form) -> Response:
    """Applies the action to the task at this address."""
    wanted, task = action(form), id_of(request)
    with here.database.writing() as db:
        before = overview.tasks_by_id(db, [task])
        wanted.work(here, db, task, **fields_of(db, form, wanted.body))
    address = f"{here.root}/tasks" if wanted.leaves else ""
    return report(f"task {task}: {wanted.result}", address, undoing(one(form, "action"), before))


@change("/tasks/do", owned=True)
def do_with_many(here: Site, _: Request, form: Form) -> Response:
    """Applies the action to the marked tasks in one transaction. Skips tasks that were deleted meanwhile or cannot run."""
    wanted, marks, count, refused = action(form), marked(form), 0, list[BadInput]()
    with here.database.writing() as db:
        given, before = fields_of(db, form, wanted.body), overview.tasks_by_id(db, marks)
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
    return report(f"{counted(count, 'task')}: {wanted.result}{skipped}", undo=undoing(one(form, "action"), before))


def undoing(name: str, before: Sequence[Task]) -> Shown | None:
    """Returns the form that undoes an action on tasks as they were, or None if nothing does, or they are too many."""
    if (done := ACTIONS.get(name)) is None or not done.undo or len(before) > UNDONE:
        return None
    ids = [task.id for task in before if done.changes(task)]
    return {"path": "/tasks/do", "values": {"action": done.undo, "id": ids}} if ids else None


def action(form: Form) -> Action:
    return ACTIONS[text_in("action", one_of(*ACTIONS), one(form, "action"))]


def marked(form: Form) -> set[int]:
    texts = form.get("id", [])
    if not texts or len(texts) > MANY:
        raise BadInput("id", len(texts), f"tasks are marked; mark 1 to {MANY}")
    return {text_in("id", ID, text) for text in texts}
