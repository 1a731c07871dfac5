"""Lists, makes and ends pauses of many tasks."""

from typing import Any

from ticker.errors import quoted
from ticker.read import formatting
from ticker.read.pauses import list_pauses as read_pauses
from ticker.registration import pauses as operations
from ticker.tasks import sorts
from ticker.tasks.pauses import Pause
from ticker.web.api.fields import INSTANT, NAME, body, doc
from ticker.web.api.operation import Operation
from ticker.web.api.schemas import object_of
from ticker.web.api.tasks import BY
from ticker.web.problems import Refused
from ticker.web.site import Site


def list_pauses(_: Site, db: Any) -> dict[str, Any]:
    """Lists the pauses of many tasks that are in force, and those that are over while tasks still wait."""
    return {"pauses": formatting.plain_data(read_pauses(db))}


def pause_many(_: Site, db: Any, *, by: str = BY, **wanted: Any) -> Any:
    """Pauses all tasks, or those of one group, function, queue, type of owner or limit. One row is written, however many there are.

    A pause of the same tasks that is in force gets the new reason and end.
    """
    return formatting.plain_data(operations.pause_all(db, by=by, **wanted))


def resume_many(_: Site, db: Any, **scope: Any) -> Any:
    """Ends the pause of all tasks, or that of one group, function, queue, type of owner or limit. Answers 404 if none is in force."""
    if (resumed := operations.resume_all(db, by=BY, **scope)) is None:
        [named] = [f"the {name} {quoted(value)}" for name, value in scope.items()] or ["all tasks"]
        raise Refused(404, f"no pause of {named} is in force")
    return formatting.plain_data(resumed)


SCOPE = {
    "group": doc("The tasks of this group.", NAME),
    "function": doc("The tasks that run this function.", NAME),
    "queue": doc("The tasks of this queue.", NAME),
    "owner_type": doc("The tasks of all owners of this type.", NAME),
    "limit": doc("The tasks with this key in their limits, or with a key that matches this pattern.", NAME),
}
PAUSE = {
    "reason": doc("The reason for the pause, shown everywhere.", sorts.PROSE.schema),
    "until": doc("When the pause ends by itself.", INSTANT),
    "by": doc("The name of the user who pauses the tasks.", NAME),
}

OPERATIONS = (
    Operation("GET", "/pauses", list_pauses, {200: object_of(pauses=list[Pause])}),
    Operation("POST", "/pauses", pause_many, {200: Pause}, body=body({**SCOPE, **PAUSE}),
              example={"function": "mail.fetch", "reason": "upgrade", "until": "2030-01-01T06:00:00Z"}),
    Operation("POST", "/pauses/resume", resume_many, {200: Pause}, body=body(SCOPE), example={"group": "news"}, fails=[404]),
)  # fmt: skip
