"""Defines the operations on tasks: of one, of all tasks of an owner, and what explains a schedule before it is used."""

from typing import Any

from starlette.responses import JSONResponse

from ticker import clock, numbers
from ticker.errors import BadInput, UnknownTask
from ticker.model import TASK_STATES, Kind
from ticker.read import entries, forecast, formatting, overview, tasks, why
from ticker.read.owners import OwnerStatus
from ticker.read.owners import list_owners as read_owners
from ticker.registration import operations
from ticker.schedules import kinds
from ticker.tasks import checks, definition, fields, identity, preview, sorts
from ticker.tasks.fields import Task
from ticker.tasks.identity import Owner
from ticker.tasks.preview import MOST_TIMES, Preview
from ticker.web.api.fields import (
    AFTER_ID,
    AFTER_OWNER,
    FLAG,
    INSTANT,
    NAME,
    OWNER,
    TEXT,
    TIME,
    WHOLE,
    body,
    doc,
    limit,
    of_owner,
    one_of,
)
from ticker.web.api.operation import Operation
from ticker.web.api.schemas import object_of
from ticker.web.site import Site

OCCURRENCES, NEXT, EXPLAINED = 20, 10, 5
SCHEDULES = tuple(checks.NAMES.values())


def list_tasks(_: Site, db: Any, **wanted: Any) -> dict[str, Any]:
    """Lists the tasks that match all filters, ordered by id, page by page.

    Filters without an index (`name`, `function`, `queue`, `group`, `submitter`, `search`, a state of many tasks) search
    100,000 tasks per page. A page that ends there says so in `looked_through`, and may be empty. `next` continues after
    it.
    """
    if "owner" in wanted and "owner_type" in wanted:
        raise BadInput(
            "owner_type",
            wanted["owner_type"],
            "cannot be combined with an owner, which has a type; leave out one of them",
        )
    page = tasks.page_of_tasks(db, **wanted)
    following = None if page.next is None else str(page.next)
    return {"tasks": page.tasks, "next": following, "looked_through": page.looked_through}


def create_task(here: Site, db: Any, *, function: Any, **given: Any) -> JSONResponse:
    """Makes sure that the owner has this task. Answers 201 if it is new, and 200 if the owner already had one with that
    name.
    """
    name = checks.plain("name", given["name"]) if "name" in given else checks.plain("function", function)
    # two requests that create it at the same time may both be answered with 201
    was_there = tasks.list_tasks(db, name=name, owner=given.get("owner", identity.NOBODY))
    task = overview.warned(db, operations.register(db, function, **given, by=here.by))
    return JSONResponse(here.data(db, task), 200 if was_there else 201, {"Location": f"{here.root}/tasks/{task.id}"})


def read_task(_: Site, db: Any, task: int) -> Task:
    """Returns one task."""
    return tasks.get(db, task)


def change_task(here: Site, db: Any, task: int, **changes: Any) -> Task:
    """Changes a task at once, as an operator. Registering the task again does not undo the change."""
    return overview.warned(db, operations.edit(db, task, by=here.by, **changes))


def delete_task(here: Site, db: Any, task: int) -> None:
    """Deletes a task. The records of its runs are kept."""
    if not operations.unregister(db, task, by=here.by):
        raise UnknownTask(f"there is no task {task}")


def pause_task(here: Site, db: Any, task: int, **why: Any) -> Task:
    """Pauses a task: nothing is pushed or started until it is resumed, or until the given time."""
    [paused] = operations.pause(db, task, **{"by": here.by} | why)
    return paused


def resume_task(here: Site, db: Any, task: int) -> Task:
    """Resumes a task. A task that is not paused does not change."""
    operations.resume(db, task, by=here.by)
    return tasks.get(db, task)


def run_task(_: Site, db: Any, task: int, *, once_within: str | float | None = None) -> dict[str, Any]:
    """Plans one run, even of a paused task. The next tick pushes it, or the first one after the run at work.

    If a manual run of the task has not started yet, the call joins it (`joined`). With `once_within`, a new run keeps
    this distance from the last one, and an elastic interval returns to its lower bound. Apart from that, the schedule
    does not change. Answers 422 if the task is disabled.
    """
    return formatting.planned_data(operations.plan_runs(db, task, once_within=once_within))


