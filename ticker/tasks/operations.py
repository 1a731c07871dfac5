"""Defines the functions with which applications create, change and delete tasks. They join the caller's transaction.

The first argument of each, `db`, is a connection of SQLAlchemy (or a Session), Django, psycopg or psycopg2. `task` is a
`Task`, an id, or a name together with `owner`. `owner` alone stands for all of its tasks.
"""

import logging
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Unpack

from ticker import settings
from ticker.db.sql import Row
from ticker.db.steps import Steps, writes
from ticker.errors import BadInput, TickerWarning, UnknownOwner, UnknownRun, UnknownTask
from ticker.model import at_work
from ticker.schedules.duration import HOUR, SECOND, Duration, milliseconds
from ticker.tasks import checks, fields, identity, owner_types
from ticker.tasks import rows as task_rows
from ticker.tasks.definition import Given, Wanted
from ticker.tasks.fields import Changes, Task, TaskFields
from ticker.tasks.identity import NOBODY, Owner, Ref, id_or_name, run_id
from ticker.tasks.rows import query

log = logging.getLogger("ticker.tasks")

ATTEMPTS = 10  # to find or insert a task that others insert and delete at the same time

_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)  # as the tables' CHECKs
_told: set[tuple[str, str]] = set()  # functions, and kinds of warnings


@writes
@fields.spelled_out
def register(
    function: str,
    *,
    name: str | None = None,
    owner: Any = None,
    first: datetime | None = None,
    by: str | None = None,
    **settings: Unpack[TaskFields],
) -> Steps[Task]:
    """Makes sure that the owner has this task. Idempotent per (owner, name), and safe to call from many processes at
    once.

    Exactly one of `every`, `cron`, `calendar` (systemd's calendar events) and `at` sets the schedule. `every` is 1 s to
    366 days. Durations are seconds, texts (`30s`, `1h30m`, `PT5M`) or timedeltas. `at`, `starts` and `ends` are
    datetimes with a zone, ISO texts, or seconds or milliseconds since 1970. `zone` applies to cron, calendar and
    `during`, and defaults to UTC.

    An interval task is due at once, and any other task at its first time. `first` sets another time, except with `at`.
    With `during`, such as `9-17 mon-fri`, an interval task is due only in these hours of the zone, or on these days.
    `max_runs` limits the number of scheduled starts. After an outage, a task runs once for all times that it missed
    (`catch_up="one"`), or not at all (`"none"`). A task with `at` and `remove=True` is deleted after its first success.
    With `spread`, each interval task gets a fixed phase in its interval, so that many tasks are not due at the same
    time. A cron or calendar task gets a phase of up to `within` after each of its times: `cron="0 6 * * *",
    spread=True, within="2h"`.

    With `overlap="skip"`, no job is pushed while another job of the task waits or runs. `limits` are one or two keys,
    such as `["imap.gmail.com", "account:7"]`; `limit` limits how many runs of a key are active, and how many start.

    A failed run is retried up to `retries` times, `backoff` apart (`10s..5m` doubles from 10 s to 5 minutes), if the
    retry can end before the next start. While a task keeps failing, its interval doubles up to `stretch`. After
    `pause_after` failures in a row, it is paused for `probe` (one hour); a single run then decides whether it
    continues. After `dead_man` intervals without a success, a notification is sent. `keep` selects the records that are
    kept: "all", "problems" or "none". `submitter`, `group`, `subject`, `description` and `metadata` are stored and
    displayed. In a queue with little room left, the owner's tasks with the highest `priority` (-1000 to 1000) go first.

    A repeated registration writes only the arguments that differ from the last *registration*, so a deploy does not
    undo what an operator has changed, paused or disabled since. An event records the change and its author: `by`, or
    the setting `ticker.by` of the transaction, or the database user. Raises BadInput, which names the field, its value
    and the limit, or UnknownOwner if the owner's row does not exist. In both cases nothing is written.

    A value that is allowed but unusual, such as a function that no worker has announced, is a sentence in `warnings` of the
    task, a TickerWarning and, if the program has log handlers, a line of the log.
    """
    fields.check_names("register", settings, fields.SETTINGS)
    wanted = Wanted(function=function, name=name, **settings)
    who, first = identity.identify(owner), aware("first", first)
    return (yield from registered(who, wanted.task_name(), wanted.given(), first, by))


