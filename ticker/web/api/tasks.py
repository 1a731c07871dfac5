"""Tasks: listed, made, read, changed and deleted; paused, resumed, run; why one ran or did not, and its next times."""

from http import HTTPStatus
from typing import Any

from ticker.errors import BadInput, UnknownTask, quoted
from ticker.model import NAME_AT_MOST
from ticker.read import entries, formatting, overview, tasks, why
from ticker.registration import operations
from ticker.tasks import checks, identity, preview, sorts
from ticker.tasks.preview import MOST_TIMES
from ticker.web.api import bookmarks, schemas, task_fields
from ticker.web.api.fields import Field, bookmark, id_in, instant, label, number, one_of, owner
from ticker.web.api.operation import Answer, Asked, Operation
from ticker.web.site import Site

PAGE, MOST = 50, 1000  # rows of one answer
OCCURRENCES, TIMES = 20, 10
BY = "the HTTP API"


def list_tasks(site: Site, asked: Asked) -> Answer:
    """Tasks by id, page by page: those that fit all filters.

    What no index knows (`name`, `function`, `queue`, `group`, `submitter`, `search`, a state with a crowd in it) is looked for
    in 100,000 tasks a page. A page that ends there says so in `looked_through`; it may be empty, and `next` goes on behind it.
    """
    wanted: dict[str, Any] = {"limit": PAGE, **asked.query}
    if "owner" in wanted and "owner_type" in wanted:
        raise BadInput("owner_type", wanted["owner_type"], "stands beside an owner, which has a type; leave one out")
    with site.database.reading() as db:
        page = tasks.page_of_tasks(db, **wanted)
    return Answer({
        "tasks": [site.task_data(task) for task in page.tasks], "next": None if page.next is None else str(page.next),
        "looked_through": page.looked_through,
    })  # fmt: skip


def create_task(site: Site, asked: Asked) -> Answer:
    """Makes sure that the owner has this task. 201 where it is new, 200 where there was one of that name."""
    said = dict(asked.body)
    function = said.pop("function")
    name = checks.plain("name", said["name"]) if "name" in said else checks.plain("function", function)
    with site.database.writing() as db:
        # of two who make it at the same instant, both may be told that it is new
        was_there = tasks.list_tasks(db, name=name, owner=said.get("owner", identity.NOBODY))
        task = overview.warned(db, operations.register(db, function, **said, by=BY))
    return Answer(
        site.task_data(task), HTTPStatus.OK if was_there else HTTPStatus.CREATED, f"{asked.root}/tasks/{task.id}"
    )


def read_task(site: Site, asked: Asked) -> Answer:
    """One task."""
    with site.database.reading() as db:
        return Answer(site.task_data(tasks.get(db, asked.of)))


def change_task(site: Site, asked: Asked) -> Answer:
    """Changes what is said of a task, at once, as an operator does: registering it again does not undo it."""
    with site.database.writing() as db:
        task = overview.warned(db, operations.edit(db, asked.of, by=BY, **asked.body))
    return Answer(site.task_data(task))


def delete_task(site: Site, asked: Asked) -> Answer:
    """Deletes a task; the records of its runs stay."""
    with site.database.writing() as db:
        if not operations.unregister(db, asked.of, by=BY):
            raise UnknownTask(f"there is no task {asked.of}")
    return Answer(status=HTTPStatus.NO_CONTENT)


def pause_task(site: Site, asked: Asked) -> Answer:
    """Nothing of it is pushed and nothing starts, until it is resumed, or until that time."""
    with site.database.writing() as db:
        [task] = operations.pause(db, asked.of, **{"by": BY, **asked.body})
    return Answer(site.task_data(task))


def resume_task(site: Site, asked: Asked) -> Answer:
    """Ends its pause; a task that was not paused stays as it is."""
    with site.database.writing() as db:
        operations.resume(db, asked.of, by=BY)
        return Answer(site.task_data(tasks.get(db, asked.of)))