def why_task(_: Site, db: Any, task: int, **wanted: Any) -> why.Why:
    """Explains why a task ran or did not run: its last occurrences, or those around a time, and what happens next.

    A deleted task can be explained as well.
    """
    return why.why(db, task, **wanted)


def next_times(_: Site, db: Any, task: int, *, count: int) -> Preview:
    """Explains the schedule of a task and returns its next times, beginning with the one at which it is due.

    A task that is disabled or paused, or whose owner is inactive, has no next times; the warnings name the cause.
    """
    return forecast.next_times(tasks.get(db, task), entries.instant(db), count, tasks.tick_ms(db))


def validate_schedule(_: Site, __: None, *, count: Any = EXPLAINED, **given: Any) -> Preview:
    """Explains a schedule: its kind, its stored form, a description in words, its next times, and warnings."""
    return looked_at(given, numbers.whole("count", count, 1, MOST_TIMES))


def looked_at(given: dict[str, Any], count: int) -> Preview:
    """Returns the meaning of an expression of any kind, or of a schedule field of `register`. Raises BadInput."""
    named = [name for name in ("expression", *SCHEDULES) if name in given]
    if not named:
        raise BadInput("expression", None, "is missing; write 15m, 0 9 * * 1-5, Mon..Fri 09:00 or 2027-01-01T00:00:00Z")
    if named[0] == "expression":
        if named[1:]:
            raise BadInput(named[1], given[named[1]], "cannot be combined with expression; give one of them")
        of_interval = {name: given.get(name) for name in ("zone", "during")}
        return preview.validate(given["expression"], **of_interval, count=count, now=clock.now())
    values = {"zone": "UTC", "during": "", **fields.check(given)}
    schedule = preview.in_hours(definition.schedule_of(values), values["zone"], values["during"])
    now = clock.now() or clock.python_utc()
    kinds.never_fires(schedule, now, checks.NAMES[Kind(values["kind"])], given[named[0]])
    return preview.of(schedule, now, count)


def list_owners(_: Site, db: Any, *, limit: int, **wanted: Any) -> dict[str, Any]:
    """Lists owners that have tasks. Those with failing or late tasks come first; each part is ordered by type and id."""
    statuses = read_owners(db, **wanted, limit=limit + 1)
    return {"owners": statuses[:limit], "next": of_owner(statuses[limit - 1]) if len(statuses) > limit else None}


def pause_owner(here: Site, db: Any, owner: Owner, **why: Any) -> dict[str, Any]:
    """Pauses all tasks of the owner."""
    return {"tasks": operations.pause(db, owner=owner, **{"by": here.by} | why)}


def resume_owner(here: Site, db: Any, owner: Owner) -> dict[str, Any]:
    """Resumes all paused tasks of the owner, and returns them."""
    return {"tasks": operations.resume(db, owner=owner, by=here.by)}


def run_owner(_: Site, db: Any, owner: Owner, *, once_within: str | float | None = None) -> dict[str, Any]:
    """Plans one run of each task of the owner. The next tick pushes these runs. Skips disabled tasks."""
    return formatting.planned_data(operations.plan_runs(db, owner=owner, once_within=once_within))