@writes
def unregister(task: Ref = None, *, owner: Any = None, by: str | None = None) -> Steps[list[Task]]:
    """Deletes the task, or all tasks of the owner, and returns what it deleted. A missing task is not an error.

    In the same transaction, waiting and planned runs end as `gone`, and an event records the author (`by`, as in
    `register`).
    """
    ids = _ids((yield from _select(task, owner)))
    return _tasks((yield from task_rows.written("delete_tasks", by=by, ids=ids)))


@writes
def reconcile(owner: Any, wanted: Sequence[Wanted | Mapping[str, Any]], *, by: str | None = None) -> Steps[list[Task]]:
    """Makes the owner's tasks match a list: registers the tasks in the list and deletes all others.

    Each item is a `Wanted` or a mapping of its fields, such as `{"function": "mail.fetch", "every": "1m"}`. All items
    are checked before anything is written.
    """
    who = identity.identify(owner)
    if not who.type:
        raise BadInput(
            "owner", owner, "is not an owner; reconcile needs one, because it deletes the tasks that are not listed"
        )
    items = [item if isinstance(item, Wanted) else _wanted(item) for item in wanted]
    by_name = {item.task_name(): item for item in items}
    if len(by_name) < len(items):
        raise BadInput("wanted", sorted(item.task_name() for item in items), "has two tasks with the same name")
    rows = {row["name"]: row for row in (yield from _select(None, who))}
    for name, item in by_name.items():
        if name in rows:
            yield from task_rows.applied(task_rows.news(item.given(), rows[name]), rows[name])
        else:
            yield from task_rows.first_time((yield from task_rows.applied(item.given(), None)))
    unwanted = [row for name, row in rows.items() if name not in by_name]
    yield from task_rows.written("delete_tasks", by=by, ids=_ids(unwanted))
    if keys := [key for item in items for key in item.given().get("limits") or ()]:
        yield query("name_keys", keys=keys)
    made = {}
    for name in sorted(by_name):  # the same order in every process, against deadlocks
        made[name] = yield from registered(who, name, by_name[name].given(), None, by)
    return [made[name] for name in by_name]


@writes
def edit(task: Ref, *, owner: Any = None, by: str | None = None, **changes: Unpack[Changes]) -> Steps[Task]:
    """Changes a task on behalf of an operator. Registering the task again with its old arguments does not undo the
    change.

    `changes` are the fields of `register`, and `enabled`. They take effect at once. Raises UnknownTask or BadInput.
    """
    fields.check_names("edit", changes)
    given = fields.check(changes)
    before = _one((yield from _known(task, owner)))
    return (yield from task_rows.change(before, given, None, by=by))


@writes
def pause(
    task: Ref = None,
    *,
    owner: Any = None,
    by: str | None = None,
    reason: str = "",
    until: datetime | None = None,
) -> Steps[list[Task]]:
    """Pauses tasks until `resume`, or until the time `until`: no job is pushed, and no waiting job starts.

    Nothing that waits is lost: a job that a worker takes meanwhile goes back to the table, and is pushed again after
    the pause. `by` and `reason` are displayed. A task's former pause is replaced, with its reason and its end. Returns
    the paused tasks. Raises UnknownTask, or BadInput if `until` has passed.
    """
    whose = None if owner is None else identity.identify(owner)  # first, because it flushes a pending owner
    checked = yield from pausing(by, reason, until)
    return _tasks((yield from task_rows.pause((yield from _known(task, whose)), **checked)))


@writes
def resume(task: Ref = None, *, owner: Any = None, by: str | None = None) -> Steps[list[Task]]:
    """Ends the pause of tasks and returns them; tasks that were not paused are left out.

    An interval task is then due as soon as its spacing allows. Any other task that missed its time is due at once, for
    a single late run (`catch_up`). Raises UnknownTask.
    """
    resumed = yield from task_rows.resume((yield from _known(task, owner)), by)
    yield from task_rows.wake_up()
    return _tasks([row for row in (yield from _select(task, owner)) if row["id"] in resumed])


