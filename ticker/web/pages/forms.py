"""Serves the form for new and existing tasks, with a preview of the schedule while it is typed."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ticker.errors import BadInput, not_announced
from ticker.model import JSON_AT_MOST, Kind
from ticker.read import entries, overview, tasks
from ticker.registration import operations
from ticker.schedules import kinds
from ticker.schedules.duration import words
from ticker.schedules.interval import Interval
from ticker.tasks import checks, preview
from ticker.tasks.checks import json_value
from ticker.tasks.definition import has_usual_box, has_usual_tolerance
from ticker.tasks.fields import FIELDS, GROUPS, OF_NEW, SETTINGS, Task
from ticker.tasks.identity import NOBODY
from ticker.tasks.sorts import DURATION, Field, Sort
from ticker.web.api.fields import instant_in
from ticker.web.api.operation import text_in
from ticker.web.pages.phrases import as_json
from ticker.web.pages.screen import Form, Shown, id_of, one, report, screen
from ticker.web.pages.screen import change as changing
from ticker.web.site import OF_TASKS, Site

TIMES = 5
YES = "yes"

SCHEDULE = Field(
    Sort({}, ""), "Schedule", "", "An interval such as 5m, a cron expression, a systemd calendar event, or a time.", "5m   0 9 * * 1-5   Mon..Fri 09:00",
    name="schedule",
)  # fmt: skip
FUNCTION, ZONE, KWARGS = (FIELDS[name] for name in ("function", "zone", "kwargs"))
NAME, OWNER, FIRST = OF_NEW
WHOSE, WHEN = (OWNER, NAME), (SCHEDULE, ZONE)
MORE: Mapping[str, Sequence[Field]] = {
    group: [field for field in (FIRST, *SETTINGS.values()) if field.group == group] for group in GROUPS
}
ARGUMENTS = (FUNCTION, KWARGS, *(field for group in MORE.values() for field in group))
"""The fields whose values are arguments of `register`. `scheduled` reads those of the schedule."""
ARGUMENT_OF = dict.fromkeys(("expression", *checks.NAMES.values()), "schedule") | dict.fromkeys(
    ("owner_type", "owner_id"), "owner"
)
"""Maps these arguments to the field at which the form shows their errors."""
CONTROLS = {
    "function": FUNCTION, "whose": WHOSE, "when": WHEN, "kwargs": KWARGS, "groups": MORE,
}  # fmt: skip
"""The fields that `form.html` shows, group by group, for new and existing tasks."""


@screen("form.html")
def new(here: Site, _: Request) -> Shown:
    with here.database.reading() as db:
        return {"task": None, "functions": overview.functions(db), "filled": {}, "hidden": (), "more": False} | CONTROLS


@screen("form.html")
def edit(here: Site, request: Request) -> Shown:
    with here.database.reading() as db:
        task, functions = tasks.get(db, id_of(request)), overview.functions(db)
        now = entries.instant(db)
    hidden = (*(OF_TASKS if here.settings.hide_args else ()), FIRST.name)
    filled = {name: text for name, text in filled_in(task).items() if name not in hidden}
    return {
        "task": task, "functions": functions, "hidden": hidden,
        "filled": filled, "was": {name: digest(text) for name, text in filled.items()},
        "more": any(is_set(one, task, now) for group in MORE.values() for one in group if one.name not in hidden),
    } | CONTROLS  # fmt: skip


@screen("preview.html")
def previewed(here: Site, request: Request) -> Shown:
    """Explains the typed schedule in words, or shows its error. Stores nothing."""
    sent = {name: request.query_params.get(name, "").strip() for name in ("schedule", "zone", "during", "function")}
    text, function = sent["schedule"], sent["function"]
    with here.database.reading() as db:
        now, announced, tick = entries.instant(db), overview.functions(db), tasks.tick_ms(db)
    explained, problem = None, ""
    try:
        of_interval = {name: sent[name] or None for name in ("zone", "during")}
        explained = preview.validate(text, **of_interval, count=TIMES, now=now, tick_ms=tick) if text else None
    except BadInput as error:
        problem = str(error)
    return {
        "preview": explained,
        "problem": problem,
        "now": now,
        "unknown": not_announced("function", function, [one.name for one in announced]) if function else "",
    }


@changing
def create(here: Site, _: Request, form: Form) -> Response:
    """Registers a new task."""
    owner, name = one(form, "owner") or None, one(form, "name") or None
    with errors_of_the_form(), here.database.writing() as db:
        given = typed(form, None)
        function = given.pop("function", None)
        if function is None:
            raise BadInput("function", None, "is missing; write the name given to @task, such as mail.fetch")
        for there in tasks.list_tasks(db, name=name or function, owner=owner or NOBODY, limit=1):
            raise BadInput("name", there.name, f"already exists as task {there.id}; edit that one")
        task = operations.register(db, function, name=name, owner=owner, by=here.by, **given)
    return gone_to(here, task, "; ".join(("registered", *task.warnings)))


@changing
def change(here: Site, request: Request, form: Form) -> Response:
    """Writes the fields that differ from the values with which the form was filled."""
    with errors_of_the_form(), here.database.writing() as db:
        task = tasks.get(db, id_of(request))
        given = typed(form, task)
        task = operations.edit(db, task.id, by=here.by, **given) if given else task
    return gone_to(here, task, "changed" if given else "nothing was changed")


@contextmanager
def errors_of_the_form() -> Iterator[None]:
    """Maps the fields of errors to those of the form."""
    try:
        yield
    except BadInput as error:
        if error.field not in ARGUMENT_OF:
            raise
        raise BadInput(ARGUMENT_OF[error.field], error.value, error.problem) from None


def typed(form: Form, task: Task | None) -> dict[str, Any]:
    """Returns the arguments of `register` that were filled in or, for an existing task, those that were changed."""
    before = shown(form) if task else {}
    news = {name: one(form, name) for name in form if digest(one(form, name)) != before.get(name, digest(""))}
    given = {field.name: value_of(field, news[field.name]) for field in ARGUMENTS if field.name in news}
    if "schedule" in news or task is None:
        given |= scheduled(one(form, "schedule"), one(form, "zone"))
    elif "zone" in news:
        given |= zoned(task.kind, news["zone"])
    if task and "zone" not in news:
        given.pop("zone", None)  # another user may have changed it
    return given


def digest(text: str) -> str:
    """Returns the digest of a field's text, stripped and with uniform line endings, because browsers change both."""
    return hashlib.sha256("\n".join(text.strip().splitlines()).encode()).hexdigest()


