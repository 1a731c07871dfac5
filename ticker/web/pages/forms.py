"""New and changed tasks: a form, with what the schedule means while it is typed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ticker import lines, overview, preview, registration, status
from ticker.checks import json_value
from ticker.errors import BadInput
from ticker.identity import NOBODY
from ticker.schedules import kinds
from ticker.schedules.duration import words
from ticker.task import Kind, Task
from ticker.web.pages.actions import said
from ticker.web.pages.phrases import as_json
from ticker.web.pages.screen import Form, Shown, asked, id_of, screen
from ticker.web.pages.screen import change as changing
from ticker.web.site import Site

TIMES = 5
SCHEDULES = {Kind.INTERVAL: "every", Kind.CRON: "cron", Kind.CALENDAR: "calendar", Kind.ONCE: "at"}
TEXTS = ("queue", "tolerance", "box", "overlap", "backoff", "keep", "subject", "description")
NUMBERS = ("retries",)
MAY_BE_EMPTY = {"subject", "description"}
FIELDS = dict.fromkeys(("expression", *SCHEDULES.values()), "schedule") | dict.fromkeys(
    ("owner_type", "owner_id"), "owner"
)
"""Where the form shows an error of these."""


@screen("form.html")
def new(here: Site, _: Request) -> Shown:
    with here.database.reading() as db:
        return {"task": None, "functions": overview.functions(db), "filled": {}, "hidden": False}


@screen("form.html")
def edit(here: Site, request: Request) -> Shown:
    with here.database.reading() as db:
        task, functions = status.get(db, id_of(request)), overview.functions(db)
    hidden = here.settings.hide_args
    fields = {name: text for name, text in filled(task).items() if not (hidden and name == "kwargs")}
    return {"task": task, "functions": functions, "filled": fields, "hidden": hidden}


@screen("preview.html")
def previewed(here: Site, request: Request) -> Shown:
    """What is typed, in words; an error is shown as what it is, and nothing is stored."""
    text, function = asked(request, "schedule"), asked(request, "function")
    with here.database.reading() as db:
        now, known = lines.instant(status.on(db)), [function.name for function in overview.functions(db)]
    unknown = bool(function and known and function not in known)
    found, problem = None, ""
    try:
        found = preview.validate(text, zone=asked(request, "zone"), count=TIMES, now=now) if text else None
    except BadInput as error:
        problem = str(error)
    return {"found": found, "problem": problem, "unknown": unknown, "known": known, "function": function, "now": now}


@changing
def create(here: Site, request: Request, form: Form) -> Response:
    """Registers a task that is new."""
    function, owner, name = (one(form, field) or None for field in ("function", "owner", "name"))
    if function is None:
        raise BadInput("function", None, "is missing; write the name that @task has, such as mail.fetch")
    with beside_fields(), here.database.writing() as db:
        given = typed({field: values for field, values in form.items() if any(values)}, None)
        for there in status.list_tasks(db, name=name or function, owner=owner or NOBODY, limit=1):
            raise BadInput("name", there.name, f"is there already, as task {there.id}; edit that one")
        task = registration.register(db, function, name=name, owner=owner, **given)
    return gone_to(request, task, "registered")


@changing
def change(here: Site, request: Request, form: Form) -> Response:
    """Writes what differs from what the form was filled with."""
    with beside_fields(), here.database.writing() as db:
        task = status.get(db, id_of(request))
        given = typed(form, task)
        task = registration.edit(db, task.id, **given) if given else task
    return gone_to(request, task, "changed")


@contextmanager
def beside_fields() -> Iterator[None]:
    """Errors under the names of the form's fields."""
    try:
        yield
    except BadInput as error:
        if error.field not in FIELDS:
            raise
        raise BadInput(FIELDS[error.field], error.value, error.problem) from None


def typed(form: Form, task: Task | None) -> dict[str, Any]:
    """The arguments of `register`: what was filled in; of a task that is there, what differs from what the form showed."""
    before = shown(form) if task else {}
    news = {name: one(form, name) for name in form if one(form, name) != before.get(name, "")}
    for name in news.keys() & {*TEXTS, *NUMBERS} - MAY_BE_EMPTY:
        if not news[name]:
            raise BadInput(name, None, "is empty; write what it shall be")
    given: dict[str, Any] = {name: news[name] for name in TEXTS if name in news}
    given |= {name: whole(name, news[name]) for name in NUMBERS if name in news}
    if "kwargs" in news:
        given["kwargs"] = json_value("kwargs", news["kwargs"] or "{}")
    if "schedule" in news or "zone" in news or task is None:
        given |= scheduled(one(form, "schedule"), one(form, "zone"))
    return given


def shown(form: Form) -> dict[str, str]:
    """What the form was filled with: somebody else may have changed the task since."""
    before = json_value("was", one(form, "was") or "{}")
    if not isinstance(before, dict):
        raise BadInput("was", None, "is not what the form was filled with; load it again")
    return before


def scheduled(text: str, zone: str) -> dict[str, Any]:
    if not text:
        raise BadInput("schedule", None, "is missing; write 5m, 0 9 * * 1-5, Mon..Fri 09:00, or 2027-01-01T00:00:00Z")
    found = kinds.detect(text, zone or None)
    if found.kind in (Kind.CRON, Kind.CALENDAR):
        return {SCHEDULES[found.kind]: text, "zone": zone or "UTC"}
    if zone:
        raise BadInput("zone", zone, "has no meaning beside an interval or a single time; leave it empty")
    return {SCHEDULES[found.kind]: text}


def filled(task: Task) -> dict[str, str]:
    """The fields of the form as they stand for a task."""
    return {
        "function": task.function, "name": task.name, "owner": task.owner,
        "schedule": words(task.every_ms) if task.kind is Kind.INTERVAL else task.expression,
        "zone": "" if task.zone == "UTC" else task.zone, "queue": task.queue, "tolerance": words(task.tolerance_ms),
        "box": words(task.box_ms), "overlap": task.overlap, "retries": str(task.retries), "backoff": task.backoff,
        "keep": task.keep, "subject": task.subject, "description": task.description,
        "kwargs": as_json(task.kwargs),
    }  # fmt: skip


def one(form: Form, name: str) -> str:
    return form.get(name, [""])[0].strip()


def whole(field: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadInput(field, text, "is no whole number")
    return int(text)


def gone_to(request: Request, task: Task, told: str) -> Response:
    return said(f"{task.name}: {told}", f"{request.scope.get('root_path', '')}/tasks/{task.id}")
