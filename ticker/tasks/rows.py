"""Makes the statements of operations, writes definitions to their rows, and makes tasks of rows.

All of it runs in the caller's transaction.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, cast

from ticker import clock, settings
from ticker.db import drivers, sql
from ticker.db.sql import Row
from ticker.db.steps import JSON_COLUMNS, Query, Steps
from ticker.engine import timing
from ticker.errors import BadInput, not_announced
from ticker.model import REGISTERED, Kind, Outcome
from ticker.schedules import hours, kinds
from ticker.tasks import checks, definition
from ticker.tasks.fields import DEFAULTS, Task

_COLUMNS = [field.name for field in fields(Task) if field.name not in ("warnings", "waits_because")]
BOUNDS = {"every_ms", "every_most_ms"}

COMPUTED = {
    "pause": "{note_of_pause t}", "is_resuming": "{is_resuming t}", "waits_for": "{state_of_wait t}", "unknown_function": "{unknown_function t}", "tick_ms": "{tick_ms}",
}  # fmt: skip
"""The columns of `{task}` that are rules, not columns of the table."""


def _column(name: str) -> str:
    return COMPUTED.get(name, f"t.{name}::text" if name in JSON_COLUMNS else f"t.{name}")


_OF_TASK = (*_COLUMNS, "registered", "declared_in", "tick_ms")

LISTS = (
    ("settings", sql.listed(DEFAULTS, "t")),
    ("task", ", ".join(f"{_column(name)} AS {name}" for name in _OF_TASK)),
    ("restored", drivers.RESTORED),
)
"""Lists of columns: the fields that `ticker.tasks.fields` declares, those of a `Task`, and one that restores the
search_path.
"""


def query(name: str, /, **parameters: Any) -> Query:
    """Returns a statement for the configured schema, with its parameters. `now` is that of the clock, unless it is given."""
    return Query(sql.statements(settings.current().schema, LISTS)[name], {"now": clock.now(), **parameters})


def wake_up() -> Steps[None]:
    """Wakes the tickers when the transaction commits, if TICKER_WAKE is on."""
    if (config := settings.current()).wake:
        yield query("wake_up", schema=config.schema)


def written(name: str, *, by: str | None, **parameters: Any) -> Steps[list[Row]]:
    """Executes a statement whose events name `by` as the actor. None means the setting `ticker.by`, or else the
    database user.
    """
    if by is None:
        return (yield query(name, by=None, **parameters))
    [before] = yield query("actor")
    rows = yield query(name, by=checks.plain("by", by), **parameters)
    yield query("act_as", by=before["by"])
    return rows


def insert(
    key: Mapping[str, str], given: definition.Given, first: datetime | None, declared_in: str = ""
) -> Steps[Task | None]:
    """Inserts a task. Returns None if another process was faster, or the owner is gone."""
    values = yield from applied(given, None)
    begin = yield from first_time(values)
    if first is not None:
        definition.check_first(first, values)
        begin = first
    parameters = parameters_of(values, given)
    new = yield query("insert_task", **key, declared_in=declared_in, first=begin, **parameters)
    if not new:
        return None
    row = new[0] if first is not None else (yield from placed(new[0]))
    if (known := REGISTERED.get(values["function"])) and known.batch > 1:
        yield from declare_functions(replaces=False)
    yield from wake_up()
    return (yield from unknown(row))


def declare_functions(replaces: bool) -> Steps[None]:
    """Stores how a job may run each function that this process has registered. With `replaces`, also changes what is
    stored.
    """
    if REGISTERED:
        batches, concurrencies, repeatables = map(list, zip(*REGISTERED.values(), strict=True))
        yield query(
            "declare_functions", names=[*REGISTERED], batches=batches, concurrencies=concurrencies,
            repeatables=repeatables, replaces=replaces,
        )  # fmt: skip


def unknown(row: Row) -> Steps[Task]:
    """Returns the task of a row that was written, with a warning if no worker has announced its function or its queue."""
    task = task_from(row)
    if not (row["unknown_function"] or row["unknown_queue"]):
        return task
    functions = yield query("functions")
    queues = {queue for function in functions for queue in function["queues"]}
    warnings = (
        not_announced("function", task.function, [function["name"] for function in functions]),
        not_announced("queue", task.queue, sorted(queues)),
    )
    return replace(task, warnings=(*task.warnings, *filter(None, warnings)))


def change(
    row: Row,
    given: definition.Given,
    registered: Mapping[str, Any] | None,
    declared_in: str | None = None,
    by: str | None = None,
) -> Steps[Task]:
    values, again, next_run = yield from check_change(row, given)
    parameters = parameters_of(values, registered) | {"again": again, "next_run": next_run, "declared_in": declared_in}
    changed = yield from written("change_task", by=by, id=row["id"], **parameters)
    is_moved = again and changed[0]["next_run"] != row["next_run"]
    if is_moved or any(
        values[column] != row[column] for column in ("every_ms", "spread", "within_ms", "during", "zone")
    ):
        changed = [(yield from placed(changed[0]))]
    yield from wake_up()
    return (yield from unknown(changed[0]))


def placed(row: Row) -> Steps[Row]:
    """Makes the task due in phase, if it has one, and in its hours from now on. Returns the row."""
    task = task_from(row)
    if task.next_run is None or task.kind is Kind.ONCE:
        return row
    if task.kind is Kind.INTERVAL:
        in_phase = (yield query("next_in_phase", ids=[task.id])) if task.spread else []
        first = task_from({**row, **(in_phase or [row])[0]}).next_run
    else:
        first = kinds.bounded(task, kinds.first_run(kinds.of(task), (yield from instant()), task.starts_at))
    if first is None or first == row["next_run"]:
        return row
    yield query("set_next_runs", ids=[task.id], next_runs=[first])
    return {**row, "next_run": first}


def applied(given: definition.Given, row: Row | None) -> Steps[dict[str, Any]]:
    """Returns all columns of this row, or of a new one if `row` is None, after the given fields were written to it."""
    before, registered = (None, definition.NOTHING) if row is None else (task_from(row), row["registered"])
    now = (yield from instant()) if definition.needs_now(given, before) else None
    return definition.applied(given, before, registered, now)


def instant() -> Steps[datetime]:
    """Returns the current instant by the database's clock, which is authoritative."""
    [row] = yield query("instant")
    return cast(datetime, row["now"])


