"""Reads owners, and tables of owners, that SQLAlchemy or Django maps.

Loads neither library: an application that has mapped objects has loaded it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from ticker.errors import BadInput

if TYPE_CHECKING:
    from sqlalchemy import Table
    from sqlalchemy.orm import InstanceState, Mapper
    from sqlalchemy.types import TypeEngine


PER_SCHEMA: set[str] = set()
"""The tables that `owners.per_schema` declares. The type of their owners is SCHEMA.table."""


class Described(NamedTuple):
    """A table: its full name, schema, name, the columns of its key, and all columns if they are known."""

    full_name: str
    schema: str | None
    name: str
    key: tuple[str, ...]
    columns: frozenset[str] | None


class MappedOwner(NamedTuple):
    """An owner: its table, the columns and values of its key, and the connection that finds its schema, if there is one."""

    table: Described
    key: list[tuple[str, Any]]
    connection: Any


def owner_of(owner: Any) -> MappedOwner | None:
    """Returns a saved instance of a model of Django, or a mapped object, which is flushed if it is pending.

    Returns None for other objects.
    """
    if model := _model(owner.__class__):
        return _of_django(owner, model)
    if "sqlalchemy.orm" not in sys.modules:
        return None
    from sqlalchemy import inspect
    from sqlalchemy.orm import InstanceState

    state = inspect(owner, raiseerr=False)
    return _of_sqlalchemy(state) if isinstance(state, InstanceState) else None


def table_of(target: object) -> Described:
    """Returns the table of a mapped class, a Table or a Django model. Raises BadInput."""
    if model := _model(target):
        return model
    from sqlalchemy import Table

    if isinstance(target, Table):
        return _described(target, target.primary_key.columns)
    mapper = mapper_of(target)
    return _described(base_table(mapper), mapper.primary_key)


def _described(table: "Table", key: Any) -> Described:
    columns = frozenset(column.name for column in table.columns)
    return Described(table.fullname, table.schema, table.name, tuple(column.name for column in key), columns)


# -------------------------------------------------------------------------------------------------------- SQLAlchemy


def mapper_of(target: object) -> "Mapper[Any]":
    from sqlalchemy import inspect
    from sqlalchemy.orm import Mapper

    mapper = inspect(target, raiseerr=False)
    if not isinstance(mapper, Mapper):
        raise BadInput("table", target, "is not a mapped class, a Table, a Django model or the name of a table")
    return mapper


def base_table(mapper: "Mapper[Any]") -> "Table":
    """Returns the table of the key: the base table, or the class's own table in concrete inheritance."""
    from sqlalchemy import Table

    tables = {column.table for column in mapper.primary_key}
    table = tables.pop()
    if tables or not isinstance(table, Table):
        raise BadInput("owner", mapper.class_.__name__, "is not mapped to one table with a primary key")
    return table


def _of_sqlalchemy(state: "InstanceState[Any]") -> MappedOwner:
    name, session = state.class_.__name__, state.session  # never its repr, which may load from the database
    if state.deleted or state.was_deleted or (session and state.obj() in session.deleted):
        raise BadInput("owner", name, "is deleted")
    table = table_of(state.mapper)
    is_per_schema = table.full_name in PER_SCHEMA
    with in_its_session(state.obj()):
        if state.pending and session:
            session.flush()
        connection = session.connection(bind_arguments={"mapper": state.mapper}) if session and is_per_schema else None
    if is_per_schema and connection is None:
        raise BadInput("owner", name, "is in no session, so its schema is unknown; pass (SCHEMA.table, key) as strings")
    if state.identity is None:
        raise BadInput("owner", name, "has no key yet; add it to the session first")
    columns = zip(state.mapper.primary_key, state.identity, strict=True)
    return MappedOwner(table, [(column.name, _stored(column.type, value)) for column, value in columns], connection)


@contextmanager
def in_its_session(owner: object) -> Iterator[None]:
    """Refuses an owner whose session is asynchronous, if the block reads from it."""
    try:
        yield
    except Exception as error:
        kinds = {type(error).__name__, type(getattr(error, "orig", None)).__name__}
        if "MissingGreenlet" not in kinds:  # by its name, because Django's owners need no SQLAlchemy
            raise
        name = type(owner).__name__
        raise BadInput("owner", name, "is in an AsyncSession; pass that session, or (type, key) as strings") from None


def _stored(type_: "TypeEngine[Any]", value: Any) -> Any:
    """Returns a value of a key as its type stores it, such as hex digits or the name of an enum."""
    from sqlalchemy import Uuid

    impl = type_.dialect_impl(_postgresql())
    if process := impl.bind_processor(_postgresql()):
        value = process(value)
    return UUID(str(value)) if isinstance(impl, Uuid) and impl.native_uuid else value


@cache
def _postgresql() -> Any:
    from sqlalchemy.dialects import postgresql

    return postgresql.dialect()  # type: ignore[no-untyped-call]


# ------------------------------------------------------------------------------------------------------------ Django


def _of_django(owner: Any, table: Described) -> MappedOwner:
    values = [(field, getattr(owner, field.attname)) for field in owner._meta.pk_fields]
    if owner._state.adding or any(value is None for _, value in values):
        raise BadInput("owner", owner.__class__.__name__, "has no row in the database; save it first")
    connection = sys.modules["django.db"].connections[owner._state.db or "default"]
    key = [(field.column, field.get_db_prep_value(value, connection)) for field, value in values]
    return MappedOwner(table, key, connection)


def _model(model: Any) -> Described | None:
    """Returns the table of a Django model, whose db_table may name a schema (`crm"."mail_channels`)."""
    base = getattr(sys.modules.get("django.db.models"), "Model", None)
    if base is None or not isinstance(model, type) or not issubclass(model, base):
        return None
    options: Any = model._meta  # type: ignore[attr-defined]
    full_name = options.db_table.replace('"', "")
    where, _, name = full_name.rpartition(".") if '"' in options.db_table else ("", "", full_name)
    columns = frozenset(field.column for field in options.local_concrete_fields)
    return Described(full_name, where or None, name, tuple(field.column for field in options.pk_fields), columns)
