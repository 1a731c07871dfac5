"""Reads owners that are mapped by SQLAlchemy: the names of their tables, and their keys as strings."""

from typing import Any
from uuid import UUID

from sqlalchemy import Table, Uuid, inspect
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.orm import InstanceState, Mapper
from sqlalchemy.types import TypeEngine

from ticker.errors import BadInput
from ticker.tasks.identity import PER_SCHEMA, key_text, schema_on

POSTGRESQL = postgresql.dialect()  # type: ignore[no-untyped-call]


def named(owner: object) -> tuple[str, str] | None:
    """Returns the full name of a mapped object's table and its key as a string; None for other objects."""
    state = inspect(owner, raiseerr=False)
    return _described(state) if isinstance(state, InstanceState) else None


def _described(state: InstanceState[Any]) -> tuple[str, str]:
    name, session = state.class_.__name__, state.session  # never its repr, which may load from the database
    if state.deleted or state.was_deleted or (session and state.obj() in session.deleted):
        raise BadInput("owner", name, "is deleted")
    table = base_table(state.mapper)
    try:
        if state.pending and session:
            session.flush()
        type_ = _type(state, table, name)
    except MissingGreenlet:
        raise BadInput("owner", name, "is in an AsyncSession; pass that session, or (type, key) as strings") from None
    if state.identity is None:
        raise BadInput("owner", name, "has no key yet; add it to the session first")
    columns = zip(state.mapper.primary_key, state.identity, strict=True)
    key = [(column.name, _stored(column.type, value)) for column, value in columns]
    return type_, key_text(key)


def _type(state: InstanceState[Any], table: Table, name: str) -> str:
    if table.fullname not in PER_SCHEMA:
        return table.fullname
    if state.session is None:
        raise BadInput("owner", name, "is in no session, so its schema is unknown; pass (SCHEMA.table, key) as strings")
    connection = state.session.connection(bind_arguments={"mapper": state.mapper})
    return f"{schema_on(connection, table.schema, table.name)}.{table.name}"


def _stored(type_: TypeEngine[Any], value: Any) -> Any:
    """Returns a value of a key as its type stores it, such as hex digits or the name of an enum."""
    impl = type_.dialect_impl(POSTGRESQL)
    if process := impl.bind_processor(POSTGRESQL):
        value = process(value)
    return UUID(str(value)) if isinstance(impl, Uuid) and impl.native_uuid else value


def base_table(mapper: Mapper[Any]) -> Table:
    """Returns the table of the key: the base table, or the class's own table in concrete inheritance."""
    tables = {column.table for column in mapper.primary_key}
    table = tables.pop()
    if tables or not isinstance(table, Table):
        raise BadInput("owner", mapper.class_.__name__, "is not mapped to one table with a primary key")
    return table
