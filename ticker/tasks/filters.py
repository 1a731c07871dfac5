"""Finds the tasks that match a filter, page by page: for lists, and for changes to many tasks."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ticker import settings
from ticker.db import sql
from ticker.db.sql import Row
from ticker.db.steps import Query, Steps
from ticker.errors import BadInput
from ticker.model import TASK_STATES
from ticker.schedules import hours
from ticker.schedules.duration import SECOND, whole
from ticker.tasks import identity
from ticker.tasks.rows import instant, query, sees_all

READ_THROUGH = ("name", "function", "queue", "group", "submitter", "search", "error")
"""The filters that no index serves without an owner."""
INDEXED = ("owner_type", "owner_id", "cause")
NAMES = ("owner", "owner_type", *READ_THROUGH, "state", "cause")
ANY = dict.fromkeys((*INDEXED, *READ_THROUGH, "state", "crowded", "failures"))
"""The filter that all tasks match."""
SORTS = {"failures": "failing", "lateness": "late"}
"""The orders other than by id, each with the state of the tasks that it lists."""
SKIPPED = 100_000  # tasks before a page in such an order
CROWD = 50_000  # tasks in a state; if there are more, they are found by a walk through all tasks, not by their ids
COUNTED = 1_000_000  # tasks of a plan
LOOKED_AT = "t.id, t.enabled, t.owner_active, t.failures, t.paused_by"
SEARCHED = 100_000  # tasks through which one page of a list searches
LEAST_WAIT = 30 * SECOND

Chosen = dict[str, Any]
"""A checked filter: the parameters of the statement `list_tasks`."""


class Rows(NamedTuple):
    """The rows of a page, by id. `next` and `looked_through` are those of `TaskPage`."""

    rows: list[Row]
    next: int | None
    looked_through: int | None


def check_owner(wanted: Mapping[str, Any]) -> None:
    if "owner" in wanted and "owner_type" in wanted:
        raise BadInput(
            "owner_type",
            wanted["owner_type"],
            "cannot be combined with an owner, which has a type; leave out one of them",
        )


def chosen(*, owner: Any = None, state: str | None = None, **filters: str | int | None) -> Steps[Chosen]:
    """Checks a filter. `failures` is how many a task has in a row.

    Any state but `running` is `crowded` if many tasks have it, or if the owners are limited.
    """
    named = None if owner is None else identity.identify(owner)
    if state is not None and state not in TASK_STATES:
        raise BadInput("state", state, f"is not one of: {', '.join(TASK_STATES)}")
    wanted: Chosen = ANY | filters
    if named is not None:
        wanted |= {"owner_type": named.type, "owner_id": named.id}
    is_walk = state == "outside_hours" or named is not None or not sees_all()
    if state not in (None, "running") and not is_walk:
        [row] = yield query("is_crowded", state=state, most=CROWD, late_ms=late_ms())
        is_walk = row["is_crowded"]
    return wanted | {"crowded" if is_walk and state != "running" else "state": state}


def page(wanted: Chosen, *, after: int, limit: int) -> Steps[Rows]:
    """Returns up to `limit` rows with ids over `after`. Without an index, searches the next 100,000 tasks. The index of
    causes does not serve an error: it is read from a run of each task.
    """
    served = ("owner_id", "state") if wanted["error"] is not None else ("owner_id", "state", "cause")
    has_index = not sees_all() or any(wanted[name] is not None for name in served)
    is_search = not has_index and any(wanted[name] is not None for name in ("crowded", *READ_THROUGH))
    beyond = (yield query("task_behind", after=after, count=SEARCHED)) if is_search else []
    before = beyond[0]["id"] if beyond else None
    rows = yield from matching(wanted, after=after, before=before, limit=limit + 1)
    if len(rows) > limit:
        return Rows(rows[:limit], rows[limit - 1]["id"], None)
    return Rows(rows, before and before - 1, before and SEARCHED)


def in_order(sort: str, wanted: Chosen, *, after: int, limit: int) -> Steps[Rows]:
    """Returns up to `limit` rows in this order, without the first `after`. For an error, these count tasks that do not
    match, too.
    """
    if sort not in SORTS:
        raise BadInput("sort", sort, f"is not one of: {', '.join(SORTS)}")
    state = SORTS[sort]
    if (wanted["state"] or wanted["crowded"]) not in (None, state):
        raise BadInput("sort", sort, f"orders tasks that are {state}; choose that state, or none")
    skipped = whole("after", after, 0, SKIPPED)
    if sort == "failures" and wanted["error"] is not None and wanted["owner_id"] is None and sees_all():
        return (yield from _failing_with_error(wanted, skipped, limit))
    rows = yield query(f"{state}_tasks", **wanted, skipped=skipped, limit=limit + 1, most=SKIPPED, late_ms=late_ms())
    return Rows(rows[:limit], after + limit if len(rows) > limit else None, None)


def _failing_with_error(wanted: Chosen, skipped: int, limit: int) -> Steps[Rows]:
    """Searches the next 100,000 failing tasks, those with the most failures first: it reads a run of each."""
    rows = yield query("search_failing", **wanted, skipped=skipped, count=SEARCHED, limit=limit + 1)
    if len(rows) > limit:
        return Rows(rows[:limit], rows[limit - 1]["place"], None)
    end = skipped + SEARCHED
    has_more = yield query("failing_behind", count=end)
    return Rows(rows, end if has_more else None, SEARCHED if has_more else None)


def matching(wanted: Chosen, *, after: int, before: int | None, limit: int) -> Steps[list[Row]]:
    """Returns the rows with ids between these two, up to `limit`, by id."""
    return (yield (yield from _listing(wanted, after, before, limit)))


def kinds(wanted: Chosen) -> Steps[list[Row]]:
    """Returns how many tasks match, by what actions other than `edit` look at, and the ids of three of each kind.

    It is the statement of a list, with fewer columns.
    """
    listing = yield from _listing(wanted, 0, None, COUNTED + 1)
    texts = sql.statements(settings.current().schema, (("task", LOOKED_AT),))
    counted = f"""SELECT enabled, owner_active, failures > 0 AS is_failing, paused_by, count(*) AS tasks,
        (array_agg(id))[1:3] AS ids FROM ({texts["list_tasks"]}) t GROUP BY 1, 2, 3, 4 ORDER BY min(id)"""
    found = yield listing._replace(text=counted)
    if sum(row["tasks"] for row in found) > COUNTED:
        raise BadInput(
            "filter", None, f"matches over {COUNTED:,} tasks, the limit of a plan; narrow it, or call ticker.bulk"
        )
    return found


def _listing(wanted: Chosen, after: int, before: int | None, limit: int) -> Steps[Query]:
    is_state_alone = not any(wanted[name] is not None for name in (*INDEXED, *READ_THROUGH))
    closed = (yield from _closed_hours(after, before)) if wanted["crowded"] == "outside_hours" else []
    return query(
        "list_tasks", **wanted, after=after, before=before, limit=limit, most=CROWD, late_ms=late_ms(),
        first=limit if is_state_alone else None, durings=[one[0] for one in closed], zones=[one[1] for one in closed],
    )  # fmt: skip


def _closed_hours(after: int, before: int | None) -> Steps[list[tuple[str, str]]]:
    """Returns those hours of the tasks between these ids that are over now, each with its zone."""
    now = yield from instant()
    found = [(row["during"], row["zone"]) for row in (yield query("hours", after=after, before=before))]
    return [one for one in found if hours.begins_again(*one, now)]


def late_ms() -> int:
    """Returns after how many milliseconds a task that has not started is late, not counting its grace: a tick, but at
    least 30 s.

    The grace is the task's tolerance, but at least 5 s: for the tick, and for a worker that takes the job.
    """
    return max(LEAST_WAIT, settings.current().tick_ms)
