"""Identifies the owner of a task. Imports SQLAlchemy only to inspect an object, and never imports Django."""

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from ticker.db import drivers
from ticker.errors import BadInput
from ticker.model import NAME_AT_MOST
from ticker.tasks.queries import query

CONTROL = frozenset(
    {"Cc", "Cs", "Zl", "Zp"}
)  # PostgreSQL's [[:cntrl:]] in any locale, and characters that UTF-8 cannot encode

PER_SCHEMA: set[str] = set()
"""The tables that `owners.per_schema` declares. The type of their owners is SCHEMA.table."""


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner: the full name of its table, and its key as a string. Both are empty for a task without an owner."""

    type: str
    id: str

    def __post_init__(self) -> None:
        if (self.type, self.id) != ("", ""):
            check_text("owner_type", self.type)
            check_text("owner_id", self.id)


NOBODY = Owner("", "")


def identify(owner: object) -> Owner:
    """Returns the Owner for None, an Owner, a pair of strings, a string `type:id`, or a mapped or Django object.

    A pending mapped object is flushed first.
    """
    if owner is None:
        return NOBODY
    if isinstance(owner, Owner):
        return owner
    if isinstance(owner, str) and ":" in owner:
        return _named(*owner.split(":", 1))
    if isinstance(owner, tuple | list) and len(owner) == 2:
        return _named(*owner)
    from ticker.tasks import django_models

    if (names := django_models.named(owner)) is not None:
        return Owner(*names)
    from ticker.tasks import mapped  # imports SQLAlchemy, which is loaded if the object is mapped

    if (names := mapped.named(owner)) is not None:
        return Owner(*names)
    raise BadInput(
        "owner", owner, "is not an owner; pass a mapped or Django object, a pair of strings or a string type:id"
    )


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


def _named(type_: str, id_: str) -> Owner:
    owner = Owner(type_, id_)
    if owner == NOBODY:
        raise BadInput("owner", (type_, id_), "is empty; use None for no owner")
    return owner


def check_text(field: str, value: object) -> None:
    if not isinstance(value, str):
        raise BadInput(field, value, f"is not a string, but of type {type(value).__name__}")
    if not 0 < len(value) <= NAME_AT_MOST:
        raise BadInput(field, value, f"has {len(value)} characters; 1 to {NAME_AT_MOST} are allowed")
    if any(unicodedata.category(character) in CONTROL for character in value):
        raise BadInput(field, value, f"has a control character; 1 to {NAME_AT_MOST} printable characters are allowed")
