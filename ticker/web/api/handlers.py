"""Handles the operations of the API. The page's forms call the same handlers."""

from typing import Any

from starlette.responses import JSONResponse

from ticker import clock
from ticker.errors import BadInput, UnknownTask, quoted
from ticker.model import TASK_STATES, Outcome, Pause, Reason
from ticker.read import activity as read_activity
from ticker.read import entries, forecast, formatting, journal, overview, tasks, why
from ticker.read.activity import Activity
from ticker.read.entries import JournalEntry
from ticker.read.gates import LimitStatus
from ticker.read.gates import list_limits as read_limits
from ticker.read.gates import list_pauses as read_pauses
from ticker.read.journal import GROUPS, Drops, Page
from ticker.read.owners import OwnerStatus
from ticker.read.owners import list_owners as read_owners
from ticker.read.tasks import FullRun, RunRecord
from ticker.schedules.duration import whole
from ticker.tasks import bulk, checks, fields, filters, gates, identity, operations, preview, sorts
from ticker.tasks.bulk import Bulk
from ticker.tasks.checks import MOST_AT_ONCE
from ticker.tasks.definition import Wanted
from ticker.tasks.fields import Task
from ticker.tasks.gates import Limit
from ticker.tasks.identity import Owner
from ticker.tasks.preview import MOST_TIMES, Preview
from ticker.web.api import openapi
from ticker.web.api.openapi import FULL_RUN, HEALTH, object_of
from ticker.web.api.operation import (
    AFTER_ID,
    AFTER_OWNER,
    BEFORE_KEY,
    FLAG,
    ID,
    INSTANT,
    NAME,
    OWNER,
    TEXT,
    TIME,
    body,
    doc,
    integer,
    limit,
    of_key,
    of_owner,
    one_of,
    operation,
)
from ticker.web.problems import Refused
from ticker.web.site import Site

REGISTER, EDIT = fields.body_of_register(), fields.body_of_edit()
OF_TASKS = {
    "owner": doc("Tasks of this owner, as type:id.", OWNER),
    "owner_type": doc("Tasks of all owners of this type.", NAME),
    "name": doc("Tasks with this name.", NAME),
    "function": doc("Tasks that run this function.", NAME),
    "queue": doc("Tasks in this queue.", NAME),
    "group": doc("Tasks in this group.", NAME),
    "submitter": doc("Tasks with this submitter.", NAME),
    "state": doc("Tasks in this state; a task may be in several.", one_of(*TASK_STATES)),
    "search": doc("A part of the name, function, owner or subject; case is ignored.", NAME),
    "cause": doc("Tasks that fail with this cause, as `ticker top` names it.", NAME),
    "error": doc("Failing tasks whose last error contains this text, such as a host; case is ignored.", NAME),
    "sort": doc(
        "Failing tasks with the most failures in a row first, or late tasks, the latest first. By default, by id.",
        one_of(*filters.SORTS),
    ),
    "after": AFTER_ID,
    "limit": limit(),
}
PAUSE = body(
    {
        "reason": doc("The reason for the pause, shown wherever the pause is.", sorts.PROSE.schema),
        "until": doc("When the pause ends by itself.", INSTANT),
        "by": doc("The name of the user who pauses.", NAME),
    }
)
AROUND = {
    "at": doc(
        "A time in the past, such as 09:00 (UTC), 2h (ago), or 2026-07-01T12:00:00Z; the occurrences around it are returned.",
        TIME,
    ),
    "limit": limit(20, "The number of occurrences."),
}
RUN_NOW = body(
    {
        "once_within": doc("The distance from the last manual run: a duration, or seconds.", sorts.DURATION),
    }
)
BULK = body(
    {
        "filter": doc("The tasks that change; an empty object means all.", body(
            {name: schema for name, schema in OF_TASKS.items() if name in filters.NAMES})),
        "action": doc("What to do with them. `retry` runs those that are failing.", one_of(*bulk.ACTIONS)),
        "arguments": doc("Fields of `edit`, `reason` and `until` of `pause`, `once_within` of `run` and `retry`.", body(
            {**EDIT["properties"], **RUN_NOW["properties"], **{name: PAUSE["properties"][name] for name in bulk.Pause.takes}})),
        "apply": doc("Whether to make the change. By default, the answer is only the plan.", FLAG),
        "by": doc("The name of the user who changes the tasks.", NAME),
    },
    required=["filter", "action"],
)  # fmt: skip
EXPLAIN = body(
    {
        "expression": doc("A schedule of any kind: 15m, 0 9 * * 1-5, Mon..Fri 09:00, 2027-01-01T00:00:00Z.", TEXT),
        **fields.properties((*fields.SCHEDULES, fields.FIELDS["during"])),
        "count": limit(5, "The number of times.", MOST_TIMES),
    }
)
OF_OWNERS = {
    "owner_type": doc("Owners of this type.", NAME),
    "failing": doc("Owners with a task that is failing.", FLAG),
    "late": doc("Owners with a task that is late: due for longer than a tick and its tolerance, and not started.", FLAG),
    "paused": doc("Owners with a task that is paused, disabled or inactive. Matching any of `failing`, `late` and `paused` is enough.", FLAG),
    "after": AFTER_OWNER, "limit": limit(),
}  # fmt: skip
RUNS_PLANNED, TASKS = object_of(run_ids=list[int], joined=list[int]), object_of(tasks=list[Task])


