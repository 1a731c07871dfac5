"""A definition written into its row: the statements of registration, and what they need to know first.

Everything here runs in the caller's transaction; `execute` comes from `on`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, cast

from ticker import clock, settings
from ticker.db import sql
from ticker.engine import timing
from ticker.model import Kind, Outcome
from ticker.schedules import kinds
from ticker.tasks import checks, definition
from ticker.tasks.fields import DEFAULTS, Task

_COLUMNS = {field.name for field in fields(Task)} - {"warnings"}


def wake_up(execute: sql.Execute) -> None:
    """Lets the tickers know at the commit, where TICKER_WAKE is on."""
    if (said := settings.current()).wake:
        execute("wake_up", schema=said.schema)


def on(db: Any) -> sql.Execute:
    return sql.on(db, settings.current().schema, tuple(DEFAULTS))


def written(execute: sql.Execute, name: str, *, by: str | None, **parameters: Any) -> list[sql.Row]:
    """Executes a statement whose events name `by`; None: the transaction's setting `ticker.by`, else the database user."""
    if by is None:
        return execute(name, by=None, **parameters)
    [before] = execute("actor")
    rows = execute(name, by=checks.plain("by", by), **parameters)
    execute("act_as", by=before["by"])
    return rows


def insert(
    execute: sql.Execute, key: Mapping[str, str], given: definition.Given, first: datetime | None, declared_in: str = ""
) -> Task | None:
    """None: another process was faster, or the owner is gone."""
    values = applied(execute, given, None)
    begin = first_time(execute, values)
    if first is not None:
        definition.check_first(first, values)
        begin = first
    parameters = parameters_of(values, given)
    new = execute("insert_task", **key, declared_in=declared_in, first=begin, now=clock.now(), **parameters)
    if not new:
        return None
    row = new[0] if first is not None else placed(execute, new[0])
    wake_up(execute)
    return task_from(row)


def change(
    execute: sql.Execute,
    row: sql.Row,
    given: definition.Given,
    registered: Mapping[str, Any] | None,
    declared_in: str | None = None,
    by: str | None = None,
) -> Task:
    values, again, next_run = check_change(execute, row, given)
    parameters = parameters_of(values, registered)
    changed = written(
        execute,
        "change_task",
        by=by,
        id=row["id"],
        now=clock.now(),
        again=again,
        next_run=next_run,
        declared_in=declared_in,
        **parameters,
    )
    is_moved = again and changed[0]["next_run"] != row["next_run"]
    if is_moved or any(values[column] != row[column] for column in ("every_ms", "spread", "within_ms")):
        changed = [placed(execute, changed[0])]
    wake_up(execute)
    return task_from(changed[0])


def placed(execute: sql.Execute, row: sql.Row) -> sql.Row:
    """Returns the row with the task due at its place from now on; unchanged if the task has no place."""
    task = task_from(row)
    if task.next_run is None or (task.kind is Kind.INTERVAL and not task.spread) or task.kind is Kind.ONCE:
        return row
    if task.kind is Kind.INTERVAL:
        return (execute("place", ids=[task.id], now=clock.now()) or [row])[0]
    found = kinds.first_run(kinds.of(task), instant(execute), task.starts_at)
    if found is None or found > (task.ends_at or found):
        return row
    return execute("set_next_runs", ids=[task.id], next_runs=[found])[0]


def applied(execute: sql.Execute, given: definition.Given, row: sql.Row | None) -> dict[str, Any]:
    """All columns as a registration would write them, over a row if there is one."""
    if row is None:
        return definition.applied(given, None, now=lambda: instant(execute))
    return definition.applied(news(given, row), task_from(row), row["registered"], lambda: instant(execute))


def instant(execute: sql.Execute) -> datetime:
    return cast(datetime, execute("instant", now=clock.now())[0]["now"])


def first_time(execute: sql.Execute, values: Mapping[str, Any]) -> datetime | None:
    """When a new task is due; None: at once, by the clock of the statement."""
    if values["kind"] == Kind.INTERVAL and not values["starts_at"] and not values["ends_at"]:
        return None
    return definition.first_run(values, instant(execute))


