"""The fields of a task's form: what the API takes, with a label, and how each is filled from a task and read again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ticker.errors import BadInput
from ticker.model import JSON_AT_MOST, Kind, Task
from ticker.schedules.duration import words
from ticker.tasks.checks import COLUMNS, json_value
from ticker.tasks.definition import DEFAULTS, has_usual_box, has_usual_tolerance
from ticker.web.api.fields import Schema
from ticker.web.api.reading import text_in, value_in
from ticker.web.api.task_fields import DURATION, NEW
from ticker.web.pages.phrases import as_json

SAID: Mapping[str, Schema] = NEW["properties"]
YES = "yes"


@dataclass(frozen=True, slots=True)
class Control:
    """One field of the form. `first`, owner and name are of new tasks alone: they have no column to be filled from."""

    name: str
    label: str
    hint: str
    schema: Schema
    placeholder: str = ""

    @property
    def column(self) -> str:
        return COLUMNS.get(self.name, self.name)

    @property
    def default(self) -> Any:
        return DEFAULTS.get(self.column)

    @property
    def sort(self) -> str:
        """Which control it has: choice, flag, json, number or text."""
        sorts = {"boolean": "flag", "object": "json", "integer": "number"}
        return "choice" if "enum" in self.schema else sorts.get(self.schema.get("type", ""), "text")

    def filled(self, task: Task) -> str:
        return as_text(self.column, getattr(task, self.column))

    def is_set(self, task: Task, now: datetime) -> bool:
        """Whether it differs from what it is where nobody says anything."""
        match self.name:
            case "tolerance":
                return not has_usual_tolerance(task)
            case "box":
                return not has_usual_box(task, now)
        return self.filled(task) != as_text(self.column, self.default)

    def read(self, text: str) -> Any:
        """As `register` takes it; an emptied field takes away what can be taken away. BadInput."""
        if self.name == "first":
            return value_in(self.name, self.schema, text)
        match self.sort:
            case "json":
                return json_value(self.name, text or "{}")
            case "number":
                return text_in(self.name, self.schema, text or "0")
            case "flag" if text not in ("", YES):
                raise BadInput(self.name, text, f"is neither {YES} nor empty")
            case "flag":
                return text == YES
        return text or ("0" if DURATION.items() <= self.schema.items() and self.default is None else "")


def control(name: str, label: str, hint: str = "", placeholder: str = "") -> Control:
    """Of what the API takes, which describes it unless the form has a hint of its own."""
    return Control(name, label, hint or SAID[name]["description"], SAID[name], placeholder)


FUNCTION = control("function", "Function", "The name that @task has.", "mail.fetch")
WHOSE = (
    control("owner", "Owner", "type:id; empty for a task of nobody's.", "mail_channels:5"),
    control("name", "Name"),
)
WHEN = (
    Control("schedule", "Schedule", "5m, cron, a calendar event of systemd, or a time.", {}, "5m   0 9 * * 1-5   Mon..Fri 09:00"),
    control("zone", "Zone", placeholder="Europe/Berlin"),
)  # fmt: skip
KWARGS = control("kwargs", "Arguments", "A JSON object of up to 64 kB.", '{"channel_id": 5}')
FIRST = control("first", "First time", placeholder="2027-01-01T09:00:00Z")
MORE: Mapping[str, tuple[Control, ...]] = {
    "When": (
        FIRST,
        control("starts", "Starts", "No time before it; empty: no bound.", "2027-01-01T09:00:00Z"),
        control("ends", "Ends", "No time behind it; empty: no bound.", "2027-12-31T18:00:00+01:00"),
        control("max_runs", "Runs at most"),
        control("catch_up", "Catch up"),
        control("remove", "Remove", "With a single time: whether the task is deleted after its success."),
        control("spread", "Spread"),
        control("within", "Within", placeholder="2h"),
    ),
    "How it runs": (
        control("queue", "Queue"),
        control("tolerance", "Tolerance"),
        control("box", "Time box", "How long a run may last; half the interval by default."),
        control("overlap", "Overlap"),
    ),
    "After failures": (
        control("retries", "Retries"),
        control("backoff", "Back-off"),
        control("stretch", "Stretch"),
        control("pause_after", "Pause after"),
        control("probe", "Probe", "How long that pauses, until a single run decides; an hour by default."),
        control("dead_man", "Missing success"),
    ),
    "For people": (
        control("keep", "Records"),
        control("subject", "Subject", "For those who read the list."),
        control("description", "Description"),
        control("group", "Group"),
        control("submitter", "Submitter"),
        control("priority", "Priority", "From -1000 to 1000: which of an owner's tasks goes first in a full queue."),
        control("metadata", "Metadata"),
    ),
}
ARGUMENTS = (FUNCTION, KWARGS, *(one for fields in MORE.values() for one in fields))
"""Those that are arguments of `register` as they are; the schedule is put together of two."""


def filled(task: Task) -> dict[str, str]:
    """The texts of the fields as they stand for a task."""
    schedule = words(task.every_ms) if task.kind is Kind.INTERVAL else task.expression
    texts = {one.name: one.filled(task) for one in ARGUMENTS if one is not FIRST}
    return texts | {"schedule": schedule, "zone": "" if task.zone == "UTC" else task.zone}


def as_text(column: str, value: Any) -> str:
    """What stands in a column, as the form shows it and reads it again."""
    match value:
        case None | False:
            return ""
        case True:
            return YES
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case Mapping():
            return as_object(value) if value else ""
        case int() if column.endswith("_ms"):
            return words(value)
    return str(value)


def as_object(value: Any) -> str:
    """Spread over lines, unless these would take more room than the object may have."""
    text = as_json(value)
    return text if len(text.encode()) <= JSON_AT_MOST else json.dumps(value, ensure_ascii=False)
