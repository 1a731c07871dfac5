"""Makes what a table consists of: columns of our domains, indexes with conditions, and CHECKs."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    MetaData,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, OID
from sqlalchemy.schema import SchemaItem
from sqlalchemy.sql.elements import TextClause
from sqlalchemy.types import TypeEngine

metadata = MetaData(schema="ticker")

NOW = text("clock_timestamp()")
TIME = DateTime(timezone=True)
TYPES: Mapping[str, TypeEngine[Any]] = {
    "boolean": Boolean(),
    "integer": Integer(),
    "bigint": BigInteger(),
    "text": Text(),
    "uuid": Uuid(),
    "oid": OID(),
    "integers": ARRAY(Integer),
    "moments": ARRAY(TIME),
}
DOMAINS: Mapping[str, TypeEngine[Any]] = {
    **dict.fromkeys(("count", "limit", "intervals", "max_runs", "started", "retries", "priority"), Integer()),
    **dict.fromkeys(("limited", "batch"), Integer()),
    **dict.fromkeys(("duration", "span", "box", "grace", "uptime", "total"), BigInteger()),
    **dict.fromkeys(("object", "registered", "readable", "template", "batch_jobs"), JSONB()),
    **dict.fromkeys(("keys", "queues"), ARRAY(Text)),
    "moment": TIME,
}
"""The types of the domains whose values are no texts: versions/0001_tables/1_domains.sql has the rules."""


def column(
    name: str, type_: str, default: str | int | TextClause | None = None, *more: SchemaItem, **options: Any
) -> Column[Any]:
    """Returns a column of a type, or of a domain without its prefix `ticker_`. With a default, it is not null."""
    domain = DOMAINS.get(type_, Text()) if type_ not in TYPES else None
    info = {} if domain is None else {"domain": type_}
    written = text(str(default)) if isinstance(default, int) else default
    is_nullable = default is None and "primary_key" not in options
    options = {"nullable": is_nullable, "server_default": written, "info": info, **options}
    return Column(name, TYPES[type_] if domain is None else domain, *more, **options)


def identity() -> Column[Any]:
    return Column("id", BigInteger, Identity(always=True), primary_key=True)


def index(name: str, *columns: str | TextClause, where: str = "", unique: bool = False, **options: Any) -> Index:
    """Returns an index. With `where`, it has only the rows that meet the condition."""
    if where:
        options["postgresql_where"] = text(where)
    return Index(name, *columns, unique=unique, **options)


def check(name: str, condition: str) -> CheckConstraint:
    return CheckConstraint(condition, name=name)
