"""Fills the fields of a task's form from a task, and reads them back."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ticker.errors import BadInput
from ticker.model import JSON_AT_MOST, Kind
from ticker.schedules.duration import words
from ticker.schedules.interval import Interval
from ticker.tasks.checks import json_value
from ticker.tasks.definition import has_usual_box, has_usual_tolerance
from ticker.tasks.fields import FIELDS, GROUPS, OF_NEW, SETTINGS, Task
from ticker.tasks.sorts import DURATION, Field, Sort
from ticker.web.api.fields import instant_in
from ticker.web.api.reading import text_in
from ticker.web.pages.phrases import as_json

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
"""The fields whose values are arguments of `register`. `forms.scheduled` reads those of the schedule."""


def filled(task: Task) -> dict[str, str]:
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


def read(field: Field, text: str) -> Any:
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
