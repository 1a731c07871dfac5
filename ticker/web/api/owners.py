"""Owners: how many tasks each has, and how they are; all tasks of one paused, resumed, run."""

from http import HTTPStatus

from ticker.read import formatting, owners
from ticker.read.owners import OwnerStatus
from ticker.registration import operations
from ticker.web.api import bookmarks, schemas
from ticker.web.api.fields import bookmark, flag, label, number, owner
from ticker.web.api.operation import Answer, Asked, Operation
from ticker.web.api.tasks import BY, PAUSE, RUNS_PLANNED
from ticker.web.site import Site

PAGE, MOST = 50, 1000  # rows of one answer


def list_owners(site: Site, asked: Asked) -> Answer:
    """Owners that have tasks: those in trouble first, otherwise by type and id."""
    wanted = {"limit": PAGE, **asked.query}
    limit = wanted.pop("limit")
    with site.database.reading() as db:
        found = owners.list_owners(db, **wanted, limit=limit + 1)
    following = bookmarks.of_owner(found[limit - 1]) if len(found) > limit else None
    return Answer({"owners": [owner_data(one) for one in found[:limit]], "next": following})


def pause_owner(site: Site, asked: Asked) -> Answer:
    """Pauses all tasks that the owner has."""
    with site.database.writing() as db:
        paused = operations.pause(db, owner=asked.of, **{"by": BY, **asked.body})
    return Answer({"tasks": [site.task_data(task) for task in paused]})


def resume_owner(site: Site, asked: Asked) -> Answer:
    """Ends the pauses of the owner's tasks; those that were paused."""
    with site.database.writing() as db:
        resumed = operations.resume(db, owner=asked.of, by=BY)
    return Answer({"tasks": [site.task_data(task) for task in resumed]})


def run_owner(site: Site, asked: Asked) -> Answer:
    """Plans one run of each of the owner's tasks, which the next tick pushes; those that are disabled are passed over."""
    with site.database.writing() as db:
        return Answer({"run_ids": operations.run_now(db, owner=asked.of)}, HTTPStatus.ACCEPTED)


def owner_data(one: OwnerStatus) -> dict[str, object]:
    return {**formatting.plain_data(one), "owner": one.owner}


OWNER = owner("owner", "The owner, as type:id.")
TASKS = schemas.thing(tasks=schemas.array(schemas.ref("Task")))

OPERATIONS = (
    Operation("GET", "/owners", list_owners, {200: schemas.page("owners", schemas.ref("Owner"))}, query=(
        label("owner_type", "Owners of this type."),
        flag("failing", "Those with a task that is failing."),
        flag("late", "Those with a task that has been due for two ticks."),
        flag("paused", "Those with a task that is paused, disabled or inactive. Of these three any one is enough."),
        bookmark("after", bookmarks.OWNER, bookmarks.owner_before),
        number("limit", "How many at most.", 1, MOST, PAGE),
    )),
    Operation("POST", "/owners/{owner:path}/pause", pause_owner, {200: TASKS}, OWNER, body=PAUSE, example={"reason": "unpaid"}),
    Operation("POST", "/owners/{owner:path}/resume", resume_owner, {200: TASKS}, OWNER, body=()),
    Operation("POST", "/owners/{owner:path}/run", run_owner, {202: RUNS_PLANNED}, OWNER, body=()),
)  # fmt: skip
