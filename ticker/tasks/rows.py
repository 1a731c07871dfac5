"""Makes the statements of operations, writes definitions to their rows, and makes tasks of rows.

All of it runs in the caller's transaction.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, NamedTuple, cast

from ticker import clock, settings
from ticker.db import drivers, sql
from ticker.db.sql import Row
from ticker.db.steps import JSON_COLUMNS, Query, Steps
from ticker.engine import timing
from ticker.errors import BadInput, not_announced
from ticker.model import POSITIONAL, REGISTERED, Kind, Outcome, split_arguments, stored_arguments
from ticker.schedules import hours, kinds
from ticker.tasks import checks, definition
from ticker.tasks.fields import COLUMNS, DEFAULTS, Task

_COLUMNS = [field.name for field in fields(Task) if field.name not in ("args", "warnings", "waits_because")]
BOUNDS = {"every_ms", "every_most_ms"}

COMPUTED = {
    "pause": "{note_of_pause t}", "is_resuming": "{is_resuming t}", "waits_for": "{state_of_wait t}", "unknown_function": "{unknown_function t}", "tick_ms": "{tick_ms}",
}  # fmt: skip
"""The columns of `{task}` that are rules, not columns of the table."""


def _column(name: str) -> str:
    return COMPUTED.get(name, f"t.{name}::text" if name in JSON_COLUMNS else f"t.{name}")


OWN = dict.fromkeys(("args", "kwargs", "metadata"), "jsonb") | {
    "limits": "text[]",
    "subject": "text",
    "description": "text",
}
"""The fields, with their types, in which tasks that are registered together differ. They share the others."""


def _of_each(column: str) -> str:
    own = f"coalesce(o.{column}, n.{column})" if column in OWN else f"n.{column}"
    positional = f"CASE WHEN o.args <> '[]' THEN jsonb_build_object('{POSITIONAL}', o.args) ELSE '{{}}' END"
    return f"{own} || {positional}" if column == "kwargs" else own


_OF_TASK = (*_COLUMNS, "registered", "declared_in", "tick_ms")

LISTS = (
    ("settings", sql.listed(COLUMNS, "t")),
    ("settings_of_each", ", ".join(map(_of_each, COLUMNS))),
    ("own_columns", ", ".join(f"{name} {type_}" for name, type_ in OWN.items())),
    ("task", ", ".join(f"{_column(name)} AS {name}" for name in _OF_TASK)),
    ("restored", drivers.RESTORED),
)
"""Lists of columns: the fields that `ticker.tasks.fields` declares, also of tasks that share a definition, those of a `Task`, and
one that restores the search_path.
"""


ALL_SEEN: dict[str, Any] = {"seen_types": None, "seen_ids": None}
_seen: ContextVar[dict[str, Any]] = ContextVar("ticker_seen", default=ALL_SEEN)


@contextmanager
def seeing(owners: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Limits the statements that have the rule `seen` to the tasks and runs of these owners, by type and id."""
    pairs = [*owners]
    token = _seen.set({"seen_types": [type_ for type_, _ in pairs], "seen_ids": [id_ for _, id_ in pairs]})
    try:
        yield
    finally:
        _seen.reset(token)


def sees_all() -> bool:
    return _seen.get() is ALL_SEEN


def query(name: str, /, **parameters: Any) -> Query:
    """Returns a statement for the configured schema, with its parameters. `now` is that of the clock, unless it is given."""
    given = {"now": clock.now(), **parameters, **_seen.get()}
    return Query(sql.statements(settings.current().schema, LISTS)[name], given)


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


@dataclass(frozen=True, slots=True)
class Fitted:
    """A definition that fits together: the columns that were given, all columns, and when a new task is first due."""

    given: definition.Given
    values: Mapping[str, Any]
    begin: datetime | None

    @property
    def is_plain(self) -> bool:
        """Returns whether it is an interval without hours: the statement that inserts it makes it due in phase."""
        return self.values["kind"] == Kind.INTERVAL and not self.values["during"]


def fit(given: definition.Given) -> Steps[Fitted]:
    """Returns the definition of a new task. Raises BadInput."""
    values = yield from applied(given, None)
    return Fitted(given, values, (yield from first_time(values)))


