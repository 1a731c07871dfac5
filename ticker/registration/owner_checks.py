"""Finds what is wrong with the triggers on owners' tables, and tasks whose owners are gone."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from ticker.db import sql
from ticker.db.connections import first_line
from ticker.db.sql import Execute
from ticker.registration.owner_names import function_name, quoted, trigger_name
from ticker.registration.owner_types import HOW, has_no_trigger, install

GUARD = re.compile(  # in `guarded`, also as older releases made it
    r"SELECT (?P<active>(?s:.+)) INTO NEW\.owner_active FROM (?P<table>.+) o\n +WHERE .+ AND (?P<id>.+) = NEW\.owner_id FOR "
)


@dataclass(frozen=True, slots=True)
class Guard:
    """What the function that guards the tasks of a type of owner contains: its table, and SQL over a row `o` of it."""

    type: str
    table: str
    active: str
    id: str

    @property
    def is_tracked(self) -> bool:
        """Whether PostgreSQL follows a renamed column. Older releases wrote columns into the text of the function."""
        return self.id.endswith(f"{quoted(function_name('id', self.type))}(o)")


def problems(db: Any, schema: str) -> Iterator[str]:
    """Yields a sentence for each type of owner that tasks do not follow, or cannot follow any more. Needs no right on its table."""
    yield from (problem for _, problem in _problems(db, schema))


def unread(db: Any, schema: str, type_: str | None) -> Iterator[str]:
    """Yields the problems of tables that `without_owner` does not read, or only that of `type_`."""
    read = {named for named, _ in without_owner(db, schema)}
    for named, problem in _problems(db, schema):
        if named not in read and type_ in (None, named):
            yield problem


def _problems(db: Any, schema: str) -> Iterator[tuple[str, str]]:
    """Yields each type of owner with a problem, and the problem."""
    execute = sql.on(db, schema)
    guards, tables = {guard.type: guard for guard in _guards(execute)}, {row["type"] for row in execute("owner_tables")}
    for type_ in sorted({*guards, *tables}):
        guard = guards.get(type_)
        if not is_followed(execute, schema, type_):
            is_there = type_ in tables or (guard and _names_a_table(db, guard))
            yield type_, f"table {type_} {has_no_trigger(type_)}" if is_there else _without_table(type_)
        elif guard and (error := _error(db, guard)):
            yield type_, f"the triggers of table {type_} do not fit it: {error}; {install('them again', type_)}"


def outdated(db: Any, schema: str) -> Iterator[str]:
    """Yields a sentence for each table whose triggers an older release made. They work as long as no column is renamed."""
    for guard in _guards(sql.on(db, schema)):
        if not guard.is_tracked and not _error(db, guard):
            yield (
                f"the triggers of table {guard.type} are of an older release: if a column of its key or of active_when is "
                f"renamed, statements on the table fail; {install('them again', guard.type)}"
            )


def is_followed(execute: Execute, schema: str, type_: str) -> bool:
    """Returns whether a trigger deletes the tasks of deleted owners of this type."""
    return bool(execute("trigger_source", name=trigger_name(schema, "deleted", type_))[0]["source"])


def _without_table(type_: str) -> str:
    remove = f"ticker owners --type {shlex.quote(type_)} --orphans --remove"
    return (
        f"the table of {type_} is gone, and nothing deletes the tasks of its owners; delete them: {remove}, and remove the "
        f"functions: owners.drop_triggers({json.dumps(type_)}) {HOW}"
    )


def without_owner(db: Any, schema: str, type_: str | None = None) -> Iterator[tuple[str, str]]:
    """Yields each type of owner that has triggers, or only `type_`, and an SQL condition over its tasks `t` that have no owner.

    Leaves out types whose triggers do not fit their table.
    """
    execute = sql.on(db, schema)
    for guard in _guards(execute):
        if type_ not in (None, guard.type):
            continue
        of_type = f"t.owner_type = {quoted(guard.type, chr(39))}"
        if not is_followed(execute, schema, guard.type) and not _names_a_table(db, guard):
            yield guard.type, of_type
        elif not _error(db, guard):
            yield guard.type, f"{of_type} AND NOT EXISTS (SELECT FROM {guard.table} o WHERE {guard.id} = t.owner_id)"


def _guards(execute: Execute) -> Iterator[Guard]:
    for row in execute("guards"):
        if parts := GUARD.search(row["source"]):
            yield Guard(row["type"], **parts.groupdict())


def _names_a_table(db: Any, guard: Guard) -> bool:
    return bool(db.execute("SELECT to_regclass(%s) IS NOT NULL", [guard.table]).fetchone() == (True,))


def _error(db: Any, guard: Guard) -> str:
    """Returns PostgreSQL's error if the key or the condition does not fit the table. Nothing is executed, and nothing changes."""
    try:
        with db.transaction(force_rollback=True):
            db.execute("SET LOCAL search_path = pg_catalog, pg_temp")  # as the function has it
            db.execute(f"PREPARE ticker_guard AS SELECT {guard.active}, {guard.id} FROM {guard.table} o")
            db.execute("DEALLOCATE ticker_guard")
    except psycopg.errors.InsufficientPrivilege:
        raise
    except psycopg.ProgrammingError as error:
        return first_line(error)
    return ""
