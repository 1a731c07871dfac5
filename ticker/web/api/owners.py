"""Lists owners with their task counts, and applies operations to all tasks of an owner."""

from typing import Any

from ticker.read import formatting, owners
from ticker.read.owners import OwnerStatus
from ticker.registration import operations
from ticker.tasks.fields import Task
from ticker.tasks.identity import Owner
from ticker.web.api import bookmarks
from ticker.web.api.fields import FLAG, NAME, OWNER, body, doc, limit
from ticker.web.api.operation import Operation
from ticker.web.api.schemas import object_of
from ticker.web.api.tasks import BY, PAUSE, RUN_NOW, RUNS_PLANNED
from ticker.web.site import Site


def list_owners(_: Site, db: Any, *, limit: int, **wanted: Any) -> dict[str, Any]:
    """Lists owners that have tasks. Those with failing or late tasks come first; each part is ordered by type and id."""
    statuses = owners.list_owners(db, **wanted, limit=limit + 1)
    listed = [{**formatting.plain_data(one), "owner": one.owner} for one in statuses[:limit]]
    return {"owners": listed, "next": bookmarks.of_owner(statuses[limit - 1]) if len(statuses) > limit else None}


def pause_owner(site: Site, db: Any, owner: Owner, *, by: str = BY, **why: Any) -> dict[str, Any]:
    """Pauses all tasks of the owner."""
    return {"tasks": site.tasks_data(db, operations.pause(db, owner=owner, by=by, **why))}


def resume_owner(site: Site, db: Any, owner: Owner) -> dict[str, Any]:
    """Resumes all paused tasks of the owner, and returns them."""
    return {"tasks": site.tasks_data(db, operations.resume(db, owner=owner, by=BY))}


def run_owner(_: Site, db: Any, owner: Owner, *, once_within: str | float | None = None) -> dict[str, Any]:
    """Plans one run of each task of the owner. The next tick pushes these runs. Skips disabled tasks."""
    return formatting.planned_data(operations.plan_runs(db, owner=owner, once_within=once_within))


FILTERS = {
    "owner_type": doc("Owners of this type.", NAME),
    "failing": doc("Owners with a task that is failing.", FLAG),
    "late": doc("Owners with a task that is late: due for longer than a tick and its tolerance, and not started.", FLAG),
    "paused": doc("Owners with a task that is paused, disabled or inactive. Matching any of `failing`, `late` and `paused` is enough.", FLAG),
    "after": bookmarks.OWNER, "limit": limit(),
}  # fmt: skip
WHO = {"owner": doc("The owner, as type:id.", OWNER)}
TASKS = object_of(tasks=list[Task])

OPERATIONS = (
    Operation("GET", "/owners", list_owners, {200: object_of(owners=list[OwnerStatus], next=str | None)}, query=FILTERS),
    Operation("POST", "/owners/{owner:path}/pause", pause_owner, {200: TASKS}, WHO, body=PAUSE, example={"reason": "unpaid"}),
    Operation("POST", "/owners/{owner:path}/resume", resume_owner, {200: TASKS}, WHO, body=body({})),
    Operation("POST", "/owners/{owner:path}/run", run_owner, {202: RUNS_PLANNED}, WHO, body=RUN_NOW),
)  # fmt: skip