def insert(
    key: Mapping[str, str], given: definition.Given, first: datetime | None, declared_in: str = ""
) -> Steps[Task | None]:
    """Inserts a task. Returns None if another process was faster, or the owner is gone."""
    yield from check_subject(key["owner_type"], given.get("subject"))
    fitted = yield from fit(given)
    new = New(tuple(key.values()), fitted, {}, first)
    if not (inserted := (yield insertion("insert_task", [new], declared_in))):
        return None
    [row] = inserted if first is not None or fitted.is_plain else (yield from placed(inserted))
    yield from announce([fitted])
    return (yield from unknown(row))


@dataclass(frozen=True, slots=True)
class New:
    """A task to insert: owner type, owner id and name, its definition, the columns that are its own, and its first time."""

    key: tuple[str, ...]
    fitted: Fitted
    own: Mapping[str, Any]
    first: datetime | None

    def __post_init__(self) -> None:
        if self.first is not None:
            definition.check_first(self.first, self.fitted.values)


def columns_of_keys(new: Iterable[New]) -> dict[str, list[str]]:
    """Returns the keys of these tasks, at least one, as parameters of statements."""
    columns = map(list, zip(*(item.key for item in new), strict=True))
    return dict(zip(("owner_types", "owner_ids", "names"), columns, strict=True))


def insertion(name: str, new: Sequence[New], declared_in: str = "") -> Query:
    """Returns the statement that inserts these tasks. Definitions are compared by identity."""
    definitions = {id(item.fitted): item.fitted for item in new}
    numbers = {id_: number for number, id_ in enumerate(definitions, 1)}
    parameters = [parameters_of(fitted.values, fitted.given) for fitted in definitions.values()]
    return query(
        name, **columns_of_keys(new), declared_in=declared_in,
        which=[numbers[id(item.fitted)] for item in new],
        owns=json.dumps([item.own for item in new], ensure_ascii=False),
        firsts=[item.fitted.begin if item.first is None else item.first for item in new],
        in_phase=[item.first is None and item.fitted.is_plain for item in new],
        definitions=[one["settings"] for one in parameters], registrations=[one["registered"] for one in parameters],
    )  # fmt: skip


def announce(inserted: Iterable[Fitted]) -> Steps[None]:
    """Lets the tickers know of new tasks, and of functions that run in batches."""
    known = (REGISTERED.get(fitted.values["function"]) for fitted in inserted)
    if any(function.batch > 1 for function in known if function):
        yield from declare_functions(replaces=False)
    yield from wake_up()


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


class Change(NamedTuple):
    """A locked row with the new values of its columns. `again`: it is due at `next_run` from now on. If `registered` is
    None, the row keeps its value.
    """

    row: Row
    values: Mapping[str, Any]
    again: bool
    next_run: datetime | None
    registered: Mapping[str, Any] | None = None


def change(
    row: Row,
    given: definition.Given,
    registered: Mapping[str, Any] | None,
    declared_in: str | None = None,
    by: str | None = None,
) -> Steps[Task]:
    checked = yield from check_change(row, given)
    [changed] = yield from change_all([checked._replace(registered=registered)], declared_in, by)
    return (yield from unknown(changed))


def change_all(changes: Iterable[Change], declared_in: str | None = None, by: str | None = None) -> Steps[list[Row]]:
    """Writes these changes, and returns the new rows in the same order."""
    by_id = {change.row["id"]: change for change in changes}
    parameters = [parameters_of(change.values, change.registered) for change in by_id.values()]
    changed = yield from written(
        "change_tasks", by=by, declared_in=declared_in, ids=list(by_id),
        definitions=[one["settings"] for one in parameters], registrations=[one["registered"] for one in parameters],
        agains=[change.again for change in by_id.values()], next_runs=[change.next_run for change in by_id.values()],
    )  # fmt: skip
    news = {row["id"]: row for row in changed}
    moved = [row for row in changed if _is_moved(by_id[row["id"]], row)]
    news |= {row["id"]: row for row in (yield from placed(moved))}
    yield from wake_up()
    return [news[id_] for id_ in by_id]


def _is_moved(change: Change, changed: Row) -> bool:
    is_due_elsewhere = change.again and changed["next_run"] != change.row["next_run"]
    return is_due_elsewhere or any(
        change.values[column] != change.row[column] for column in ("every_ms", "spread", "within_ms", "during", "zone")
    )