@operation(
    "GET /tasks", object_of(tasks=list[Task], next=str | None, looked_through=int | None), query=OF_TASKS, owned=True
)
def list_tasks(_: Site, db: Any, **wanted: Any) -> dict[str, Any]:
    """Lists the tasks that match all filters, ordered by id, page by page.

    Filters without an index (`name`, `function`, `queue`, `group`, `submitter`, `search`, a state of many tasks) search
    100,000 tasks per page. A page that ends there says so in `looked_through`, and may be empty. `next` continues after
    it.
    """
    filters.check_owner(wanted)
    page = tasks.page_of_tasks(db, **wanted)
    following = None if page.next is None else str(page.next)
    return {"tasks": page.tasks, "next": following, "looked_through": page.looked_through}


@operation("POST /tasks", Task, 200, 201, body=REGISTER,
           example={"function": "mail.fetch", "owner": "mail_channels:5", "every": "1m", "kwargs": {"channel_id": 5}})  # fmt: skip
def create_task(here: Site, db: Any, **given: Any) -> JSONResponse:
    """Makes sure that the owner has this task. Answers 201 if it is new, and 200 if the owner already had one with that
    name.
    """
    was_there = tasks_named(db, **given)  # two requests that create it at the same time may both be answered with 201
    task = overview.warned(db, operations.register(db, **given, by=here.by))
    return JSONResponse(here.data(db, task), 200 if was_there else 201, {"Location": f"{here.root}/tasks/{task.id}"})


def tasks_named(db: Any, *, function: Any, name: Any = None, owner: Owner = identity.NOBODY, **_: Any) -> list[Task]:
    """Returns the owner's task of this name, if there is one. The name defaults to the function's."""
    return tasks.list_tasks(db, name=Wanted(function=function, name=name).task_name(), owner=owner)


@operation("POST /bulk", Bulk, body=BULK, offline=True,
           example={"filter": {"function": "mail.fetch"}, "action": "edit", "arguments": {"every": "5m"}})  # fmt: skip
def change_many(here: Site, _: None, *, arguments: dict[str, Any] | None = None, **sent: Any) -> Bulk:
    """Plans a change of all tasks that match a filter, and makes it with `apply`.

    The answer says how many tasks match, what changes, and which tasks are refused, with the reasons. Steps of a
    thousand tasks are committed one by one. If one of them fails, the answer is 503, and says what the others did.
    """
    with here.database.reading() as db:
        return bulk.bulk(db, sent.pop("filter"), sent.pop("action"), **{"by": here.by} | sent, **arguments or {})


@operation("GET /tasks/{id}", owned=True)
def read_task(_: Site, db: Any, task: int) -> Task:
    """Returns one task."""
    return tasks.get(db, task)


@operation("PATCH /tasks/{id}", body=EDIT, example={"every": "5m"})
def change_task(here: Site, db: Any, task: int, **changes: Any) -> Task:
    """Changes a task at once, as an operator. Registering the task again does not undo the change."""
    return overview.warned(db, operations.edit(db, task, by=here.by, **changes))


@operation("DELETE /tasks/{id}", owned=True)
def delete_task(here: Site, db: Any, task: int) -> None:
    """Deletes a task. The records of its runs are kept."""
    if not operations.unregister(db, task, by=here.by):
        raise UnknownTask(f"there is no task {task}")


@operation(
    "POST /tasks/{id}/pause",
    body=PAUSE,
    example={"reason": "their server is being moved", "until": "2030-01-01T06:00:00Z"},
    owned=True,
)
def pause_task(here: Site, db: Any, task: int, **why: Any) -> Task:
    """Pauses a task: nothing is pushed or started until it is resumed, or until the given time."""
    [paused] = operations.pause(db, task, **{"by": here.by} | why)
    return paused


