"""Lists, sets and ends what keeps due tasks from starting: limits by key, and pauses of many tasks."""

from typing import Any

from ticker.errors import quoted
from ticker.read.gates import LimitStatus
from ticker.read.gates import list_limits as read_limits
from ticker.read.gates import list_pauses as read_pauses
from ticker.registration import limits
from ticker.registration import pauses as operations
from ticker.registration.limits import Limit
from ticker.tasks.checks import MOST_AT_ONCE
from ticker.tasks.pauses import Pause
from ticker.web.api.fields import NAME, TEXT, body, doc, integer, limit
from ticker.web.api.operation import Operation
from ticker.web.api.schemas import object_of
from ticker.web.api.tasks import PAUSE
from ticker.web.problems import Refused
from ticker.web.site import Site


def list_limits(_: Site, db: Any, *, limit: int) -> dict[str, Any]:
    """Lists limited keys and their use, those with the most due tasks first, and limits without a key in use."""
    return {"limits": read_limits(db, limit=limit)}


def declare_limit(here: Site, db: Any, key: str, **wanted: Any) -> Limit:
    """Limits the runs of tasks that have this key, on all workers together. Replaces the key's former limit."""
    return limits.limit(db, key, **wanted, by=here.by)


def remove_limit(_: Site, db: Any, key: str) -> None:
    """Removes the limit of a key or a pattern."""
    if limits.unlimit(db, key) is None:
        raise Refused(404, f"there is no limit {quoted(key)}")


def release_key(_: Site, db: Any, key: str) -> None:
    """Ends the hold of a key (SlowDown) early."""
    if not limits.release(db, key):
        raise Refused(404, f"{quoted(key)} is not held")


def list_pauses(_: Site, db: Any) -> dict[str, Any]:
    """Lists the pauses of many tasks that are in force, and those that are over while tasks still wait."""
    return {"pauses": read_pauses(db)}


def pause_many(here: Site, db: Any, **wanted: Any) -> Pause:
    """Pauses all tasks, or those of one group, function, queue, type of owner or limit. One row is written, however
    many there are.

    A pause of the same tasks that is in force gets the new reason and end.
    """
    return operations.pause_all(db, **{"by": here.by} | wanted)


def resume_many(here: Site, db: Any, **scope: Any) -> Pause:
    """Ends the pause of all tasks, or that of one group, function, queue, type of owner or limit. Answers 404 if none
    is in force.
    """
    if (resumed := operations.resume_all(db, by=here.by, **scope)) is None:
        [named] = [f"the {name} {quoted(value)}" for name, value in scope.items()] or ["all tasks"]
        raise Refused(404, f"no pause of {named} is in force")
    return resumed


KEY = {"key": doc("A key, or a pattern that ends with an asterisk.", NAME)}
LIMIT = body({
    "concurrency": doc("How many runs of the key may be active at the same time.", integer(MOST_AT_ONCE, 1)),
    "rate": doc("How many runs of the key may start in a period, such as 300/1m.", TEXT),
    "burst": doc("How many of these may start at once. Defaults to those of one second.", integer(MOST_AT_ONCE, 1)),
})  # fmt: skip
SCOPE = {
    "group": doc("The tasks of this group.", NAME),
    "function": doc("The tasks that run this function.", NAME),
    "queue": doc("The tasks of this queue.", NAME),
    "owner_type": doc("The tasks of all owners of this type.", NAME),
    "limit": doc("The tasks with this key in their limits, or with a key that matches this pattern.", NAME),
}

OPERATIONS = (
    Operation("GET", "/limits", list_limits, {200: object_of(limits=list[LimitStatus])}, query={"limit": limit(100)}),
    Operation("PUT", "/limits/{key:path}", declare_limit, {200: Limit}, KEY, body=LIMIT,
              example={"concurrency": 20, "rate": "300/1m"}),
    Operation("DELETE", "/limits/{key:path}", remove_limit, {204: None}, KEY),
    Operation("DELETE", "/holds/{key:path}", release_key, {204: None}, KEY),
    Operation("GET", "/pauses", list_pauses, {200: object_of(pauses=list[Pause])}),
    Operation("POST", "/pauses", pause_many, {200: Pause}, body=body({**SCOPE, **PAUSE["properties"]}),
              example={"function": "mail.fetch", "reason": "upgrade", "until": "2030-01-01T06:00:00Z"}),
    Operation("POST", "/pauses/resume", resume_many, {200: Pause}, body=body(SCOPE), example={"group": "news"}, fails=[404]),
)  # fmt: skip