def run_task(site: Site, asked: Asked) -> Answer:
    """Plans one run, which the next tick pushes, also of a paused task; the schedule is not touched. 422 where it is disabled."""
    with site.database.writing() as db:
        return Answer({"run_ids": operations.run_now(db, asked.of)}, HTTPStatus.ACCEPTED)


def why_task(site: Site, asked: Asked) -> Answer:
    """Why it ran, or did not: its last occurrences, or those around a time, and what happens next. Also of a deleted task."""
    with site.database.reading() as db:
        return Answer(site.why_data(why.why(db, asked.of, **{"limit": OCCURRENCES, **asked.query})))


def next_times(site: Site, asked: Asked) -> Answer:
    """What its schedule means, and its next times, from the one at which it is due; none of a task that is done."""
    with site.database.reading() as db:
        task, now = tasks.get(db, asked.of), entries.instant(tasks.on(db))
    return Answer(formatting.plain_data(preview.of_task(task, now, asked.query.get("count", TIMES))))


def task_in(_: str, text: str) -> int:
    if (found := id_in(text)) is None:
        raise UnknownTask(f"there is no task {quoted(text)}; ids are whole numbers from 1")
    return found


TASK = Field("id", "The task's id.", {"type": "integer", "minimum": 1}, task_in)
LIMIT = number("limit", "How many at most.", 1, MOST, PAGE)
FILTERS = (
    owner("owner", "Tasks of this owner, as type:id."),
    label("owner_type", "Tasks of all owners of this type."),
    label("name", "Tasks of this name."),
    label("function", "Tasks that run this function."),
    label("queue", "Tasks of this queue."),
    label("group", "Tasks of this group."),
    label("submitter", "Tasks with this submitter."),
    one_of("state", "Tasks in this state; a task may be in several.", tasks.STATES),
    label("search", "A part of the name, the function, the owner or the subject, in any case."),
)
PAUSE = (
    Field("reason", "Why, for those who ask.", sorts.PROSE.schema),
    instant("until", "When it ends by itself."),
    Field("by", "Who pauses it.", {"type": "string", "minLength": 1, "maxLength": NAME_AT_MOST}),
)
SHOWN, RUNS_PLANNED = schemas.ref("Task"), schemas.thing(run_ids=schemas.array(schemas.WHOLE))

OPERATIONS = (
    Operation("GET", "/tasks", list_tasks, {200: schemas.page("tasks", SHOWN, looked_through=schemas.perhaps(schemas.WHOLE))},
              query=(*FILTERS, bookmark("after", bookmarks.TASK, bookmarks.of_task), LIMIT)),
    Operation("POST", "/tasks", create_task, {200: SHOWN, 201: SHOWN}, body=task_fields.NEW,
              example={"function": "mail.fetch", "owner": "mail_channels:5", "every": "1m", "kwargs": {"channel_id": 5}}),
    Operation("GET", "/tasks/{id}", read_task, {200: SHOWN}, TASK),
    Operation("PATCH", "/tasks/{id}", change_task, {200: SHOWN}, TASK, body=task_fields.CHANGES, example={"every": "5m"}),
    Operation("DELETE", "/tasks/{id}", delete_task, {204: None}, TASK),
    Operation("POST", "/tasks/{id}/pause", pause_task, {200: SHOWN}, TASK, body=PAUSE, example={"reason": "their server is being moved", "until": "2030-01-01T06:00:00Z"}),
    Operation("POST", "/tasks/{id}/resume", resume_task, {200: SHOWN}, TASK, body=()),
    Operation("POST", "/tasks/{id}/run", run_task, {202: RUNS_PLANNED}, TASK, body=()),
    Operation("GET", "/tasks/{id}/why", why_task, {200: schemas.ref("Why")}, TASK,
              query=(instant("at", "Around that time, which has passed."), number("limit", "How many occurrences.", 1, MOST, OCCURRENCES))),
    Operation("GET", "/tasks/{id}/next", next_times, {200: schemas.ref("Preview")}, TASK,
              query=(number("count", "How many times.", 1, MOST_TIMES, TIMES),)),
)  # fmt: skip