@operation("POST /tasks/{id}/resume", body=body({}), owned=True)
def resume_task(here: Site, db: Any, task: int) -> Task:
    """Resumes a task. A task that is not paused does not change."""
    operations.resume(db, task, by=here.by)
    return tasks.get(db, task)


@operation("POST /tasks/{id}/run", RUNS_PLANNED, 202, body=RUN_NOW, owned=True)
def run_task(_: Site, db: Any, task: int, *, once_within: str | float | None = None) -> dict[str, Any]:
    """Plans one run, even of a paused task. The next tick pushes it, or the first one after the run at work.

    If a manual run of the task has not started yet, the call joins it (`joined`). With `once_within`, a new run keeps
    this distance from the last one, and an elastic interval returns to its lower bound. Apart from that, the schedule
    does not change. Answers 422 if the task is disabled.
    """
    return formatting.planned_data(operations.plan_runs(db, task, once_within=once_within))


@operation("GET /tasks/{id}/why", query=AROUND, owned=True)
def why_task(_: Site, db: Any, task: int, **wanted: Any) -> why.Why:
    """Explains why a task ran or did not run: its last occurrences, or those around a time, and what happens next.

    A deleted task can be explained as well.
    """
    return why.why(db, task, **wanted)


@operation("GET /tasks/{id}/next", query={"count": limit(10, "The number of times.", MOST_TIMES)}, owned=True)
def next_times(_: Site, db: Any, task: int, *, count: int) -> Preview:
    """Explains the schedule of a task and returns its next times, beginning with the one at which it is due.

    A task that is disabled or paused, or whose owner is inactive, has no next times; the warnings name the cause.
    """
    return forecast.next_times(tasks.get(db, task), entries.instant(db), count, tasks.tick_ms(db))


@operation("POST /schedules/validate", body=EXPLAIN, offline=True,
           example={"expression": "0 9 * * 1-5", "zone": "Europe/Berlin"})  # fmt: skip
def validate_schedule(_: Site, __: None, *, count: Any = 5, **given: Any) -> Preview:
    """Explains a schedule: its kind, its stored form, a description in words, its next times, and warnings."""
    most, now = whole("count", count, 1, MOST_TIMES), clock.now() or clock.python_utc()
    named = [name for name in ("expression", *checks.NAMES.values()) if name in given]
    if not named:
        raise BadInput("expression", None, "is missing; write 15m, 0 9 * * 1-5, Mon..Fri 09:00 or 2027-01-01T00:00:00Z")
    if named[0] != "expression":
        return preview.of_fields(given, most, now)
    if named[1:]:
        raise BadInput(named[1], given[named[1]], "cannot be combined with expression; give one of them")
    return preview.validate(given.pop("expression"), **given, count=most, now=now)


@operation("GET /owners", object_of(owners=list[OwnerStatus], next=str | None), query=OF_OWNERS)
def list_owners(_: Site, db: Any, *, limit: int, **wanted: Any) -> dict[str, Any]:
    """Lists owners that have tasks. Those with failing or late tasks come first; each part is ordered by type and id."""
    statuses = read_owners(db, **wanted, limit=limit + 1)
    return {"owners": statuses[:limit], "next": of_owner(statuses[limit - 1]) if len(statuses) > limit else None}


@operation("POST /owners/{owner:path}/pause", TASKS, body=PAUSE, example={"reason": "unpaid"})
def pause_owner(here: Site, db: Any, owner: Owner, **why: Any) -> dict[str, Any]:
    """Pauses all tasks of the owner."""
    return {"tasks": operations.pause(db, owner=owner, **{"by": here.by} | why)}


@operation("POST /owners/{owner:path}/resume", TASKS, body=body({}))
def resume_owner(here: Site, db: Any, owner: Owner) -> dict[str, Any]:
    """Resumes all paused tasks of the owner, and returns them."""
    return {"tasks": operations.resume(db, owner=owner, by=here.by)}


@operation("POST /owners/{owner:path}/run", RUNS_PLANNED, 202, body=RUN_NOW)
def run_owner(_: Site, db: Any, owner: Owner, *, once_within: str | float | None = None) -> dict[str, Any]:
    """Plans one run of each task of the owner. The next tick pushes these runs. Skips disabled tasks."""
    return formatting.planned_data(operations.plan_runs(db, owner=owner, once_within=once_within))


