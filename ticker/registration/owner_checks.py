"""Finds what is wrong with the triggers on owners' tables, and tasks whose owners are gone."""

import json
import shlex
from collections.abc import Iterator
from typing import Any

from ticker.db import sql
from ticker.db.sql import Execute, Row
from ticker.registration.owner_names import quoted, trigger_name
from ticker.registration.owner_types import HOW, has_no_trigger, install


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
    guards, tables = {row["type"]: row for row in execute("guards")}, {row["type"] for row in execute("owner_tables")}
    for type_ in sorted({*guards, *tables}):
        guard = guards.get(type_)
        if not is_followed(execute, schema, type_):
            is_there = type_ in tables or (guard and (guard["rows"] or guard["is_table"]))
            yield type_, f"table {type_} {has_no_trigger(type_)}" if is_there else _without_table(type_)
        elif guard is None or guard["rows"] is None:
            yield type_, f"some of the triggers of table {type_} were dropped; {install('them again', type_)}"
        else:
            yield from ((type_, problem) for problem in _misfits(guard))


def _misfits(guard: Row) -> Iterator[str]:
    """Yields what does not fit about triggers that are all there."""
    type_, table = guard["type"], guard["relation"]
    if not guard["is_named"]:
        new = table.removeprefix("public.")
        rename = f"ticker owners --rename {shlex.quote(type_)} {shlex.quote(new)}"
        yield f"the table of {type_} is now {table}; if the application names it so, run: {rename}"
    if guard["moving"]:
        yield (
            f"table {type_} is partitioned by {guard['moving']}, so an UPDATE may move a row to another partition, which fires no "
            f"trigger; {install('the triggers without it', type_)}"
        )
    if guard["planted"]:
        yield (
            f"the triggers of table {type_} use {guard['planted']}, whose owner is neither theirs nor a superuser; if you did not "
            f"intend that, {install('them again', type_)}"
        )


def outlived(db: Any, schema: str, *, partitioned: bool = False) -> Iterator[str]:
    """Yields a sentence for each type that has tasks without an owner; with `partitioned`, only of partitioned tables.

    DROP, DETACH and TRUNCATE of a partition fire no trigger.
    """
    for guard in sql.on(db, schema)("guards"):
        if guard["is_partitioned"] or not partitioned:
            for type_, condition in without_owner(db, schema, guard["type"]):
                [(tasks,)] = db.execute(f'SELECT count(*) FROM "{schema}".tasks t WHERE {condition}')
                if tasks:
                    yield f"tasks of {type_} that outlived their owner: {tasks}; delete them: ticker owners --orphans --remove"


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

    Leaves out types whose triggers were dropped, unless no table has the type's name, in any schema.
    """
    for guard in sql.on(db, schema)("guards"):
        if type_ in (None, guard["type"]):
            of_type = f"t.owner_type = {quoted(guard['type'], chr(39))}"
            if guard["rows"]:
                yield guard["type"], f"{of_type} AND NOT EXISTS (SELECT FROM {guard['rows']} o WHERE o.id = t.owner_id)"
            elif not guard["is_table"]:
                yield guard["type"], of_type