def first_time(values: Mapping[str, Any]) -> Steps[datetime | None]:
    """Returns when a new task is due. None means at once, by the clock of the statement."""
    if values["kind"] == Kind.INTERVAL and not values["starts_at"] and not values["ends_at"]:
        return None
    return definition.first_run(values, (yield from instant()))


def is_due_anew(before: Task, values: Mapping[str, Any]) -> bool:
    """Returns whether more than the interval of a schedule has changed. The statement itself handles a new interval."""
    bounds = any(definition.moment(values[bound]) != getattr(before, bound) for bound in ("starts_at", "ends_at"))
    woken = values["enabled"] and not before.enabled and before.kind in (Kind.CRON, Kind.CALENDAR)
    return (
        bounds
        or woken
        or any(
            values[column] != getattr(before, column) for column in ("kind", "expression", "zone", "during", "max_runs")
        )
    )


def next_time(before: Task, values: Mapping[str, Any]) -> Steps[datetime | None]:
    """Returns the task's due time if it still fits, or else the first time after now; None if the task has had all its
    runs.
    """
    if values["max_runs"] is not None and before.started >= values["max_runs"]:
        return None
    same = all(
        values[column] == getattr(before, column) for column in ("kind", "expression", "zone", "during", "every_ms")
    )
    starts, ends = (definition.moment(values[bound]) for bound in ("starts_at", "ends_at"))
    now, due = (yield from instant()), before.next_run
    is_ahead = due is not None and (due > now or before.kind not in (Kind.CRON, Kind.CALENDAR))
    fits = due is not None and is_ahead and (starts or due) <= due <= (ends or due)
    if same and fits:
        return due
    first = definition.first_run(values, now)
    if values["kind"] == Kind.INTERVAL and first == now:  # it may have run just now
        following = now + timing.span(values["every_ms"])
        return min(due, following) if due and fits and before.kind is Kind.INTERVAL else following
    return first


