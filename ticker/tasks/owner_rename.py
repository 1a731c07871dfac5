"""Moves the tasks of a type of owner to another type, after its table was renamed or moved to another schema."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from ticker.db import sql
from ticker.errors import BadInput
from ticker.tasks import owner_triggers
from ticker.tasks.identity import check_text
from ticker.tasks.owner_types import HOW

TASKS_AT_A_TIME = 1_000
KEY_COLUMN = re.compile(r'("(?:[^"]|"")+"|\w+) AS ticker_key_\d+')


Connect = Callable[[], AbstractContextManager[Any]]
"""Returns a context with a connection in a transaction of its own."""


def rename(connect: Connect, schema: str, old: str, new: str, by: str) -> Iterator[int]:
    """Moves the tasks of one type of owner to another type, and yields the number of tasks that each step has moved.

    First, the table gets the triggers of the new type. Then the tasks move, with their cursors, last runs and pauses.
    The triggers of the old type are dropped last. So no change of an owner is missed, and an interrupted call may be
    repeated.

    If a task was registered for the new type meanwhile, the old task of that name replaces it. The old task then never
    runs earlier than the new one would have. A task whose owner has no row in the table keeps the old type. In that
    case, the table keeps the old triggers.
    """
    for field, type_ in (("old", old), ("new", new)):
        check_text(field, type_)
    with connect() as db:
        db.execute("SET LOCAL statement_timeout = 0")
        _install(db, schema, old, new)
        sql.on(db, schema)("rename_owner_type", old=old, new=new)
    after: int | None = 0
    while after is not None:
        with connect() as db:
            batch = {"old": old, "new": new, "after": after, "limit": TASKS_AT_A_TIME}
            sql.on(db, schema)("replace_renamed", by=by, **batch)
            [row] = sql.on(db, schema)("move_renamed", **batch)
        yield row["moved"]
        after = row["last"]
    with connect() as db:
        if old not in (row["type"] for row in sql.on(db, schema)("types_of_owners")):
            for statement in owner_triggers.drop_triggers(old, schema=schema):
                db.execute(statement)


def _install(db: Any, schema: str, old: str, new: str) -> None:
    """Installs the triggers of the new type, with the key and the condition of the old ones, unless the table has them."""
    execute = sql.on(db, schema)
    guards = {row["type"]: row for row in execute("guards") if row["rows"]}
    here, there = guards.get(old), guards.get(new)
    is_table = any(row["type"] == old and row["is_table"] for row in execute("types_of_owners"))
    if old == new:
        raise BadInput("new", new, "is the old type, too; nothing was renamed")
    other = here["relation"] if here else old if is_table else ""
    if there and other and other != there["relation"]:
        raise BadInput(
            "old", old, f"is the type of {other}, and {new} that of {there['relation']}; nothing was renamed"
        )
    if there:
        return
    if not here:
        raise BadInput("new", new, f"is not a table with ticker triggers, and neither is {old}; install them {HOW}")
    table = here["relation"]
    if new not in (here["table_name"], table):
        raise BadInput("new", new, f"is not the name of the table of {old}, {table}; rename the table first")
    keys = [owner_triggers.unquoted(column) for column in KEY_COLUMN.findall(here["definition"])]
    condition, subject = (here[one] and partial(owner_triggers.deparsed, here[one]) for one in ("condition", "subject"))
    for statement in owner_triggers.installation(new, here["quoted"], keys, condition, subject, schema):
        db.execute(statement)
