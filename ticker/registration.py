"""What applications call. Everything joins the caller's transaction: it commits, or goes, with the caller's own rows.

`db` is a SQLAlchemy Session (a scoped_session, too) or Connection, or a psycopg connection. A task is named by its
`Task`, its id, or its name together with `owner`; `owner` alone means all of its tasks.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from ticker import clock, definition, owners, settings, sql
from ticker.definition import Wanted
from ticker.errors import BadInput, UnknownOwner, UnknownTask
from ticker.owners import Owner
from ticker.schedules.duration import Duration
from ticker.task import Kind, Outcome, Task

Ref = Task | int | str | None

_COLUMNS = {field.name for field in fields(Task)} - {"warnings"}


def register(
    db: Any,
    function: str,
    *,
    name: str | None = None,
    owner: Any = None,
    every: Duration | None = None,
    first: datetime | None = None,
    queue: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    tolerance: Duration | None = None,
    box: Duration | None = None,
    subject: str | None = None,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Task:
    """Makes sure that the owner has this task; idempotent per (owner, name), safe from many processes at once.

    `every`, `tolerance` and `box` are seconds, texts (`30s`, `1h30m`, `PT5M`) or timedeltas; `every` from 1 s to 366
    days. The task is due at once, or at `first`. Registering again writes only what was passed and differs from what
    was *registered* last, so that a deploy does not undo what an operator changed, paused or disabled since.
    BadInput names field, value and limit; UnknownOwner where the owner's row is gone. Nothing is written then.
    """
    wanted = Wanted(
        function=function, name=name, every=every, queue=queue, kwargs=kwargs, tolerance=tolerance, box=box,
        subject=subject, description=description, metadata=metadata,
    )  # fmt: skip
    return _register(db, wanted, owners.identify(db, owner), _aware("first", first))


def unregister(db: Any, task: Ref = None, *, owner: Any = None) -> list[Task]:
    """Deletes the task, or all tasks of the owner; what was deleted. Idempotent: none is fine, too."""
    execute = _on(db)
    ids = [found.id for found in _select(execute, db, task, owner)]
    return [task_from(row) for row in execute("delete_tasks", ids=ids)]


def reconcile(db: Any, owner: Any, wanted: Sequence[Wanted | Mapping[str, Any]]) -> list[Task]:
    """Makes the owner's set of tasks equal to a list: registers what is in it, deletes what is not.

    Each item is a `Wanted`, or a mapping of its fields: `{"function": "mail.fetch", "every": "1m"}`.
    """
    who = owners.identify(db, owner)
    if not who.type:
        raise BadInput("owner", owner, "is no owner; reconcile needs one, as it deletes what is not in the list")
    items = [item if isinstance(item, Wanted) else _wanted(item) for item in wanted]
    checked = [(item.task_name(), item.given()) for item in items]
    names = {name for name, _ in checked}
    if len(names) < len(items):
        raise BadInput("wanted", sorted(name for name, _ in checked), "has a name twice")
    execute = _on(db)
    surplus = [task.id for task in _select(execute, db, None, who) if task.name not in names]
    execute("delete_tasks", ids=surplus)
    return [_register(db, item, who, None) for item in items]


def edit(db: Any, task: Ref, *, owner: Any = None, **changes: Any) -> Task:
    """Changes a task as an operator does: a later registration of the same values does not undo it.

    `changes` are the fields of `register`, and `enabled`. Takes effect at once. UnknownTask, BadInput.
    """
    for field in changes:
        if field not in definition.CHECKS:
            raise BadInput("edit", field, f"is no field that can be changed; those are {', '.join(definition.CHECKS)}")
    given = definition.check(changes)
    execute = _on(db)
    before = _one(_known(_select(execute, db, task, owner), task, owner))
    return _change(execute, before, given, None)


def pause(
    db: Any,
    task: Ref = None,
    *,
    owner: Any = None,
    by: str = "someone",
    reason: str = "",
    until: datetime | None = None,
) -> list[Task]:
    """Nothing is pushed and nothing starts until `resume`, or until that time. `by` and `reason` are shown."""
    execute = _on(db)
    checked = {
        "by": definition.plain("by", by),
        "reason": definition.prose("reason", reason),
        "until": _aware("until", until),
    }
    ids = [found.id for found in _known(_select(execute, db, task, owner), task, owner)]
    return [task_from(row) for row in execute("pause_tasks", ids=ids, **checked)]


def resume(db: Any, task: Ref = None, *, owner: Any = None) -> list[Task]:
    """Ends the pause: an interval task is due at once. What was not paused stays as it is and is not returned."""
    execute = _on(db)
    ids = [found.id for found in _known(_select(execute, db, task, owner), task, owner)]
    return [task_from(row) for row in execute("resume_tasks", ids=ids, now=clock.now())]


def run_now(db: Any, task: Ref = None, *, owner: Any = None) -> list[int]:
    """Plans one manual run, which the next tick pushes; the schedule is not touched. The ids of the runs."""
    execute = _on(db)
    ids = [found.id for found in _known(_select(execute, db, task, owner), task, owner)]
    return [row["id"] for row in execute("plan_runs", ids=ids, now=clock.now())]


def _register(db: Any, wanted: Wanted, who: Owner, first: datetime | None) -> Task:
    name, given, execute = wanted.task_name(), wanted.given(), _on(db)
    key = {"owner_type": who.type, "owner_id": who.id, "name": name}
    if found := execute("find_task", **key):
        return _register_again(execute, found[0], given)
    values = definition.applied(given, None)
    new = execute("insert_task", **key, declared_in="", first=first, now=clock.now(), **_parameters(values, given))
    if new:
        return task_from(new[0])
    if found := execute("find_task", **key):  # another process was faster
        return _register_again(execute, found[0], given)
    raise UnknownOwner(f"owner: there is no {who.type} with the key {who.id}, so {name!r} would be an orphan")


def _register_again(execute: sql.Execute, row: sql.Row, given: definition.Given) -> Task:
    before, registered = task_from(row), row["registered"]
    news = {column: value for column, value in given.items() if column not in registered or registered[column] != value}
    return _change(execute, before, news, {**registered, **given}) if news else before


def _change(execute: sql.Execute, before: Task, given: definition.Given, registered: Mapping[str, Any] | None) -> Task:
    values = definition.applied(given, before)
    parameters = _parameters(values, registered)
    return task_from(execute("change_task", id=before.id, now=clock.now(), **parameters)[0])


def _parameters(values: Mapping[str, Any], registered: Mapping[str, Any] | None) -> dict[str, Any]:
    """A definition as the statements take it; `registered` None keeps what stands in the row."""
    return {
        **values,
        "kwargs": json.dumps(values["kwargs"], ensure_ascii=False),
        "metadata": json.dumps(values["metadata"], ensure_ascii=False),
        "registered": None if registered is None else json.dumps(registered, ensure_ascii=False),
    }


def _select(execute: sql.Execute, db: Any, task: Ref, owner: Any) -> list[Task]:
    """The tasks that are meant, locked."""
    if isinstance(task, Task):
        task = task.id
    if task is None and owner is None:
        raise BadInput("task", None, "names no task: give a task, its id, its name, or an owner")
    if isinstance(task, bool) or not isinstance(task, int | str | None):
        raise BadInput("task", task, "is no task, no id and no name")
    if isinstance(task, int) and not 0 < task < 2**63:
        raise BadInput("task", task, "is no id: ids are whole numbers from 1")
    who = Owner("", "") if isinstance(task, int) else owners.identify(db, owner)
    rows = execute(
        "select_tasks", id=task if isinstance(task, int) else None, owner_type=who.type, owner_id=who.id,
        name=definition.plain("task", task) if isinstance(task, str) else None,
    )  # fmt: skip
    return [task_from(row) for row in rows]


def _known(tasks: list[Task], task: Ref, owner: Any) -> list[Task]:
    if not tasks:
        named = "no name" if task is None else f"{task.id if isinstance(task, Task) else task!r}"
        raise UnknownTask(f"there is no task {named}" + (f" of owner {owner}" if owner is not None else ""))
    return tasks


def _one(tasks: list[Task]) -> Task:
    if len(tasks) > 1:
        raise BadInput("task", None, f"is {len(tasks)} tasks of that owner; name one")
    return tasks[0]


def _wanted(item: Mapping[str, Any]) -> Wanted:
    known = {field.name for field in fields(Wanted)}
    for field in item:
        if field not in known:
            raise BadInput("wanted", field, f"is no field of a task; those are {', '.join(sorted(known))}")
    if "function" not in item:
        raise BadInput("wanted", dict(item), "has no function")
    return Wanted(**item)


def _aware(field: str, value: datetime | None) -> datetime | None:
    if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
        raise BadInput(field, value, "is no time with a zone; write datetime(..., tzinfo=UTC)")
    return value


def _on(db: Any) -> sql.Execute:
    return sql.on(db, settings.from_environment().schema)


def task_from(row: sql.Row) -> Task:
    """A row of `tasks` as a value, with what is worth a warning."""
    values = {column: row[column] for column in _COLUMNS}
    values |= {"kind": Kind(row["kind"]), "waiting": tuple(row["waiting"])}
    values["last_outcome"] = Outcome(row["last_outcome"]) if row["last_outcome"] else None
    task = Task(**values)
    return replace(task, warnings=definition.warnings(task))
