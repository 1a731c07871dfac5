"""Returns the statements from ticker/db/sql that operations yield."""

from typing import Any

from ticker import settings
from ticker.db import drivers, sql
from ticker.db.steps import JSON_COLUMNS, Query
from ticker.tasks.fields import DEFAULTS, Task

COMPUTED = {
    "pause": "{note_of_pause t}", "is_resuming": "{is_resuming t}", "is_held_back": "coalesce({held_back t}, false)", "unknown_function": "{unknown_function t}", "tick_ms": "{tick_ms}",
}  # fmt: skip
"""The columns of `{task}` that are rules, not columns of the table."""


def _column(name: str) -> str:
    return COMPUTED.get(name, f"t.{name}::text" if name in JSON_COLUMNS else f"t.{name}")


_OF_TASK = (*(name for name in Task.__dataclass_fields__ if name != "warnings"), "registered", "declared_in", "tick_ms")

LISTS = (
    ("settings", sql.listed(DEFAULTS, "t")),
    ("task", ", ".join(f"{_column(name)} AS {name}" for name in _OF_TASK)),
    ("restored", drivers.RESTORED),
)
"""Lists of columns: the fields that `ticker.tasks.fields` declares, those of a `Task`, and one that restores the
search_path.
"""


def query(name: str, /, **parameters: Any) -> Query:
    """Returns a statement for the configured schema, with its parameters."""
    return Query(sql.statements(settings.current().schema, LISTS)[name], parameters)