# ------------------------------------------------------------------------------------------------------- runs and drops

SINCE = doc("Entries from this time on: 09:00 (UTC), 2h (ago), or 2026-07-01T12:00:00Z.", TIME)
UNTIL = doc("Entries before this time, written as for `since`.", TIME)
OF_RUNS = {
    "task": doc("Entries of the task with this id.", ID),
    "owner": doc("Entries of all tasks that this owner has or had, as type:id.", OWNER),
    "owner_type": doc("Entries of all owners of this type.", NAME),
    "outcome": doc("Entries with this outcome.", one_of(*Outcome)),
    "reason": doc("Drops with this reason.", one_of(*Reason)),
    "function": doc("Runs and drops of this function.", NAME),
    "queue": doc("Runs and drops of this queue.", NAME),
    "search": doc("A part of the reason of a run or drop; case is ignored.", NAME),
    "since": SINCE, "until": UNTIL, "before": BEFORE_KEY, "limit": limit(),
}  # fmt: skip
COUNTED = {
    "by": doc("The property by which drops are grouped.", one_of(*GROUPS)),
    "since": SINCE,
    "until": UNTIL,
    "limit": limit(20),
}


@operation(
    "GET /runs", object_of(runs=list[RunRecord], next=str | None, looked_through=int | None), query=OF_RUNS, owned=True
)
def list_runs(_: Site, db: Any, **wanted: Any) -> dict[str, Any]:
    """Lists runs and drops that have ended, newest first, including those of deleted tasks.

    Without a task or an owner, `function`, `queue` and `search` search 20,000 ends per page. A page that ends there
    says so in `looked_through`, and may be empty. `next` continues after it.
    """
    page = ended(db, **wanted, events=False)
    runs = [line.run for line in page.lines]
    return {"runs": runs, "next": following(page), "looked_through": page.looked_through}


@operation(
    "GET /journal", object_of(lines=list[JournalEntry], next=str | None, looked_through=int | None), query=OF_RUNS
)
def read_journal(_: Site, db: Any, **wanted: Any) -> dict[str, Any]:
    """Lists runs and drops with their explanations, together with the events of tasks, such as pauses and failures."""
    page = ended(db, **wanted, events=True)
    return {"lines": page.lines, "next": following(page), "looked_through": page.looked_through}


@operation(
    "GET /runs/{id}",
    FULL_RUN,
    query={"after": AFTER_ID, "limit": limit(100, "The maximum number of pieces.")},
    owned=True,
)
def read_run(_: Site, db: Any, run: int, *, limit: int, after: int = 0) -> FullRun:
    """Returns one run or drop in full: its output, its attempts, and the pieces that it made, page by page."""
    return tasks.get_run(db, run, pieces=limit, after=after)


@operation(
    "POST /runs/{id}/stop",
    RunRecord,
    202,
    body=body({"by": doc("The name of the user who stops it.", NAME)}),
    example={"by": "ann"},
    owned=True,
)
def stop_run(here: Site, db: Any, run: int, **who: str) -> RunRecord:
    """Asks to stop a run that has not ended. A tick carries out the request; the answer is the run as it is now.

    An active run ends as `interrupted`, with the reason `stopped by NAME`. A run that has not started is dropped.
    Answers 422 if the run has ended.
    """
    operations.stop(db, run, **{"by": here.by} | who)
    return tasks.get_run(db, run, pieces=1).run


@operation("GET /drops", object_of(drops=list[Drops]), query=COUNTED)
def count_drops(_: Site, db: Any, **wanted: Any) -> dict[str, Any]:
    """Counts drops by a common property, largest groups first, with the newest drop of each as an example."""
    return {"drops": journal.drops(db, **wanted)}


def ended(
    db: Any, *, events: bool, limit: int, since: Any = None, until: Any = None, before: Any = None, **filters: Any
) -> Page:
    wanted = journal.select(db, **filters)
    wanted = wanted._replace(events=wanted.events and events)
    return journal.page(db, wanted, since=since, until=until, before=before, limit=limit)


def following(page: Page) -> str | None:
    return of_key(page.next) if page.next else None


# ---------------------------------------------------------------------------------------------------- limits and pauses