@writes
def run_now(task: Ref = None, *, owner: Any = None, once_within: Duration | None = None) -> Steps[list[int]]:
    """Plans one manual run of each task, including paused ones, and returns the ids of the runs. The next tick pushes
    them.

    If a manual run of the task has not started yet, the call joins it. A new run starts after the run at work. So many
    calls become few runs, and a run starts after each call. With `once_within` (1 s to 1 h), a new run keeps this
    distance from the last one, and an elastic interval returns to its lower bound. If a function calls this for its own
    interval task, the new run keeps the spacing.

    Apart from that, the schedule does not change. A task that is disabled, or whose owner is inactive, is skipped.
    Raises UnknownTask, or BadInput if none of the tasks can run.
    """
    return _ids((yield from plan_runs.steps(task, owner=owner, once_within=once_within)))


@writes
def plan_runs(task: Ref = None, *, owner: Any = None, once_within: Duration | None = None) -> Steps[list[Row]]:
    """Does the same, and returns rows: `id`, `has_joined`, and for a new run the `reason` why it waits."""
    distance = within(once_within)
    return (yield from planned(_ids(_switched_on((yield from _known(task, owner)))), distance))


def within(once_within: Duration | None) -> int | None:
    """Checks the distance from the last manual run, and returns it in milliseconds. Raises BadInput."""
    return None if once_within is None else milliseconds("once_within", once_within, least=SECOND, most=HOUR)


def planned(ids: Sequence[int], distance: int | None, delay: int = 0) -> Steps[list[Row]]:
    """Plans one manual run of each of these locked tasks, after `delay` milliseconds."""
    asking, since = at_work.get() or (None, None)
    traceparent = None
    if settings.current().otel:
        from ticker import tracing  # its library is an extra

        traceparent = tracing.traceparent()
    rows = yield query(
        "plan_runs",
        ids=ids,
        within_ms=distance,
        delay_ms=delay,
        asking=asking,
        asking_since=since,
        traceparent=traceparent,
    )
    yield from task_rows.wake_up()
    return rows


@writes
def stop(run: int, *, by: str | None = None) -> Steps[None]:
    """Asks to stop a run that has not ended. After the transaction has committed, a tick carries out the request.

    An active run is interrupted: its function receives SoftLimit, and its process is killed if it continues. The run
    ends as `interrupted`, with the reason `stopped by NAME`. This is not a failure, and the run is not retried. A run
    that has not started is dropped (`stopped`). If a run has pieces, those that have not ended are stopped.

    `by` is the name, as in `register`. The first request is kept. Raises UnknownRun, or BadInput if the run has ended.
    """
    ref = run_id(run)
    found = yield query("request_stop", id=ref, by=checks.author(by))
    if not found:
        raise UnknownRun(f"there is no run {ref}; it may have been pruned")
    if found[0]["state"] == "ended":
        raise BadInput(
            "run", ref, f"has already ended ({found[0]['outcome']}); only a run that has not ended can be stopped"
        )
    yield from task_rows.wake_up()


def tell(function: str, sentences: Iterable[str]) -> None:
    """Logs warnings and issues them as Python's, each kind of them once for each function."""
    for sentence in sentences:
        if (kind := (function, sentence.split()[0])) not in _told:
            _told.add(kind)
            if log.hasHandlers():  # otherwise, Python would print both
                log.warning("a task of %s was registered: %s", function, sentence, extra={"event": "task_warning"})
            frame, level = sys._getframe(), 1
            while frame.f_back is not None and frame.f_globals["__name__"].startswith("ticker."):
                frame, level = frame.f_back, level + 1
            warnings.warn(sentence, TickerWarning, stacklevel=level)


def registered(who: Owner, name: str, given: Given, first: datetime | None, by: str | None) -> Steps[Task]:
    """Makes sure that the owner has this task, whose fields were checked, and tells its warnings. Raises UnknownOwner."""
    task = yield from _found_or_made(who, name, given, first, by)
    tell(task.function, task.warnings)
    return task


def _found_or_made(who: Owner, name: str, given: Given, first: datetime | None, by: str | None) -> Steps[Task]:
    key = {"owner_type": who.type, "owner_id": who.id, "name": name}
    if (found := (yield query("look_up_task", **key))) and not task_rows.news(given, found[0]):
        return task_rows.task_from(found[0])
    of_owner = () if found else (yield from owner_types.warnings(who.type))
    for _ in range(ATTEMPTS):
        if found := (yield query("find_task", **key)):
            [row] = found
            if news := task_rows.news(given, row):
                return (yield from task_rows.change(row, news, {**task_rows.registered(row), **given}, by=by))
            return task_rows.task_from(row)
        if new := (yield from task_rows.insert(key, given, first)):
            return replace(new, warnings=(*new.warnings, *of_owner))
    raise UnknownOwner(f"owner: there is no {who.type} with the key {who.id}, so {name!r} would be an orphan")


