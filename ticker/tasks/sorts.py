"""Defines a field of a task, and the sorts of values that fields take."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ticker.engine import timing
from ticker.model import NAME_AT_MOST, TEXT_AT_MOST
from ticker.tasks import checks
from ticker.tasks.checks import Check

Schema = Mapping[str, Any]
"""JSON Schema, as plain data."""


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort of value: its JSON Schema, its name in the CLI, and the check that returns the value for the column.

    Fields without a check form the schedule. They are checked together.
    """

    schema: Schema
    metavar: str
    check: Check | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a task. `column` defaults to its name, and `default` is the column's value in a new task.

    `label` and `group` place it on the page's form. The form has separate places for fields without a group. `option`
    declares the CLI's option, if that is not `--name`.
    """

    sort: Sort
    label: str
    group: str
    says: str
    placeholder: str = ""
    column: str = ""
    default: Any = None
    option: str = ""
    name: str = ""

    @property
    def schema(self) -> Schema:
        return self.sort.schema

    @property
    def kind(self) -> str:
        """The kind of input on the form: choice, flag, json, number or text."""
        kinds = {"boolean": "flag", "object": "json", "array": "json", "integer": "number"}
        return "choice" if "enum" in self.schema else kinds.get(self.schema.get("type", ""), "text")

    @property
    def is_schedule(self) -> bool:
        """Whether the field is part of the schedule."""
        return self.sort.check is None


def text(metavar: str, *examples: str) -> Sort:
    return Sort({"type": "string", **({"examples": list(examples)} if examples else {})}, metavar)


def integer(least: int, most: int) -> Sort:
    return Sort({"type": "integer", "minimum": least, "maximum": most}, "N", checks.integer(least, most))


def limit(most: int) -> Sort:
    return Sort({"type": "integer", "minimum": 0, "maximum": most}, "N", checks.limit(most))


def choice(*meanings: str) -> Sort:
    return Sort({"type": "string", "enum": checks.words(meanings)}, "", checks.one_of(*meanings))


DURATION: Schema = {"anyOf": [{"type": "string"}, {"type": "number"}], "examples": ["30s", "1h30m", "PT5M", 90]}
INTERVAL: Schema = {**DURATION, "examples": ["30s", "1h30m", "PT5M", "1m..30m", 90]}
TIME: Schema = {"anyOf": [{"type": "string"}, {"type": "number"}], "examples": ["2027-01-01T09:00:00Z"]}
NAME = Sort({"type": "string", "minLength": 1, "maxLength": NAME_AT_MOST}, "NAME", checks.plain)
LABEL = Sort({"type": "string", "maxLength": NAME_AT_MOST}, "NAME", checks.label)
PROSE = Sort({"type": "string", "maxLength": TEXT_AT_MOST}, "TEXT", checks.prose)
OBJECT = Sort({"type": "object"}, "JSON", checks.json_object)
POSITIONAL = Sort({"type": "array"}, "JSON", checks.positional)
ARGUMENTS = Sort({"type": "object"}, "JSON", checks.arguments)
FLAG = Sort({"type": "boolean"}, "", checks.flag)
HOURS = Sort({"type": "string", "examples": ["9-17 mon-fri", "22-6 sat,sun"]}, "HOURS", checks.during)
BOUND = Sort(TIME, "TIME", checks.bound)
LIMITED_SPAN = Sort(DURATION, "DURATION", checks.span_or_none(timing.SHORTEST_INTERVAL))
KEYS = Sort(
    {"anyOf": [{"type": "array", "items": {"type": "string"}, "maxItems": checks.KEYS_AT_MOST}, {"type": "string"}]},
    "KEY,KEY",
    checks.keys,
)
OWNER = Sort({"type": "string", "pattern": f"^[^:]{{1,{NAME_AT_MOST}}}:.{{1,{NAME_AT_MOST}}}$"}, "TYPE:ID")
INSTANT = Sort({"type": "string", "format": "date-time"}, "TIME")