LIMIT = body(
    {
        "concurrency": doc("How many runs of the key may be active at the same time.", integer(MOST_AT_ONCE, 1)),
        "rate": doc("How many runs of the key may start in a period, such as 300/1m.", TEXT),
        "burst": doc("How many of these may start at once. Defaults to those of one second.", integer(MOST_AT_ONCE, 1)),
    }
)
SCOPE = {
    "group": doc("The tasks of this group.", NAME),
    "function": doc("The tasks that run this function.", NAME),
    "queue": doc("The tasks of this queue.", NAME),
    "owner_type": doc("The tasks of all owners of this type.", NAME),
    "limit": doc("The tasks with this key in their limits, or with a key that matches this pattern.", NAME),
}


@operation("GET /limits", object_of(limits=list[LimitStatus]), query={"limit": limit(100)})
def list_limits(_: Site, db: Any, *, limit: int) -> dict[str, Any]:
    """Lists limited keys and their use, those with the most due tasks first, and limits without a key in use."""
    return {"limits": read_limits(db, limit=limit)}


@operation("PUT /limits/{key:path}", body=LIMIT, example={"concurrency": 20, "rate": "300/1m"})
def declare_limit(here: Site, db: Any, key: str, **wanted: Any) -> Limit:
    """Limits the runs of tasks that have this key, on all workers together. Replaces the key's former limit."""
    return gates.limit(db, key, **wanted, by=here.by)


@operation("DELETE /limits/{key:path}")
def remove_limit(_: Site, db: Any, key: str) -> None:
    """Removes the limit of a key or a pattern."""
    if gates.unlimit(db, key) is None:
        raise Refused(404, f"there is no limit {quoted(key)}")


@operation("DELETE /closures/{key:path}")
def release_key(_: Site, db: Any, key: str) -> None:
    """Opens a key that SlowDown closed."""
    if not gates.release(db, key):
        raise Refused(404, f"{quoted(key)} is not closed")


@operation("GET /pauses", object_of(pauses=list[Pause]))
def list_pauses(_: Site, db: Any) -> dict[str, Any]:
    """Lists the pauses of many tasks that are in force, and those that are over while tasks still wait."""
    return {"pauses": read_pauses(db)}


@operation("POST /pauses", body=body({**SCOPE, **PAUSE["properties"]}),
           example={"function": "mail.fetch", "reason": "upgrade", "until": "2030-01-01T06:00:00Z"})  # fmt: skip
def pause_many(here: Site, db: Any, **wanted: Any) -> Pause:
    """Pauses all tasks, or those of one group, function, queue, type of owner or limit. One row is written, however
    many there are.

    A pause of the same tasks that is in force gets the new reason and end.
    """
    return gates.pause_all(db, **{"by": here.by} | wanted)


@operation("POST /pauses/resume", body=body(SCOPE), example={"group": "news"}, fails=[404])
def resume_many(here: Site, db: Any, **scope: Any) -> Pause:
    """Ends the pause of all tasks, or that of one group, function, queue, type of owner or limit. Answers 404 if none
    is in force.
    """
    if (resumed := gates.resume_all(db, by=here.by, **scope)) is None:
        [named] = [f"the {name} {quoted(value)}" for name, value in scope.items()] or ["all tasks"]
        raise Refused(404, f"no pause of {named} is in force")
    return resumed


# ------------------------------------------------------------------------------------------------------------ the whole


@operation(
    "GET /stats", object_of(counts=overview.Counts, health=HEALTH, read_only=bool, hides_args=bool), offline=True
)
def stats(here: Site, _: None) -> dict[str, Any]:
    """Returns the number of tasks, in total and by state, the health, and whether the API is read-only or hides
    arguments.
    """
    with here.database.reading() as db:
        counts = overview.counts(db)
    access = {"read_only": here.access.read_only, "hides_args": here.settings.hide_args}
    return {"counts": counts, "health": here.look(), **access}


@operation(
    "GET /activity",
    query={"span": doc("How far back, by minute or by hours.", one_of(*read_activity.SPANS), default="2h")},
)
def activity(_: Site, db: Any, *, span: str) -> Activity:
    """Returns what ended over time: runs by outcome, drops by reason, how late runs started, and how busy workers were.

    Reads the counts of minutes and hours, not the runs.
    """
    return read_activity.activity(db, span)


@operation("GET /functions", object_of(functions=list[overview.Function]))
def functions(_: Site, db: Any) -> dict[str, Any]:
    """Lists the functions that workers have announced, by name."""
    return {"functions": overview.functions(db)}


@operation("GET /openapi.json", {"type": "object"}, offline=True)
def description(here: Site, _: None) -> dict[str, Any]:
    """Returns this description."""
    return openapi.document(here.root, needs_token=bool(here.access.tokens))
