"""Default tasks for a kind of owner: written once, and from then on a fact of the database.

Whoever inserts an owner's row, by the ORM, a bulk statement or psql: the tasks are there in the same transaction, made by a
trigger of `owners.triggers`.
"""

from collections.abc import Sequence

from ticker import settings
from ticker.db.steps import Query, Steps, writes
from ticker.errors import BadInput
from ticker.model import Kind
from ticker.registration import owner_triggers
from ticker.tasks import rows as task_rows
from ticker.tasks.definition import Wanted
from ticker.tasks.queries import query


@writes
def defaults(
    table: object,
    wanted: Sequence[Wanted],
    *,
    existing: bool = False,
    key: str | Sequence[str] | None = None,
    table_schema: str | None = None,
) -> Steps[int]:
    """Makes the default tasks of the owners in a table equal to a list; how many tasks were made at once.

    `table` is a mapped class, a Table or its name, as in `owners.triggers`, whose triggers it must have; so are `key` and
    `table_schema`, which only `existing` needs. A new owner gets them from then on: an interval task is due at once, one by
    cron or calendar at its first time, which the next tick finds out. They are tasks as any other, and may be registered
    again, changed and deleted. Owners that are there already are left alone, unless `existing`: then each gets those whose
    names it lacks. No task is changed or deleted. A function learns from `run.owner_id` whose task it is.

    Idempotent; joins the caller's transaction. BadInput names the task and what is wrong; nothing is written then.
    """
    owner_type, schema, rows = owner_triggers.type_of(table), settings.current().schema, dict[str, str]()
    for item in _checked(wanted):
        rows[item.task_name()] = yield from _row(item)
    if len(rows) < len(wanted):
        raise BadInput("wanted", sorted(item.task_name() for item in wanted), "has a name twice")
    trigger = owner_triggers.adding_trigger(table, schema)
    if not (yield query("trigger_source", name=trigger))[0]["source"]:
        raise BadInput(
            "table", owner_type, "has no trigger that gives new owners their tasks; run owners.install, or what "
            "owners.triggers gives, once (again, if an older release made its triggers)",
        )  # fmt: skip
    yield query("write_templates", owner_type=owner_type, names=list(rows), tasks=list(rows.values()))
    if not existing:
        return 0
    insert = owner_triggers.tasks_of_existing(table, key, schema, table_schema)
    return len((yield Query(insert.replace("%", "%%"), {})))


def _checked(wanted: Sequence[Wanted]) -> Sequence[Wanted]:
    """What makes sense for an owner who is yet to come."""
    for item in wanted:
        if not isinstance(item, Wanted):
            raise BadInput("wanted", item, "is no task; write Wanted(...)")
        for field in ("at", "ends", "remove"):
            if getattr(item, field) is not None:
                raise BadInput(
                    field, getattr(item, field), "cannot be said of a default task: its owners are yet to come"
                )
    return wanted


def _row(item: Wanted) -> Steps[str]:
    """The columns of a task as the trigger reads them: as if it were registered for its owner."""
    given = item.given()
    values = yield from task_rows.applied(given, None)
    if values["kind"] != Kind.INTERVAL:
        yield from task_rows.first_time(values)  # BadInput where it never fires
    return task_rows.settings_of(values, registered=given)
