"""Returns the statements from ticker/db/sql that operations yield."""

from typing import Any

from ticker import settings
from ticker.db import sql
from ticker.db.steps import JSON_COLUMNS, Query
from ticker.tasks.fields import DEFAULTS, Task

_OF_TASK = (*(name for name in Task.__dataclass_fields__ if name != "warnings"), "registered", "declared_in")

LISTS = (
    ("settings", sql.listed(DEFAULTS, "t")),
    ("task", ", ".join(f"t.{name}::text AS {name}" if name in JSON_COLUMNS else f"t.{name}" for name in _OF_TASK)),
)
"""Lists of columns: those of the fields that `ticker.tasks.fields` declares, and those that make a `Task`."""


def query(name: str, /, **parameters: Any) -> Query:
    """Returns a statement for the configured schema, with its parameters."""
    return Query(sql.statements(settings.current().schema, LISTS)[name], parameters)