def _select(task: Ref, owner: Any) -> Steps[list[Row]]:
    """Locks and returns the rows of the named tasks."""
    ref = id_or_name(task)
    if ref is None and owner is None:
        raise BadInput("task", None, "is missing; pass a task, its id, its name, or an owner")
    who = NOBODY if isinstance(ref, int) else identity.identify(owner)
    return (yield query(
        "select_tasks", id=ref if isinstance(ref, int) else None, owner_type=who.type, owner_id=who.id,
        name=ref if isinstance(ref, str) else None,
    ))  # fmt: skip


def _ids(rows: Sequence[Row]) -> list[int]:
    return [row["id"] for row in rows]


def _tasks(rows: Sequence[Row]) -> list[Task]:
    """Returns the tasks in the order of their ids."""
    return task_rows.tasks_from(sorted(rows, key=lambda row: row["id"]))


def _known(task: Ref, owner: Any) -> Steps[list[Row]]:
    if rows := (yield from _select(task, owner)):
        return rows
    named = "" if task is None else f" {task.id if isinstance(task, Task) else task!r}"
    whose = "" if owner is None else f" of owner {identity.identify(owner)}"
    raise UnknownTask(f"there is no task{named}{whose}")


def _switched_on(rows: list[Row]) -> list[Row]:
    if found := [row for row in rows if row["enabled"] and row["owner_active"]]:
        return found
    is_inactive = any(row["enabled"] for row in rows)
    if len(rows) == 1:
        remedy = (
            "it runs when the owner is active again"
            if is_inactive
            else f"enable it first (ticker edit {rows[0]['id']} --enable)"
        )
        why = f"{switched_off(rows[0])}; {remedy}"
        raise BadInput("task", rows[0]["name"], f"cannot run now: {why}")
    enable = "they are disabled; enable one first (ticker edit TASK --enable)"
    whose, why = rows[0], "it is inactive; they run when it is active again" if is_inactive else enable
    named = f"{whose['owner_type']}:{whose['owner_id']}"
    raise BadInput("owner", named, f"has {len(rows)} tasks, none of which can run now: {why}")


def switched_off(row: Row) -> str:
    """Returns why a task cannot run, or an empty text."""
    if not row["enabled"]:
        return "it is disabled"
    return "" if row["owner_active"] else "its owner is inactive"


def _one(rows: list[Row]) -> Row:
    if len(rows) > 1:
        raise BadInput("task", None, f"matches {len(rows)} tasks of that owner; name one of them")
    return rows[0]


def _wanted(item: Mapping[str, Any]) -> Wanted:
    if not isinstance(item, Mapping):
        raise BadInput("wanted", item, "is not a task; write Wanted(...) or a mapping of its fields")
    fields.check_names("wanted", item, ("function", "name", *fields.SETTINGS))
    if "function" not in item:
        raise BadInput("wanted", dict(item), "has no function")
    return Wanted(**item)


def pausing(by: str | None, reason: str, until: datetime | None) -> Steps[dict[str, Any]]:
    """Checks the arguments of a pause, whose end must be in the future, by the database's clock. Raises BadInput."""
    checked = {"by": checks.author(by), "reason": checks.prose("reason", reason), "until": aware("until", until)}
    if until is not None and until <= (now := (yield from task_rows.instant())):
        problem = f"has already passed: it is now {now.isoformat()}; give a later time, or leave it out"
        raise BadInput("until", until.isoformat(), problem)
    return checked


def aware(field: str, value: datetime | None) -> datetime | None:
    if value is not None and (not isinstance(value, datetime) or value.utcoffset() is None):
        raise BadInput(field, value, "is not a time with a zone; write datetime(..., tzinfo=UTC)")
    if value is not None and not _EARLIEST <= value <= _LATEST:
        raise BadInput(field, value.isoformat(), "is not between the years 1970 and 9999")
    return value
