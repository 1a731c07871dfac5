"""Identifies the owner of a task, and the task or run that an argument names."""

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from ticker.db import drivers
from ticker.errors import BadInput
from ticker.model import LARGEST_ID, NAME_AT_MOST
from ticker.tasks import checks, mapped
from ticker.tasks.fields import Task
from ticker.tasks.rows import query

CONTROL = frozenset(
    {"Cc", "Cs", "Zl", "Zp"}
)  # PostgreSQL's [[:cntrl:]] in any locale, and characters that UTF-8 cannot encode

Ref = Task | int | str | None


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner: the full name of its table, and its key as a string. Both are empty for a task without an owner."""

    type: str
    id: str

    def __post_init__(self) -> None:
        if (self.type, self.id) != ("", ""):
            check_text("owner_type", self.type)
            check_text("owner_id", self.id)

    def __str__(self) -> str:
        return f"{self.type}:{self.id}"


NOBODY = Owner("", "")


def identify(owner: object) -> Owner:
    """Returns the Owner for None, an Owner, a pair of strings, a string `type:id`, or a mapped or Django object.

    A pending mapped object is flushed first.
    """
    if owner is None:
        return NOBODY
    if isinstance(owner, Owner):
        return owner
    names = owner.split(":", 1) if isinstance(owner, str) else owner
    if isinstance(names, tuple | list) and len(names) == 2:
        if (named := Owner(*names)) == NOBODY:
            raise BadInput("owner", tuple(names), "is empty; use None for no owner")
        return named
    if (found := mapped.owner_of(owner)) is None:
        raise BadInput(
            "owner", owner, "is not an owner; pass a mapped or Django object, a pair of strings or a string type:id"
        )
    table, type_ = found.table, found.table.full_name
    if type_ in mapped.PER_SCHEMA:
        with mapped.in_its_session(owner):
            type_ = f"{schema_on(found.connection, table.schema, table.name)}.{table.name}"
    return Owner(type_, key_text(found.key))


def key_text(key: Sequence[tuple[str, object]]) -> str:
    """Returns a key as PostgreSQL prints it: key::text, or json_build_array(...)::text for several columns."""
    values = [str(value) if isinstance(value, UUID) else value for _, value in key]
    for column, value in key:
        if isinstance(value, bool | Enum) or not isinstance(value, int | str | UUID):
            raise BadInput(column, value, "is not an int, str or UUID; write the owner as a pair of strings")
    return str(values[0]) if len(values) == 1 else json.dumps(values, ensure_ascii=False)


def schema_on(db: Any, where: str | None, table: str) -> str:
    """Returns the schema in which a connection of SQLAlchemy or Django finds a table.

    `where` is the schema in the table's declaration.
    """
    if hasattr(db, "vendor"):
        db.cursor().close()  # django-tenants sets the search_path when a cursor is opened
    else:
        where = (db.get_execution_options().get("schema_translate_map") or {}).get(where, where)
    if where or (getattr(db, "vendor", "") or db.dialect.name) != "postgresql":  # on SQLite, nothing is installed
        return where or "public"
    asked, driver = query("schema_of", table=table), drivers.of(db)
    with driver.transaction(writes=False):
        rows = driver.fetch(asked.text, asked.parameters)
    if rows:
        return str(rows[0]["schema"])
    raise BadInput("table", table, "is in no schema of the connection's search_path; use the connection of a tenant")


def check_text(field: str, value: object) -> None:
    if not isinstance(value, str):
        raise BadInput(field, value, f"is not a string, but of type {type(value).__name__}")
    if not 0 < len(value) <= NAME_AT_MOST:
        raise BadInput(field, value, f"has {len(value)} characters; 1 to {NAME_AT_MOST} are allowed")
    if not value.isprintable() and any(unicodedata.category(character) in CONTROL for character in value):
        raise BadInput(field, value, f"has a control character; 1 to {NAME_AT_MOST} printable characters are allowed")


def id_or_name(task: Ref) -> int | str | None:
    """Returns the task's id or name, checked. Raises BadInput."""
    if isinstance(task, Task):
        return task.id
    if isinstance(task, str):
        return checks.plain("task", task)
    if isinstance(task, bool) or not isinstance(task, int | None):
        raise BadInput("task", task, "is not a task, an id or a name")
    if task is not None and not 0 < task <= LARGEST_ID:
        raise BadInput("task", task, "is not an id: ids are whole numbers from 1")
    return task


def run_id(run: int) -> int:
    """Returns the id of a run, checked. Raises BadInput."""
    if not isinstance(ref := id_or_name(run), int):
        raise BadInput("run", run, "is not a run's id; list_runs returns the ids")
    return ref
