"""Defines the operations on tasks: list, create, read, change, delete, pause, resume, run, explain and preview."""

from typing import Any

from starlette.responses import JSONResponse

from ticker.errors import BadInput, UnknownTask
from ticker.model import TASK_STATES
from ticker.read import entries, forecast, formatting, overview, tasks, why
from ticker.registration import operations
from ticker.tasks import checks, fields, identity, preview, sorts
from ticker.tasks.fields import Task
from ticker.tasks.preview import MOST_TIMES
from ticker.web.api import bookmarks
from ticker.web.api.fields import INSTANT, NAME, OWNER, TIME, WHOLE, body, doc, limit, one_of
from ticker.web.api.operation import Operation
from ticker.web.api.schemas import object_of
from ticker.web.site import Site

OCCURRENCES, TIMES = 20, 10
BY = "the HTTP API"


def list_tasks(site: Site, db: Any, **wanted: Any) -> dict[str, Any]:
    """Lists the tasks that match all filters, ordered by id, page by page.

    Filters without an index (`name`, `function`, `queue`, `group`, `submitter`, `search`, a state of many tasks) search
    100,000 tasks per page. A page that ends there says so in `looked_through`, and may be empty. `next` continues after it.
    """
    if "owner" in wanted and "owner_type" in wanted:
        raise BadInput(
            "owner_type",
            wanted["owner_type"],
            "cannot be combined with an owner, which has a type; leave out one of them",
        )
    page = tasks.page_of_tasks(db, **wanted)
    return {
        "tasks": site.tasks_data(db, page.tasks), "next": None if page.next is None else str(page.next),
        "looked_through": page.looked_through,
    }  # fmt: skip


def create_task(site: Site, db: Any, *, function: Any, **given: Any) -> JSONResponse:
    """Makes sure that the owner has this task. Answers 201 if it is new, and 200 if the owner already had one with that name."""
    name = checks.plain("name", given["name"]) if "name" in given else checks.plain("function", function)
    # two requests that create it at the same time may both be answered with 201
    was_there = tasks.list_tasks(db, name=name, owner=given.get("owner", identity.NOBODY))
    task = overview.warned(db, operations.register(db, function, **given, by=BY))
    return JSONResponse(
        site.task_data(db, task), 200 if was_there else 201, {"Location": f"{site.root}/tasks/{task.id}"}
    )


def read_task(site: Site, db: Any, task: int) -> dict[str, Any]:
    """Returns one task."""
    return site.task_data(db, tasks.get(db, task))


def change_task(site: Site, db: Any, task: int, **changes: Any) -> dict[str, Any]:
    """Changes a task at once, as an operator. Registering the task again does not undo the change."""
    return site.task_data(db, overview.warned(db, operations.edit(db, task, by=BY, **changes)))


def delete_task(_: Site, db: Any, task: int) -> None:
    """Deletes a task. The records of its runs are kept."""
    if not operations.unregister(db, task, by=BY):
        raise UnknownTask(f"there is no task {task}")


def pause_task(site: Site, db: Any, task: int, *, by: str = BY, **why: Any) -> dict[str, Any]:
    """Pauses a task: nothing is pushed or started until it is resumed, or until the given time."""
    [paused] = operations.pause(db, task, by=by, **why)
    return site.task_data(db, paused)


def resume_task(site: Site, db: Any, task: int) -> dict[str, Any]:
    """Resumes a task. A task that is not paused does not change."""
    operations.resume(db, task, by=BY)
    return site.task_data(db, tasks.get(db, task))


def run_task(_: Site, db: Any, task: int, *, once_within: str | float | None = None) -> dict[str, Any]:
    """Plans one run, even of a paused task. The next tick pushes it, or the first one after the run at work.

    If a manual run of the task has not started yet, the call joins it (`joined`). With `once_within`, a new run keeps this distance
    from the last one, and an elastic interval returns to its lower bound. Apart from that, the schedule does not change. Answers 422
    if the task is disabled.
    """
    return formatting.planned_data(operations.plan_runs(db, task, once_within=once_within))


def why_task(site: Site, db: Any, task: int, **wanted: Any) -> dict[str, Any]:
    """Explains why a task ran or did not run: its last occurrences, or those around a time, and what happens next.

    A deleted task can be explained as well.
    """
    return site.why_data(db, why.why(db, task, **wanted))


def next_times(_: Site, db: Any, task: int, *, count: int) -> Any:
    """Explains the schedule of a task and returns its next times, beginning with the one at which it is due.

    A task that is disabled or paused, or whose owner is inactive, has no next times; the warnings name the cause.
    """
    return formatting.plain_data(
        forecast.next_times(tasks.get(db, task), entries.instant(db), count, tasks.tick_ms(db))
    )


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
    "after": bookmarks.TASK, "limit": limit(),
}  # fmt: skip
PAUSE = body({
    "reason": doc("The reason for the pause, shown with the task.", sorts.PROSE.schema),
    "until": doc("When the pause ends by itself.", INSTANT),
    "by": doc("The name of the user who pauses it.", NAME),
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
SHOWN, RUNS_PLANNED = {200: Task}, object_of(run_ids=list[int], joined=list[int])

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
    Operation("GET", "/tasks/{id}/next", next_times, {200: preview.Preview}, TASK, {"count": limit(TIMES, "The number of times.", MOST_TIMES)}),
)  # fmt: skip
