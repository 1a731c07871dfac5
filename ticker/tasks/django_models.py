"""Reads owners that are rows of Django models. Never imports Django, as an application with models has already loaded
it.
"""

import sys
from typing import Any

from ticker.errors import BadInput
from ticker.tasks.identity import PER_SCHEMA, key_text, schema_on


def named(owner: Any) -> tuple[str, str] | None:
    """Returns the type and the id of a saved instance of a model, or None if `owner` is not an instance."""
    if (table := described(owner.__class__)) is None:
        return None
    values = [(field, getattr(owner, field.attname)) for field in owner._meta.pk_fields]
    if owner._state.adding or any(value is None for _, value in values):
        raise BadInput("owner", owner.__class__.__name__, "has no row in the database; save it first")
    connection = sys.modules["django.db"].connections[owner._state.db or "default"]
    type_, where, name, *_ = table
    if type_ in PER_SCHEMA:
        type_ = f"{schema_on(connection, where, name)}.{name}"
    return type_, key_text([(field.column, field.get_db_prep_value(value, connection)) for field, value in values])


def described(model: Any) -> tuple[str, str | None, str, tuple[str, ...], frozenset[str]] | None:
    """Returns a model's table: full name, schema (as in db_table = 'crm"."mail_channels'), name, key and columns."""
    base = getattr(sys.modules.get("django.db.models"), "Model", None)
    if base is None or not isinstance(model, type) or not issubclass(model, base):
        return None
    options: Any = model._meta  # type: ignore[attr-defined]
    type_ = options.db_table.replace('"', "")
    where, _, name = type_.rpartition(".") if '"' in options.db_table else ("", "", type_)
    columns = frozenset(field.column for field in options.local_concrete_fields)
    return type_, where or None, name, tuple(field.column for field in options.pk_fields), columns