def parameters_of(values: Mapping[str, Any], registered: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns a definition as parameters of the statements. If `registered` is None, the row keeps its value."""
    return {
        "settings": settings_of(values),
        "registered": None if registered is None else json.dumps(registered, ensure_ascii=False),
    }


def settings_of(values: Mapping[str, Any], **more: Any) -> str:
    """Returns a definition as the JSON from which PostgreSQL makes a row."""
    empty = {column: values[column] or None for column in ("starts_at", "ends_at", "limits")}
    return json.dumps({**values, **empty, **more}, ensure_ascii=False, default=datetime.isoformat)


def resume(rows: Sequence[Row], by: str | None) -> Steps[set[int]]:
    """Ends the pauses of locked tasks. Returns the ids of those that were paused."""
    now = yield from instant()
    firsts = [kinds.first_by_default(row, now) for row in rows]
    ids = [row["id"] for row in rows]
    resumed = yield from written("resume_tasks", by=by, ids=ids, firsts=firsts)
    return {row["id"] for row in resumed}


def registered(row: Row) -> dict[str, Any]:
    """Returns the last registration without unknown columns, which may have been added by hand."""
    return {column: value for column, value in row["registered"].items() if column in DEFAULTS}


def check_change(row: Row, given: definition.Given) -> Steps[tuple[dict[str, Any], bool, datetime | None]]:
    """Returns the columns after a change, whether the task gets a new due time, and that time. Raises BadInput."""
    before, values = task_from(row), (yield from applied(given, row))
    again = is_due_anew(before, values)
    return values, again, (yield from next_time(before, values)) if again else None


def news(given: definition.Given, row: Row) -> dict[str, Any]:
    """Returns the fields that differ from the last registration. The bounds of an interval are one field."""
    registered = row["registered"]
    changed = {column for column, value in given.items() if column not in registered or registered[column] != value}
    if changed & BOUNDS:
        changed |= BOUNDS & given.keys()
    return of_use({column: value for column, value in given.items() if column in changed}, row)


def of_use(news: definition.Given, row: Row) -> dict[str, Any]:
    """Returns the changes without a zone that the task does not use, because an operator has removed its hours."""
    is_unused = row["kind"] == Kind.INTERVAL and not row["during"] and not {"kind", "during"} & news.keys()
    return {column: value for column, value in news.items() if column != "zone" or not is_unused}


def task_from(row: Row) -> Task:
    """Returns a row of `tasks` as a `Task`, with its warnings."""
    return tasks_from([row])[0]


def tasks_from(rows: Iterable[Row]) -> list[Task]:
    """Returns rows of `tasks` as `Task` objects, each with its warnings."""
    usual = settings.current().tick_ms
    tasks = [(_value(row), row["tick_ms"] or usual) for row in rows]
    return [
        replace(task, warnings=found) if (found := definition.warnings(task, tick)) else task for task, tick in tasks
    ]


def _value(row: Row) -> Task:
    values = {column: row[column] for column in _COLUMNS}
    values |= {"kind": Kind(row["kind"]), "waiting": tuple(row["waiting"]), "limits": tuple(row["limits"] or ())}
    values["last_outcome"] = Outcome(row["last_outcome"]) if row["last_outcome"] else None
    task = Task(**values)
    return replace(task, next_run=due_in_hours(task)) if task.during else task


def due_in_hours(task: Task) -> datetime | None:
    """Returns when a task with hours is due. Until a tick finds it due, its row may name a time at which they are over."""
    try:
        return task.next_run and kinds.bounded(task, hours.in_hours(task, task.next_run))
    except (BadInput, OverflowError):  # a row edited by hand: its push reports the error
        return task.next_run
