"""Finds what is wrong with the triggers on owners' tables, and finds and deletes tasks whose owners are gone."""

import json
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from ticker.db import drivers, sql
from ticker.db.sql import Execute, Row
from ticker.tasks.fields import Owned
from ticker.tasks.owner_types import HOW, has_no_trigger, hidden, install, quoted, trigger_name


def problems(db: Any, schema: str) -> Iterator[str]:
    """Yields a sentence for each type of owner that tasks do not follow, or cannot follow any more. Needs no right on
    its table.
    """
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
    guards, types = ({row["type"]: row for row in execute(name)} for name in ("guards", "types_of_owners"))
    for type_ in sorted({*guards, *types}):
        guard, known = guards.get(type_), types.get(type_, {"is_table": False, "has_defaults": False})
        if not is_followed(execute, schema, type_):
            if known["is_table"] or (guard and (guard["rows"] or guard["is_table"])):
                yield type_, f"table {type_} {has_no_trigger(type_)}"
            elif guard:
                remove = f"ticker owners --type {shlex.quote(type_)} --orphans --remove"
                problem = (
                    f"the table of {type_} is gone, and nothing deletes the tasks of its owners; delete them: {remove}"
                )
                yield type_, f"{problem}, and remove the functions: owners.drop_triggers({json.dumps(type_)}) {HOW}"
            elif known["has_defaults"]:
                problem = f"no owner gets the default tasks of {type_}, because no table of that name has triggers"
                yield type_, f"{problem}; if the table was renamed, {_rename(type_)}"
        elif guard is None or guard["rows"] is None:
            yield type_, f"some of the triggers of table {type_} were dropped; {install('them again', type_)}"
        else:
            yield from ((type_, problem) for problem in _misfits(guard))


def external(db: Any, schema: str) -> Iterator[str]:
    """Yields a sentence for each type that has tasks and is no table here. Such owners may be rows elsewhere."""
    execute = sql.on(db, schema)
    followed = {row["type"] for row in execute("guards")}
    for row in execute("types_of_owners"):
        if not row["is_table"] and not row["has_defaults"] and row["type"] not in followed:
            yield (
                f"{row['type']} is not a table with triggers, so nothing deletes the tasks of its deleted owners; "
                f"if the table was renamed, {_rename(row['type'])}"
            )


def _rename(type_: str, new: str = "NEW") -> str:
    return f"run: ticker owners --rename {shlex.quote(type_)} {shlex.quote(new)}"


def _misfits(guard: Row) -> Iterator[str]:
    """Yields the problems of a type whose triggers all exist."""
    type_, table = guard["type"], guard["relation"]
    if not guard["is_named"]:
        yield f"the table of {type_} is now {table}; {_rename(type_, table.removeprefix('public.'))}"
    if guard["planted"]:
        yield (
            f"the triggers of table {type_} use {guard['planted']} of a role that is neither their owner nor a superuser; "
            f"if you did not intend that, {install('them again', type_)}"
        )


def outlived(db: Any, schema: str, *, partitioned: bool = False) -> Iterator[str]:
    """Yields a sentence for each type that has tasks without an owner; with `partitioned`, only for partitioned tables.

    DROP, DETACH and TRUNCATE of a partition fire no trigger.
    """
    execute = sql.on(db, schema)
    for guard in execute("guards"):
        if (guard["is_partitioned"] or not partitioned) and (condition := _without_row(execute, schema, guard)):
            with nothing_hidden(db, schema, guard["type"]):
                [(tasks,)] = db.execute(f'SELECT count(*) FROM "{schema}".tasks t WHERE {condition}')
            if tasks:
                remedy = "delete them: ticker owners --orphans --remove"
                yield f"tasks of {guard['type']} that outlived their owner: {tasks}; {remedy}"


def is_followed(execute: Execute, schema: str, type_: str) -> bool:
    """Returns whether a trigger deletes the tasks of deleted owners of this type."""
    return bool(execute("trigger_source", name=trigger_name(schema, "deleted", type_))[0]["source"])


def without_owner(db: Any, schema: str, type_: str | None = None) -> Iterator[tuple[str, str]]:
    """Yields each type of owner that has triggers, or only `type_`, and an SQL condition over its tasks `t` that have
    no owner.

    Leaves out types whose triggers were dropped, unless no table has the type's name, in any schema.
    """
    execute = sql.on(db, schema)
    for guard in execute("guards"):
        if type_ in (None, guard["type"]) and (condition := _without_row(execute, schema, guard)):
            yield guard["type"], condition


def _without_row(execute: Execute, schema: str, guard: Row) -> str:
    """Returns the condition over tasks `t` of this type whose owner has no row. It is empty if that cannot be told."""
    of_type = f"t.owner_type = {quoted(guard['type'], chr(39))}"
    if guard["rows"]:
        return f"{of_type} AND NOT EXISTS (SELECT FROM {guard['rows']} o WHERE o.id = t.owner_id)"
    is_gone = not guard["is_table"] and not is_followed(execute, schema, guard["type"])
    return of_type if is_gone else ""


@contextmanager
def nothing_hidden(db: Any, schema: str, type_: str) -> Iterator[None]:
    """Makes statements that read the table of this type fail with ConfigurationError if a policy would hide its rows."""
    execute = sql.on(db, schema)
    with db.transaction():
        [was] = execute("row_security", value="off")
        with drivers.explained(partial(hidden, type_, was["role"])):
            yield
        execute("row_security", value=was["before"])


# ----------------------------------------------------------------------------------------------------------- orphans


@dataclass(frozen=True, slots=True)
class Orphans(Owned):
    """An owner that is gone, and how many tasks it has left."""

    owner_type: str
    owner_id: str
    tasks: int

    derived = ("owner",)


def orphans(db: Any, schema: str, type_: str | None, limit: int) -> list[Orphans]:
    """Returns up to `limit` owners that are gone and have tasks, by type and id. Reads the tables of owners that have
    triggers.
    """
    found: list[Orphans] = []
    for named, condition in without_owner(db, schema, type_):
        counts = (
            f'SELECT owner_id, count(*) FROM "{schema}".tasks t WHERE {condition} GROUP BY owner_id ORDER BY owner_id'
        )
        with nothing_hidden(db, schema, named):
            found += [Orphans(named, *row) for row in db.execute(f"{counts} LIMIT {limit - len(found)}")]
    return found


def remove(db: Any, schema: str, gone: Iterable[Orphans], by: str) -> int:
    """Deletes the tasks of these owners, by type, unless they have a row by now. Returns how many it deleted."""
    removed = 0
    for type_, those in groupby(gone, key=lambda one: one.owner_type):
        for _, condition in without_owner(db, schema, type_):
            delete = f"""DELETE FROM "{schema}".tasks WHERE id = ANY (ARRAY(SELECT id FROM "{schema}".tasks t
                WHERE {condition.replace("%", "%%")} AND owner_id = ANY (%s) ORDER BY id FOR UPDATE))"""
            with nothing_hidden(db, schema, type_):
                db.execute("SELECT set_config('ticker.by', %s, true)", [by])
                removed += db.execute(delete, [[one.owner_id for one in those]]).rowcount
    return removed