def shown(form: Form) -> dict[str, str]:
    """Returns the digests of the values with which the form was filled. Another user may have changed the task since."""
    before = json_value("was", one(form, "was") or "{}")
    if not isinstance(before, dict):
        raise BadInput("was", None, "does not contain the values with which the form was filled; load the form again")
    return before


def scheduled(text: str, zone: str) -> dict[str, Any]:
    if not text:
        raise BadInput("schedule", None, "is missing; write 5m, 0 9 * * 1-5, Mon..Fri 09:00, or 2027-01-01T00:00:00Z")
    kind = kinds.detect(text, zone or None).kind
    return {checks.NAMES[kind]: text} | zoned(kind, zone)


def zoned(kind: Kind, zone: str) -> dict[str, Any]:
    if kind is not Kind.ONCE:
        return {"zone": zone or "UTC"}
    if zone:
        raise BadInput("zone", zone, "does not apply to a single time; leave it empty")
    return {}


def gone_to(here: Site, task: Task, result: str) -> Response:
    return report(f"{task.name}: {result}", f"{here.root}/tasks/{task.id}")


# ------------------------------------------------------------------------------------------- the texts of the fields


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


def value_of(field: Field, text: str) -> Any:
    """Returns the value in a form that `register` accepts. An empty field removes an optional limit. Raises BadInput."""
    if field is FIRST:
        return instant_in(field.name, text)
    match field.kind:
        case "json":
            return json_value(field.name, text or "{}")
        case "number":
            return text_in(field.name, field.schema, text or "0")
        case "flag" if text not in ("", YES):
            raise BadInput(field.name, text, f"is neither {YES} nor empty")
        case "flag":
            return text == YES
    return text or ("0" if field.schema is DURATION and field.default is None else "")


def as_text(column: str, value: Any) -> str:
    """Formats the value of a column as the form shows it and reads it back."""
    match value:
        case None | False:
            return ""
        case True:
            return YES
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case Mapping():
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
