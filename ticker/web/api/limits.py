"""Lists, declares and removes limits of runs that share a key, and ends holds of keys."""

from typing import Any

from ticker.errors import quoted
from ticker.read import formatting
from ticker.read.limits import LimitStatus
from ticker.read.limits import list_limits as read_limits
from ticker.registration import limits as operations
from ticker.registration.limits import Limit
from ticker.tasks.checks import MOST_AT_ONCE
from ticker.web.api.fields import NAME, TEXT, body, doc, integer, limit
from ticker.web.api.operation import Operation
from ticker.web.api.schemas import object_of
from ticker.web.api.tasks import BY
from ticker.web.problems import Refused
from ticker.web.site import Site


def list_limits(_: Site, db: Any, *, limit: int) -> dict[str, Any]:
    """Lists limited keys and their use, those with the most due tasks first, and limits without a key in use."""
    return {"limits": formatting.plain_data(read_limits(db, limit=limit))}


def declare_limit(_: Site, db: Any, key: str, **wanted: Any) -> Any:
    """Limits the runs of tasks that have this key, on all workers together. Replaces the key's former limit."""
    return formatting.plain_data(operations.limit(db, key, **wanted, by=BY))


def remove_limit(_: Site, db: Any, key: str) -> None:
    """Removes the limit of a key or a pattern."""
    if operations.unlimit(db, key) is None:
        raise Refused(404, f"there is no limit {quoted(key)}")


def release_key(_: Site, db: Any, key: str) -> None:
    """Ends the hold of a key (SlowDown) early."""
    if not operations.release(db, key):
        raise Refused(404, f"{quoted(key)} is not held")


KEY = {"key": doc("A key, or a pattern that ends with an asterisk.", NAME)}
BODY = body({
    "concurrency": doc("How many runs of the key may be active at the same time.", integer(MOST_AT_ONCE, 1)),
    "rate": doc("How many runs of the key may start in a period, such as 300/1m.", TEXT),
    "burst": doc("How many of these may start at once. Defaults to those of one second.", integer(MOST_AT_ONCE, 1)),
})  # fmt: skip

OPERATIONS = (
    Operation("GET", "/limits", list_limits, {200: object_of(limits=list[LimitStatus])}, query={"limit": limit(100)}),
    Operation("PUT", "/limits/{key:path}", declare_limit, {200: Limit}, KEY, body=BODY,
              example={"concurrency": 20, "rate": "300/1m"}),
    Operation("DELETE", "/limits/{key:path}", remove_limit, {204: None}, KEY),
    Operation("DELETE", "/holds/{key:path}", release_key, {204: None}, KEY),
)  # fmt: skip
