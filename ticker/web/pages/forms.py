"""New and changed tasks: a form, with what the schedule means while it is typed."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ticker.errors import BadInput
from ticker.model import Kind
from ticker.read import entries, overview, tasks
from ticker.registration import operations
from ticker.schedules import kinds
from ticker.tasks import checks, preview
from ticker.tasks.checks import json_value
from ticker.tasks.fields import Task
from ticker.tasks.identity import NOBODY
from ticker.web.pages import fields
from ticker.web.pages.actions import BY, said
from ticker.web.pages.screen import Form, Shown, asked, id_of, screen
from ticker.web.pages.screen import change as changing
from ticker.web.site import OF_TASKS, Site

TIMES = 5
ARGUMENT_OF = dict.fromkeys(("expression", *checks.NAMES.values()), "schedule") | dict.fromkeys(
    ("owner_type", "owner_id"), "owner"
)
"""Where the form shows an error of these."""
CONTROLS = {
    "function": fields.FUNCTION, "whose": fields.WHOSE, "when": fields.WHEN, "kwargs": fields.KWARGS, "groups": fields.MORE,
}  # fmt: skip
"""What `form.html` draws, group by group, whether it is of a new task or of one that is there."""


@screen("form.html")
def new(here: Site, _: Request) -> Shown:
    with here.database.reading() as db:
        return {"task": None, "functions": overview.functions(db), "filled": {}, "hidden": (), "more": False} | CONTROLS


@screen("form.html")
def edit(here: Site, request: Request) -> Shown:
    with here.database.reading() as db:
        task, functions = tasks.get(db, id_of(request)), overview.functions(db)
        now = entries.instant(db)
    hidden = (*(OF_TASKS if here.settings.hide_args else ()), fields.FIRST.name)
    filled = {name: text for name, text in fields.filled(task).items() if name not in hidden}
    return {
        "task": task, "functions": functions, "hidden": hidden,
        "filled": filled, "was": {name: digest(text) for name, text in filled.items()},
        "more": any(fields.is_set(one, task, now) for group in fields.MORE.values() for one in group if one.name not in hidden),
    } | CONTROLS  # fmt: skip


@screen("preview.html")
def previewed(here: Site, request: Request) -> Shown:
    """What is typed, in words; an error is shown as what it is, and nothing is stored."""
    text, function = asked(request, "schedule"), asked(request, "function")
    with here.database.reading() as db:
        now, announced = entries.instant(db), overview.functions(db)
    found, problem = None, ""
    try:
        found = preview.validate(text, zone=asked(request, "zone"), count=TIMES, now=now) if text else None
    except BadInput as error:
        problem = str(error)
    return {
        "found": found,
        "problem": problem,
        "now": now,
        "unknown": overview.unknown(function, announced) if function else "",
    }


@changing
def create(here: Site, _: Request, form: Form) -> Response:
    """Registers a task that is new."""
    owner, name = one(form, "owner") or None, one(form, "name") or None
    with beside_fields(), here.database.writing() as db:
        given = typed(form, None)
        function = given.pop("function", None)
        if function is None:
            raise BadInput("function", None, "is missing; write the name that @task has, such as mail.fetch")
        for there in tasks.list_tasks(db, name=name or function, owner=owner or NOBODY, limit=1):
            raise BadInput("name", there.name, f"is there already, as task {there.id}; edit that one")
        task = operations.register(db, function, name=name, owner=owner, by=BY, **given)
    return gone_to(here, task, "registered")


@changing
def change(here: Site, request: Request, form: Form) -> Response:
    """Writes what differs from what the form was filled with."""
    with beside_fields(), here.database.writing() as db:
        task = tasks.get(db, id_of(request))
        given = typed(form, task)
        task = operations.edit(db, task.id, by=BY, **given) if given else task
    return gone_to(here, task, "changed" if given else "nothing was changed")


@contextmanager
def beside_fields() -> Iterator[None]:
    """Errors under the names of the form's fields."""
    try:
        yield
    except BadInput as error:
        if error.field not in ARGUMENT_OF:
            raise
        raise BadInput(ARGUMENT_OF[error.field], error.value, error.problem) from None


def typed(form: Form, task: Task | None) -> dict[str, Any]:
    """The arguments of `register`: what was filled in; of a task that is there, what differs from what the form showed."""
    before = shown(form) if task else {}
    news = {name: one(form, name) for name in form if digest(one(form, name)) != before.get(name, digest(""))}
    given = {field.name: fields.read(field, news[field.name]) for field in fields.ARGUMENTS if field.name in news}
    if "schedule" in news or task is None:
        given |= scheduled(one(form, "schedule"), one(form, "zone"))
    elif "zone" in news:
        given |= zoned(task.kind, news["zone"])
    if task and "zone" not in news:
        given.pop("zone", None)  # somebody else may have said another
    return given


def digest(text: str) -> str:
    """Of a field's text as it comes back: without what stands around it, its lines ended in one way."""
    return hashlib.sha256("\n".join(text.strip().splitlines()).encode()).hexdigest()


def shown(form: Form) -> dict[str, str]:
    """The digests of what the form was filled with: somebody else may have changed the task since."""
    before = json_value("was", one(form, "was") or "{}")
    if not isinstance(before, dict):
        raise BadInput("was", None, "is not what the form was filled with; load it again")
    return before


def scheduled(text: str, zone: str) -> dict[str, Any]:
    if not text:
        raise BadInput("schedule", None, "is missing; write 5m, 0 9 * * 1-5, Mon..Fri 09:00, or 2027-01-01T00:00:00Z")
    kind = kinds.detect(text, zone or None).kind
    return {checks.NAMES[kind]: text} | zoned(kind, zone)


def zoned(kind: Kind, zone: str) -> dict[str, Any]:
    if kind in (Kind.CRON, Kind.CALENDAR):
        return {"zone": zone or "UTC"}
    if zone:
        raise BadInput("zone", zone, "has no meaning beside an interval or a single time; leave it empty")
    return {}


def one(form: Form, name: str) -> str:
    return form.get(name, [""])[0].strip()


def gone_to(here: Site, task: Task, told: str) -> Response:
    return said(f"{task.name}: {told}", f"{here.root}/tasks/{task.id}")