def placed(rows: Sequence[Row]) -> Steps[list[Row]]:
    """Makes these tasks due in phase, if they have one, and in their hours from now on. Returns the rows."""
    spread = [row["id"] for row in rows if row["spread"] and row["kind"] == Kind.INTERVAL and row["next_run"]]
    found = (yield query("next_in_phase", ids=spread)) if spread else []
    in_phase = {row["id"]: row["next_run"] for row in found}
    firsts: dict[int, datetime] = {}
    for row in rows:
        first = in_phase.get(row["id"], row["next_run"])
        if row["kind"] in (Kind.CRON, Kind.CALENDAR) and first is not None:
            task = task_from(row)
            first = kinds.bounded(task, kinds.first_run(kinds.of(task), (yield from instant()), task.starts_at))
        elif row["during"]:
            first = task_from({**row, "next_run": first}).next_run
        if first is not None and first != row["next_run"]:
            firsts[row["id"]] = first
    if firsts:
        yield query("set_next_runs", ids=list(firsts), next_runs=list(firsts.values()))
    return [{**row, "next_run": firsts.get(row["id"], row["next_run"])} for row in rows]


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
    stored = {column: values[column] or None for column in ("starts_at", "ends_at", "limits")}
    stored["kwargs"] = stored_arguments(values["args"], values["kwargs"])
    return json.dumps({**values, **stored, **more}, ensure_ascii=False, default=datetime.isoformat)


def resume(rows: Sequence[Row], by: str | None) -> Steps[set[int]]:
    """Ends the pauses of locked tasks. Returns the ids of those that were paused."""
    resumed = yield from written("resume_tasks", by=by, **(yield from with_firsts(rows)))
    return {row["id"] for row in resumed}


def pause(rows: Sequence[Row], **columns: Any) -> Steps[list[Row]]:
    """Pauses locked tasks, and returns them as they are then."""
    return (yield query("pause_tasks", **(yield from with_firsts(rows)), **columns))


def with_firsts(rows: Sequence[Row]) -> Steps[dict[str, Any]]:
    """Returns the ids of these tasks, and the first times of those that a trigger has created, as parameters."""
    now = yield from instant()
    return {"ids": [row["id"] for row in rows], "firsts": [kinds.first_by_default(row, now) for row in rows]}


def registered(row: Row) -> dict[str, Any]:
    """Returns the last registration without unknown columns, which may have been added by hand."""
    return {column: value for column, value in row["registered"].items() if column in DEFAULTS}


def keeps_subject(owner_type: str) -> Steps[bool]:
    """Returns whether the triggers of the owners' table set the subject of their tasks (`subject_from`)."""
    return bool(owner_type and (yield query("keeps_subject", type=owner_type)))


def check_subject(owner_type: str, subject: str | None) -> Steps[None]:
    """Raises BadInput for a subject that the triggers would replace."""
    if subject is not None and (yield from keeps_subject(owner_type)):
        raise BadInput(
            "subject", subject, f"would be replaced: the triggers of {owner_type} set it (subject_from); leave it out"
        )


def check_change(row: Row, given: definition.Given) -> Steps[Change]:
    """Returns the change that writes these fields to the row. Raises BadInput."""
    if given.get("subject", row["subject"]) != row["subject"]:
        yield from check_subject(row["owner_type"], given["subject"])
    before, values = task_from(row), (yield from applied(given, row))
    again = is_due_anew(before, values)
    return Change(row, values, again, (yield from next_time(before, values)) if again else None)


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
    values["args"], values["kwargs"] = split_arguments(row["kwargs"])
    values["last_outcome"] = Outcome(row["last_outcome"]) if row["last_outcome"] else None
    task = Task(**values)
    return replace(task, next_run=due_in_hours(task)) if task.during else task


def due_in_hours(task: Task) -> datetime | None:
    """Returns when a task with hours is due. Until a tick finds it due, its row may name a time at which they are over."""
    try:
        return task.next_run and kinds.bounded(task, hours.in_hours(task, task.next_run))
    except (BadInput, OverflowError):  # a row edited by hand: its push reports the error
        return task.next_run