def is_due_anew(before: Task, values: Mapping[str, Any]) -> bool:
    """Whether more has changed of its schedule than an interval, which the statement sees to."""
    bounds = any(definition.moment(values[bound]) != getattr(before, bound) for bound in ("starts_at", "ends_at"))
    woken = values["enabled"] and not before.enabled and before.kind in (Kind.CRON, Kind.CALENDAR)
    return (
        bounds
        or woken
        or any(values[column] != getattr(before, column) for column in ("kind", "expression", "zone", "max_runs"))
    )


def next_time(execute: sql.Execute, before: Task, values: Mapping[str, Any]) -> datetime | None:
    """A due time that still fits stays; otherwise the first behind now. None: it has had all its runs."""
    if values["max_runs"] is not None and before.started >= values["max_runs"]:
        return None
    same = all(values[column] == getattr(before, column) for column in ("kind", "expression", "zone", "every_ms"))
    starts, ends = (definition.moment(values[bound]) for bound in ("starts_at", "ends_at"))
    now, due = instant(execute), before.next_run
    is_ahead = due is not None and (due > now or before.kind not in (Kind.CRON, Kind.CALENDAR))
    if same and due and is_ahead and (starts or due) <= due <= (ends or due):
        return due
    found = definition.first_run(values, now)
    if values["kind"] == Kind.INTERVAL and found == now:  # it may have run just now
        return now + timing.span(values["every_ms"])
    return found


def parameters_of(values: Mapping[str, Any], registered: Mapping[str, Any] | None) -> dict[str, Any]:
    """A definition as the statements take it; `registered` None keeps what stands in the row."""
    return {
        "settings": settings_of(values),
        "registered": None if registered is None else json.dumps(registered, ensure_ascii=False),
    }


def settings_of(values: Mapping[str, Any], **more: Any) -> str:
    """Returns a definition as the JSON from which PostgreSQL makes a row."""
    bounds = {column: values[column] or None for column in ("starts_at", "ends_at")}
    return json.dumps({**values, **bounds, **more}, ensure_ascii=False, default=datetime.isoformat)


def wait_for_their_times(execute: sql.Execute, resumed: Sequence[sql.Row]) -> list[sql.Row]:
    """Tasks by cron and calendar that a pause made late wait for their next time; the rows as they are then."""
    now = instant(execute)
    again = {row["id"]: found for row in resumed if (found := kinds.after_pause(row, now)) is not None}
    if not again:
        return list(resumed)
    changed = execute("set_next_runs", ids=list(again), next_runs=list(again.values()))
    return [row for row in resumed if row["id"] not in again] + changed


def registered(row: sql.Row) -> dict[str, Any]:
    """What was registered last; what a hand has written beside it is left out."""
    return {column: value for column, value in row["registered"].items() if column in DEFAULTS}


def check_change(
    execute: sql.Execute, row: sql.Row, given: definition.Given
) -> tuple[dict[str, Any], bool, datetime | None]:
    """The columns after a change, whether the task is due anew, and when. BadInput where they do not fit together."""
    before = task_from(row)
    values = definition.applied(given, before, row["registered"], lambda: instant(execute))
    again = is_due_anew(before, values)
    return values, again, next_time(execute, before, values) if again else None


def news(given: definition.Given, row: sql.Row) -> dict[str, Any]:
    """What differs from the last registration."""
    registered = row["registered"]
    return {column: value for column, value in given.items() if column not in registered or registered[column] != value}


def task_from(row: sql.Row) -> Task:
    """A row of `tasks` as a value, with what is worth a warning."""
    return tasks_from([row])[0]


def tasks_from(rows: Iterable[sql.Row]) -> list[Task]:
    """Rows of `tasks` as values, each with what is worth a warning."""
    tick = settings.current().tick_ms
    return [replace(task, warnings=definition.warnings(task, tick)) for task in map(_value, rows)]


def _value(row: sql.Row) -> Task:
    values = {column: row[column] for column in _COLUMNS}
    values |= {"kind": Kind(row["kind"]), "waiting": tuple(row["waiting"])}
    values["last_outcome"] = Outcome(row["last_outcome"]) if row["last_outcome"] else None
    return Task(**values)
