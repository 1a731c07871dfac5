"""What applications call. Everything joins the caller's transaction: it commits, or goes, with the caller's own rows.

`db`, the first argument of each function, is a connection of SQLAlchemy (or a Session), Django, psycopg or psycopg2. A task is
named by its `Task`, its id, or its name together with `owner`; `owner` alone means all of its tasks.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Unpack

from ticker import clock
from ticker.db.sql import Row
from ticker.db.steps import Steps, writes
from ticker.errors import BadInput, UnknownOwner, UnknownTask
from ticker.schedules.duration import Duration
from ticker.tasks import checks, fields, identity
from ticker.tasks import rows as task_rows
from ticker.tasks.definition import Given, Wanted
from ticker.tasks.fields import Changes, Task
from ticker.tasks.identity import Owner
from ticker.tasks.queries import query
from ticker.tasks.reference import Ref, described, id_or_name

ATTEMPTS = 10  # to find or to insert a task that others insert and delete meanwhile

_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)  # as the tables' CHECKs


@writes
def register(
    function: str,
    *,
    name: str | None = None,
    owner: Any = None,
    every: Duration | None = None,
    cron: str | None = None,
    calendar: str | None = None,
    at: datetime | str | int | None = None,
    zone: str | None = None,
    first: datetime | None = None,
    starts: datetime | str | None = None,
    ends: datetime | str | None = None,
    max_runs: int | None = None,
    catch_up: str | None = None,
    remove: bool | None = None,
    spread: bool | None = None,
    within: Duration | None = None,
    queue: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    tolerance: Duration | None = None,
    box: Duration | None = None,
    overlap: str | None = None,
    retries: int | None = None,
    backoff: Duration | None = None,
    stretch: Duration | None = None,
    pause_after: int | None = None,
    probe: Duration | None = None,
    dead_man: int | None = None,
    keep: str | None = None,
    submitter: str | None = None,
    group: str | None = None,
    priority: int | None = None,
    subject: str | None = None,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    by: str | None = None,
) -> Steps[Task]:
    """Makes sure that the owner has this task; idempotent per (owner, name), safe from many processes at once.

    One of `every`, `cron`, `calendar` (systemd's) and `at` says when; `zone` is where the times of cron and calendar
    count, UTC by default. `every`, `tolerance` and `box` are seconds, texts (`30s`, `1h30m`, `PT5M`) or timedeltas;
    `every` from 1 s to 366 days; `at`, `starts` and `ends` are datetimes with a zone, ISO texts, or seconds or
    milliseconds since 1970. An interval task is due at once, the others at their first time, or at `first`. `max_runs`
    counts starts. What an outage made a task miss gives one late run (`catch_up="one"`) or none. A task with `at` is
    deleted once it has succeeded if `remove` is True. With `spread` an interval task has a place of its own in the
    interval, the same each time. So many tasks are due one after another, also after an outage. A cron or calendar task
    has its place up to `within` after each of its times (`cron="0 6 * * *", spread=True, within="2h"`).

    With `overlap="skip"` nothing is pushed while a job of the task waits or runs. A failure is followed by up to
    `retries` further attempts, `backoff` apart (`10s..5m`: doubled from the one to the other), as long as one can end
    before the next start. A task that goes on failing runs at intervals that are doubled up to `stretch`, and is paused
    after `pause_after` failures in a row, for `probe` (an hour), whereupon a single run decides. `dead_man` intervals
    without a success are told. `keep`: the record of "all" runs, of "problems" alone, or "none". `submitter`, `group`,
    `subject`, `description` and `metadata` are kept and shown. If a queue is short of room, the owner's tasks with
    the highest `priority` (-1000 to 1000) go first.

    Registering again writes only what was passed and differs from what was *registered* last. So a deploy does not undo what
    an operator changed, paused or disabled since. An event shows what changed and its author: `by`, else the transaction's
    setting `ticker.by`, else the database user. Raises BadInput, which names field, value and limit, or UnknownOwner if the
    owner's row is gone; then nothing is written.
    """
    said = locals()
    wanted = Wanted(**{field: said[field] for field in ("function", "name", *fields.SETTINGS)})
    return (yield from _register(wanted, identity.identify(owner), _aware("first", first), by))


@writes
def unregister(task: Ref = None, *, owner: Any = None, by: str | None = None) -> Steps[list[Task]]:
    """Deletes the task, or all tasks of the owner, and returns the deleted tasks. Idempotent: there may be no such task.

    In the same transaction, waiting and planned runs end as `gone`, and an event names the author: `by`, as in `register`.
    """
    ids = _ids((yield from _select(task, owner)))
    return _tasks((yield from task_rows.written("delete_tasks", by=by, ids=ids)))


@writes
def reconcile(owner: Any, wanted: Sequence[Wanted | Mapping[str, Any]], *, by: str | None = None) -> Steps[list[Task]]:
    """Makes the owner's set of tasks equal to a list: registers what is in it, deletes what is not.

    Each item is a `Wanted`, or a mapping of its fields: `{"function": "mail.fetch", "every": "1m"}`. All are checked
    before anything is written.
    """
    who = identity.identify(owner)
    if not who.type:
        raise BadInput("owner", owner, "is no owner; reconcile needs one, as it deletes what is not in the list")
    items = [item if isinstance(item, Wanted) else _wanted(item) for item in wanted]
    by_name = {item.task_name(): item for item in items}
    if len(by_name) < len(items):
        raise BadInput("wanted", sorted(item.task_name() for item in items), "has a name twice")
    rows = {row["name"]: row for row in (yield from _select(None, who))}
    for name, item in by_name.items():
        values = yield from task_rows.applied(item.given(), rows.get(name))
        if name not in rows:
            yield from task_rows.first_time(values)
    unwanted = [row for name, row in rows.items() if name not in by_name]
    yield from task_rows.written("delete_tasks", by=by, ids=_ids(unwanted))
    registered = {}
    for name in sorted(by_name):  # always in the same order: no deadlock
        registered[name] = yield from _register(by_name[name], who, None, by)
    return [registered[name] for name in by_name]


@writes
def edit(task: Ref, *, owner: Any = None, by: str | None = None, **changes: Unpack[Changes]) -> Steps[Task]:
    """Changes a task as an operator does: a later registration of the same values does not undo it.

    `changes` are the fields of `register`, and `enabled`. Takes effect at once. UnknownTask, BadInput.
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
    """Nothing is pushed and nothing starts until `resume`, or until that time, which is ahead. `by` and `reason` are shown."""
    checked = {
        "by": None if by is None else checks.plain("by", by),
        "reason": checks.prose("reason", reason),
        "until": (yield from _ahead("until", until)),
    }
    ids = _ids((yield from _known(task, owner)))
    return _tasks((yield query("pause_tasks", ids=ids, **checked)))


@writes
def resume(task: Ref = None, *, owner: Any = None, by: str | None = None) -> Steps[list[Task]]:
    """Ends the pause: an interval task is due as soon as it may run. What was not paused stays as it is and is not returned."""
    ids = _ids((yield from _known(task, owner)))
    resumed = yield from task_rows.written("resume_tasks", by=by, ids=ids, now=clock.now())
    resumed = yield from task_rows.wait_for_their_times(resumed)
    yield from task_rows.wake_up()
    return _tasks(resumed)


@writes
def run_now(task: Ref = None, *, owner: Any = None) -> Steps[list[int]]:
    """Plans one manual run, which the next tick pushes, also of a paused task; the schedule is not touched. The runs' ids.

    A task that is disabled, or whose owner is inactive, would only drop it: BadInput, or passed over beside others that run.
    """
    ids = _ids(_switched_on((yield from _known(task, owner))))
    planned = yield query("plan_runs", ids=ids, now=clock.now())
    yield from task_rows.wake_up()
    return _ids(planned)


def _register(wanted: Wanted, who: Owner, first: datetime | None, by: str | None) -> Steps[Task]:
    name, given = wanted.task_name(), wanted.given()
    key = {"owner_type": who.type, "owner_id": who.id, "name": name}
    if (found := (yield query("look_up_task", **key))) and not task_rows.news(given, found[0]):
        return task_rows.task_from(found[0])
    for _ in range(ATTEMPTS):
        if found := (yield query("find_task", **key)):
            return (yield from _register_again(found[0], given, by))
        if new := (yield from task_rows.insert(key, given, first)):
            return new
    raise UnknownOwner(f"owner: there is no {who.type} with the key {who.id}, so {name!r} would be an orphan")


def _register_again(row: Row, given: Given, by: str | None) -> Steps[Task]:
    if news := task_rows.news(given, row):
        return (yield from task_rows.change(row, news, {**task_rows.registered(row), **given}, by=by))
    return task_rows.task_from(row)


def _select(task: Ref, owner: Any) -> Steps[list[Row]]:
    """Locks the rows of the tasks that are meant."""
    ref = id_or_name(task)
    if ref is None and owner is None:
        raise BadInput("task", None, "names no task: give a task, its id, its name, or an owner")
    who = Owner("", "") if isinstance(ref, int) else identity.identify(owner)
    return (yield query(
        "select_tasks", id=ref if isinstance(ref, int) else None, owner_type=who.type, owner_id=who.id,
        name=ref if isinstance(ref, str) else None,
    ))  # fmt: skip


def _ids(rows: Sequence[Row]) -> list[int]:
    return [row["id"] for row in rows]


def _tasks(rows: Sequence[Row]) -> list[Task]:
    """In the order of their ids."""
    return task_rows.tasks_from(sorted(rows, key=lambda row: row["id"]))


def _known(task: Ref, owner: Any) -> Steps[list[Row]]:
    if rows := (yield from _select(task, owner)):
        return rows
    named = "" if task is None else f" {task.id if isinstance(task, Task) else task!r}"
    whose = "" if owner is None else f" of owner {described(owner)}"
    raise UnknownTask(f"there is no task{named}{whose}")


def _switched_on(rows: list[Row]) -> list[Row]:
    if found := [row for row in rows if row["enabled"] and row["owner_active"]]:
        return found
    is_inactive = any(row["enabled"] for row in rows)
    if len(rows) == 1:
        enable = f"it is disabled; enable it first (ticker edit {rows[0]['id']} --enable)"
        why = "its owner is inactive; it runs when the owner is active again" if is_inactive else enable
        raise BadInput("task", rows[0]["name"], f"cannot run now: {why}")
    enable = "they are disabled; enable one first (ticker edit TASK --enable)"
    whose, why = rows[0], "it is inactive; they run when it is active again" if is_inactive else enable
    named = f"{whose['owner_type']}:{whose['owner_id']}"
    raise BadInput("owner", named, f"has {len(rows)} tasks, none of which can run now: {why}")


def _one(rows: list[Row]) -> Row:
    if len(rows) > 1:
        raise BadInput("task", None, f"is {len(rows)} tasks of that owner; name one")
    return rows[0]


def _wanted(item: Mapping[str, Any]) -> Wanted:
    if not isinstance(item, Mapping):
        raise BadInput("wanted", item, "is no task; write Wanted(...) or a mapping of its fields")
    fields.check_names("wanted", item, ("function", "name", *fields.SETTINGS))
    if "function" not in item:
        raise BadInput("wanted", dict(item), "has no function")
    return Wanted(**item)


def _ahead(field: str, value: datetime | None) -> Steps[datetime | None]:
    """By the clock that decides."""
    if (end := _aware(field, value)) is not None and end <= (now := (yield from task_rows.instant())):
        raise BadInput(field, end.isoformat(), f"is over already: it is {now.isoformat()}; name a later time, or none")
    return end


def _aware(field: str, value: datetime | None) -> datetime | None:
    if value is not None and (not isinstance(value, datetime) or value.utcoffset() is None):
        raise BadInput(field, value, "is not a time with a zone; write datetime(..., tzinfo=UTC)")
    if value is not None and not _EARLIEST <= value <= _LATEST:
        raise BadInput(field, value.isoformat(), "is not between the years 1970 and 9999")
    return value
