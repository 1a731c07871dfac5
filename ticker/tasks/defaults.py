"""Sets the default tasks of a type of owner.

A trigger from `owners.triggers` creates them in the transaction that inserts an owner. This holds however the row is
inserted: by an ORM, a bulk statement or psql.
"""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from ticker import settings
from ticker.db.sql import Row
from ticker.db.steps import Query, Steps, writes
from ticker.errors import BadInput
from ticker.model import Kind
from ticker.tasks import bulk, filters, owner_triggers, owner_types
from ticker.tasks import rows as task_rows
from ticker.tasks.definition import Given, Wanted
from ticker.tasks.rows import query, task_from

FORMER_AT_MOST = 20  # registrations that a default task remembers, to recognise tasks of existing owners


@writes
def defaults(
    table: object,
    wanted: Sequence[Wanted],
    *,
    existing: bool = False,
    table_schema: str | None = None,
) -> Steps[int]:
    """Sets the default tasks of the owners in a table to a list, and returns the number of tasks that it created or
    changed.

    `table` is a mapped class, a Table, a Django model or a name. The table must have the triggers from
    `owners.triggers`. From now on each new owner gets the default tasks: an interval task is due at once, and a cron or
    calendar task at its first time, which the next tick computes. They are ordinary tasks, which can be registered
    again, changed and deleted.

    With `existing=True`, each owner that already exists gets the default tasks whose names it lacks. Its other default
    tasks change where nobody has changed them since: not in a field that was edited, nor after another registration. A
    task that the change does not fit stays as it is. No task is deleted.

    A task's function finds the owner's id in `run.owner_id`. A table that `owners.per_schema` declares needs
    `table_schema`.

    Idempotent. Runs in the caller's transaction. Raises BadInput, which names the task and the problem. In that
    case nothing is written.
    """
    owner_type, schema = owner_triggers.type_of(table, table_schema), settings.current().schema
    known = {row["name"]: row["registered"] for row in (yield query("former_templates", owner_type=owner_type))}
    rows, former = dict[str, str](), dict[str, list[Any]]()
    for item in _checked(wanted):
        name = item.task_name()
        former[name] = [one for one in known.get(name, ()) if one != _stored(item)][-FORMER_AT_MOST:]
        yield from task_rows.check_subject(owner_type, item.given().get("subject"))
        rows[name] = yield from _row(item, former[name])
    if len(rows) < len(wanted):
        raise BadInput("wanted", sorted(item.task_name() for item in wanted), "has two tasks with the same name")
    trigger = owner_types.trigger_name(schema, "added", owner_type)
    if not (yield query("trigger_source", name=trigger))[0]["source"]:
        raise BadInput(
            "table",
            owner_type,
            "has no trigger that gives new owners their tasks; run owners.install, or the "
            "statements of owners.triggers",
        )
    yield query("write_templates", owner_type=owner_type, names=list(rows), tasks=list(rows.values()))
    if not existing:
        return 0
    insert = owner_triggers.tasks_of_existing(owner_type, schema)
    [was] = yield query("row_security", value="off")
    made = yield Query(insert.replace("%", "%%"), {}, partial(owner_types.hidden, owner_type, was["role"]))
    yield query("row_security", value=was["before"])
    count = len(made)
    for item in wanted:
        if former[item.task_name()]:
            count += yield from _changed(owner_type, item, former[item.task_name()])
    return count


def _changed(owner_type: str, item: Wanted, former: Sequence[object]) -> Steps[int]:
    """Changes the tasks of existing owners, and returns their number."""
    chosen = yield from filters.chosen(owner_type=owner_type, name=item.task_name())
    change, count = Redefault(item.given(), former), 0
    after: int | None = 0
    while after is not None:
        following, judged = yield from bulk.step(chosen, change, after, False, 0)
        if any(one.words for one in judged):  # only then, tasks are locked
            following, judged = yield from bulk.step(chosen, change, after, True, 0)
        after, count = following, count + sum(bool(one.words) for one in judged)
    return count


class Redefault(bulk.Edit):
    """Changes the tasks that still are registered as a former default, except for what has been edited since."""

    def __init__(self, given: Given, former: Sequence[object]) -> None:
        super().__init__(None, given)
        self.values, self.former = given, former

    def judge(self, row: Row) -> Steps[bulk.Judged]:
        if row["registered"] not in self.former:
            return bulk.Judged(row)
        edited = bulk.changed_columns(task_from(row), (yield from task_rows.applied(row["registered"], None)))
        if edited & {*bulk.SCHEDULE}:
            edited |= {*bulk.SCHEDULE}
        news = {column: value for column, value in task_rows.news(self.values, row).items() if column not in edited}
        judged = yield from bulk.judge_edit(row, news)
        return judged._replace(change=judged.change and judged.change._replace(registered=self.values))


def _checked(wanted: Sequence[Wanted]) -> Sequence[Wanted]:
    """Raises BadInput for fields that make no sense for owners that do not exist yet."""
    for item in wanted:
        if not isinstance(item, Wanted):
            raise BadInput("wanted", item, "is not a task; write Wanted(...)")
        for field in ("at", "ends", "remove"):
            if getattr(item, field) is not None:
                raise BadInput(
                    field, getattr(item, field), "does not apply to a default task: its owners do not exist yet"
                )
    return wanted


def _row(item: Wanted, former: Sequence[object]) -> Steps[str]:
    """Returns the columns of a task as JSON for the trigger, as if the task were registered for its owner. The trigger
    ignores the former registrations.
    """
    given = item.given()
    values = yield from task_rows.applied(given, None)
    if values["kind"] != Kind.INTERVAL:
        yield from task_rows.first_time(values)  # raises BadInput if it never fires
    return task_rows.settings_of(values, registered=given, former=former)


def _stored(item: Wanted) -> Any:
    """Returns the registration as PostgreSQL will return it."""
    return json.loads(json.dumps(item.given()))