TASK = {"id": doc("The task's id.", WHOLE, minimum=1)}
FILTERS = {
    "owner": doc("Tasks of this owner, as type:id.", OWNER),
    "owner_type": doc("Tasks of all owners of this type.", NAME),
    "name": doc("Tasks with this name.", NAME),
    "function": doc("Tasks that run this function.", NAME),
    "queue": doc("Tasks in this queue.", NAME),
    "group": doc("Tasks in this group.", NAME),
    "submitter": doc("Tasks with this submitter.", NAME),
    "state": doc("Tasks in this state; a task may be in several.", one_of(*TASK_STATES)),
    "search": doc("A part of the name, function, owner or subject; case is ignored.", NAME),
    "after": AFTER_ID, "limit": limit(),
}  # fmt: skip
PAUSE = body({
    "reason": doc("The reason for the pause, shown wherever the pause is.", sorts.PROSE.schema),
    "until": doc("When the pause ends by itself.", INSTANT),
    "by": doc("The name of the user who pauses.", NAME),
})  # fmt: skip
AROUND = {
    "at": doc(
        "A time in the past, such as 09:00 (UTC), 2h (ago), or 2026-07-01T12:00:00Z; the occurrences around it are returned.",
        TIME,
    ),
    "limit": limit(OCCURRENCES, "The number of occurrences."),
}
RUN_NOW = body({
    "once_within": doc("The distance from the last manual run: a duration, or seconds.", sorts.DURATION),
})  # fmt: skip
EXPRESSION = doc("A schedule of any kind: 15m, 0 9 * * 1-5, Mon..Fri 09:00, 2027-01-01T00:00:00Z.", TEXT)
EXPLAIN = body({
    "expression": EXPRESSION, **fields.properties((*fields.SCHEDULES, fields.FIELDS["during"])),
    "count": limit(EXPLAINED, "The number of times.", MOST_TIMES),
})  # fmt: skip
OF_OWNERS = {
    "owner_type": doc("Owners of this type.", NAME),
    "failing": doc("Owners with a task that is failing.", FLAG),
    "late": doc("Owners with a task that is late: due for longer than a tick and its tolerance, and not started.", FLAG),
    "paused": doc("Owners with a task that is paused, disabled or inactive. Matching any of `failing`, `late` and `paused` is enough.", FLAG),
    "after": AFTER_OWNER, "limit": limit(),
}  # fmt: skip
SHOWN, RUNS_PLANNED = {200: Task}, object_of(run_ids=list[int], joined=list[int])
WHO, TASKS = {"owner": doc("The owner, as type:id.", OWNER)}, object_of(tasks=list[Task])

OPERATIONS = (
    Operation("GET", "/tasks", list_tasks, {200: object_of(tasks=list[Task], next=str | None, looked_through=int | None)}, query=FILTERS),
    Operation("POST", "/tasks", create_task, {200: Task, 201: Task}, body=fields.body_of_register(),
              example={"function": "mail.fetch", "owner": "mail_channels:5", "every": "1m", "kwargs": {"channel_id": 5}}),
    Operation("GET", "/tasks/{id}", read_task, SHOWN, TASK),
    Operation("PATCH", "/tasks/{id}", change_task, SHOWN, TASK, body=fields.body_of_edit(), example={"every": "5m"}),
    Operation("DELETE", "/tasks/{id}", delete_task, {204: None}, TASK),
    Operation("POST", "/tasks/{id}/pause", pause_task, SHOWN, TASK, body=PAUSE,
              example={"reason": "their server is being moved", "until": "2030-01-01T06:00:00Z"}),
    Operation("POST", "/tasks/{id}/resume", resume_task, SHOWN, TASK, body=body({})),
    Operation("POST", "/tasks/{id}/run", run_task, {202: RUNS_PLANNED}, TASK, body=RUN_NOW),
    Operation("GET", "/tasks/{id}/why", why_task, {200: why.Why}, TASK, AROUND),
    Operation("GET", "/tasks/{id}/next", next_times, {200: Preview}, TASK,
              {"count": limit(NEXT, "The number of times.", MOST_TIMES)}),
    Operation(
        "POST", "/schedules/validate", validate_schedule, {200: Preview}, body=EXPLAIN, offline=True,
        example={"expression": "0 9 * * 1-5", "zone": "Europe/Berlin"},
    ),
    Operation("GET", "/owners", list_owners, {200: object_of(owners=list[OwnerStatus], next=str | None)},
              query=OF_OWNERS),
    Operation("POST", "/owners/{owner:path}/pause", pause_owner, {200: TASKS}, WHO, body=PAUSE, example={"reason": "unpaid"}),
    Operation("POST", "/owners/{owner:path}/resume", resume_owner, {200: TASKS}, WHO, body=body({})),
    Operation("POST", "/owners/{owner:path}/run", run_owner, {202: RUNS_PLANNED}, WHO, body=RUN_NOW),
)  # fmt: skip
