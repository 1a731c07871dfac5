"""Shows the state of the whole: what runs next, owners, limits, pauses, runs and drops, processes. Changes some of it."""

from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ticker import clock
from ticker.db import steps
from ticker.errors import BadInput, ConfigurationError, Unavailable, UnknownTask
from ticker.model import SCOPES, Outcome, Reason
from ticker.queue import inspect
from ticker.queue.inspect import Attendance
from ticker.read import activity as charts
from ticker.read import entries, health, journal, life, tasks
from ticker.read import overview as read_overview
from ticker.read.activity import Activity
from ticker.read.explain import ExplainContext
from ticker.read.gates import KeyUser, LimitStatus, covered, has_tasks, list_limits, list_pauses, users_of_keys
from ticker.read.journal import Wanted
from ticker.read.overview import Overview, overview
from ticker.read.verdict import problems_of, verdict
from ticker.schedules.once import EPOCH
from ticker.tasks.identity import Owner
from ticker.web.api import handlers as api
from ticker.web.api import openapi
from ticker.web.api.operation import AFTER_ID, AFTER_OWNER, BEFORE_KEY, ID, NAME, Operation, integer, one_of, text_in
from ticker.web.pages.screen import (
    ROWS,
    Form,
    Shown,
    asked,
    change,
    done,
    fields_of,
    filters,
    id_of,
    of_all,
    one,
    paging,
    report,
    screen,
)
from ticker.web.pages.tasks import OF_ALL
from ticker.web.problems import API
from ticker.web.site import Site

STATES = ("failing", "late", "paused")
LISTED_NOW = 10  # entries of each list on the first screen
CHARTS = {"2h": "2 hours", "24h": "24 hours", "7d": "7 days", "30d": "30 days"}


@screen("/", "now.html", offline=True)
def now(here: Site, _: None, request: Request) -> Shown:
    """Shows the current state or, with `at`, what ended until and around that time.

    Earlier states of tasks are not kept.
    """
    span = asked(request, "span", one_of(*charts.SPANS)) or next(iter(charts.SPANS))
    with here.database.reading() as db:
        tables, at = of_all(db), moment(db, request)
        tables |= chart(charts.activity(db, span, at=at)) | {"at": at}
        if at:
            lines = journal.page(db, journal.select(db), around=at, limit=2 * LISTED_NOW).lines
            return tables | {"lines": lines, "deleted": journal.deleted(db, [line.task_id for line in lines])}
        snapshot = overview(db, limit=LISTED_NOW)
        deleted = journal.deleted(db, [one.example.task_id for one in snapshot.drops if one.example])
    look = here.look(counts_late=False)  # it waits for other servers
    told, problems = verdict(look, snapshot), problems_of(look)
    late = [
        (task, tasks.late_since(task, snapshot.now) or task.next_run, health.cause(task, look))
        for task in snapshot.late
    ]
    return tables | failing(snapshot) | {
        "of_all": OF_ALL, "overview": snapshot, "late": late, "deleted": deleted, "verdict": told, "problems": problems[1:],
        "warnings": [one for one in look.warnings if one not in problems and not told.sentence.startswith(one)],
    }  # fmt: skip


def chart(seen: Activity) -> Shown:
    """Returns what the chart shows, its end, and the moments of the charts before and after it."""
    step, last = timedelta(milliseconds=seen.step_ms), seen.points[-1].at
    return {
        "activity": seen, "tracks": charts.tracks(seen), "totals": charts.totals(seen), "labels": charts.labels(seen),
        "spans": CHARTS, "step": step, "end": last + step, "kept": charts.KEPT[charts.HOUR],
        "earlier": last - len(seen.points) * step, "later": last + len(seen.points) * step,
    }  # fmt: skip


def failing(seen: Overview) -> Shown:
    """Returns the failing tasks by cause. If there are few, a task that alone has its cause is shown by itself."""
    is_long = seen.counts.failing > LISTED_NOW and bool(seen.causes)
    groups = [one for one in seen.causes if one.tasks > 1 or is_long]
    grouped = {id_ for one in groups for id_ in one.ids}
    alone = [] if is_long else [task for task in seen.failing if task.id not in grouped]
    return {"groups": groups, "alone": alone}


@screen("/owners", "owners.html")
def owners(here: Site, db: Any, request: Request) -> Shown:
    """Shows owners with their task counts. Those with failing or late tasks come first."""
    state = asked(request, "state", one_of(*STATES))
    given = filters(request, {"owner_type": NAME, "after": AFTER_OWNER}) | ({state: True} if state else {})
    page: Shown = api.list_owners(here, db, **given, limit=ROWS)
    return page | {"states": STATES} | paging(request, "after", page["next"])


@screen("/processes", "processes.html", offline=True)
def processes(here: Site, _: None, __: Request) -> Shown:
    """Shows tickers, queues, workers and servers, even if a server does not answer."""
    status, tables = here.look(counts_late=False), {"now": clock.python_utc()}
    if not status.database_error:
        with here.database.reading() as db:
            tables = of_all(db) | {"version_of_postgresql": read_overview.server_version(db)}
    needs = {need.queue: need.enough for need in status.needs if not need.why_unknown}
    return {"health": status, "needs": needs, **tables, **attending(here)}


def attending(here: Site) -> Shown:
    """Returns queues and workers as RQ knows them. `unknown` explains why they are not known, or is empty."""
    try:
        url = here.settings.require_redis()
        with here.breaker.asking(health.REDIS):
            return {"attendance": inspect.look(url), "unknown": ""}
    except (Unavailable, ConfigurationError) as error:
        return {"attendance": Attendance(), "unknown": str(error)}


@screen("/api", "api.html")
def api_document(here: Site, _: Any, __: Request) -> Shown:
    """Shows the OpenAPI document of the HTTP API."""
    document = openapi.document(f"{here.root}{API}v1", needs_token=bool(here.access.tokens))
    listed: dict[str, list[tuple[str, str, Any]]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            listed[operation["tags"][0]].append((method.upper(), path, operation))
    return {"document": document, "listed": listed}


# ---------------------------------------------------------------------------------------------------- limits and pauses

READ, LISTED = 1000, 100  # limited keys
ASKED_AT_MOST = 100_000  # tasks of a pause


@screen("/limits", "limits.html")
def limits(here: Site, db: Any, request: Request) -> Shown:
    key = asked(request, "key")
    statuses = list_limits(db, limit=READ)
    keys = Counter(limit for one in statuses if (limit := one.limited_by) and limit != one.key)
    listed = [one for one in statuses if one.limited_by in (None, one.key) or is_used(one)]
    idle = keys - Counter(one.limited_by or "" for one in listed)
    users: dict[str, list[KeyUser]] = {status.key: [] for status in listed[:LISTED]}
    for user in users_of_keys(db, users):
        users[user.key].append(user)
    chosen = next((status for status in statuses if key and status.limited_by == key), None)
    return {
        "limits": listed[:LISTED], "more": len(listed) > LISTED or len(statuses) == READ, "users": users, "key": key, "chosen": chosen,
        "keys": keys, "patterns": [pattern for pattern in keys if idle[pattern]], "idle": idle,
    }  # fmt: skip


def is_used(status: LimitStatus) -> bool:
    """Returns whether a key has runs, due tasks or used starts, or is not fully open."""
    is_open = status.closed_until is None and status.allowed is None
    return not is_open or bool(status.active or status.waiting) or status.tokens not in (None, status.burst)


def keyed(path: str, operation: Operation, result: str) -> None:
    """Serves an operation on the key in a form."""

    @change(path)
    def made(here: Site, _: Request, form: Form) -> Response:
        key = one(form, "key")
        return done(here, lambda _: f"{key}: {result}", operation, key, **fields_of(None, form, operation.body))


keyed("/limits/set", api.declare_limit, "the limit is set")
keyed("/limits/remove", api.remove_limit, "the limit is removed")
keyed("/limits/release", api.release_key, "the key is open")


@screen("/pauses/question", "question.html")
def question(_: Site, db: Any, request: Request) -> Shown:
    """Says how many tasks a pause would be for, before it is made."""
    form = {name: [text] for name, text in request.query_params.items()}
    [(name, value)] = scope(form).items() or [("all", "")]
    return {"count": covered(db, name, value, limit=ASKED_AT_MOST), "most": ASKED_AT_MOST}


@change("/pauses/pause")
def pause(here: Site, _: Request, form: Form) -> Response:
    wanted, is_used = scope(form), True
    with here.database.writing() as db:
        before = {(one.scope, one.value) for one in list_pauses(db) if one.in_force}
        paused = api.pause_many(here, db, **wanted, **fields_of(db, form, api.PAUSE))
    with suppress(Unavailable), here.database.reading() as db:  # the pause has been committed
        is_used = has_tasks(db, paused)
    is_new = (paused.scope, paused.value) not in before
    undo = {"path": "/pauses/resume", "values": {"scope": paused.scope, "value": paused.value}} if is_new else None
    return report(f"{paused.words} are paused" + ("" if is_used else "; at present, there are none"), undo=undo)


@change("/pauses/resume")
def resume(here: Site, _: Request, form: Form) -> Response:
    return done(here, lambda resumed: f"{resumed.words} are resumed", api.resume_many, **scope(form))


def scope(form: Form) -> dict[str, str]:
    """Returns the arguments that choose the tasks."""
    name, value = one(form, "scope"), one(form, "value")
    if name == "all" and value:
        raise BadInput("value", value, "does not apply to all tasks; leave it empty, or choose what it names")
    if name != "all" and name not in SCOPES:
        raise BadInput("scope", name, f"is not one of: all, {', '.join(SCOPES)}")
    return {} if name == "all" else {name: value}


# ------------------------------------------------------------------------------------------------------- runs and drops

DROPS = 50
PIECES = 100
COUNTED = 1000  # records that match, at most
OF_ENDS = ("owner", "owner_type", "outcome", "reason", "function", "queue", "search")
GROUPED = "1h"  # the span of drops in groups, as on the first screen
HOURS = {"1": "the last hour", "24": "the last day", "168": "the last week"}


@screen("/runs", "runs.html", owned=True)
def runs(here: Site, db: Any, request: Request) -> Shown:
    task, before = asked(request, "task"), asked(request, "before", BEFORE_KEY)
    at = None if before else moment(db, request)
    choices = {
        "outcomes": list(Outcome), "reasons": list(Reason), "spans": {f"{hours}h": span for hours, span in HOURS.items()},
        "groups": journal.GROUPS, "by": asked(request, "by"), "since": None, "at": at, "filter": request.query_params,
    }  # fmt: skip
    if choices["by"]:
        return choices | grouped(db, request, choices["by"])
    times = filters(request, {name: api.OF_RUNS[name] for name in ("since", "until")})
    given = filters(request, {name: api.OF_RUNS[name] for name in OF_ENDS})
    chosen = select(db, task=task, **given)
    count_to = 0 if before or at else COUNTED + 1
    page = journal.page(db, chosen, before=before, around=at, limit=ROWS, count_to=count_to, **times)
    deleted = journal.deleted(db, [line.task_id for line in page.lines])
    is_ownerless = bool(task) and not task.isdecimal() and "owner" not in given
    return choices | {
        "lines": page.lines, "deleted": deleted, "ownerless": chosen.task_id if is_ownerless else None,
        "looked_through": page.looked_through, "functions": read_overview.functions(db),
        "count": counted(page.total) if count_to and page.total is not None else None,
    } | paging(request, "before", api.following(page))  # fmt: skip


def moment(db: Any, request: Request) -> datetime | None:
    """Returns the time in the address, around which entries are listed. Raises BadInput for a time before 1970."""
    at = journal.past("at", asked(request, "at", api.AROUND["at"]), entries.instant(db))
    if at and at < EPOCH:
        raise BadInput("at", at.isoformat(), "is before 1970")
    return at


def counted(count: int) -> str:
    if count > COUNTED:
        return f"over {COUNTED:,} records match"
    return f"{count:,} record matches" if count == 1 else f"{count:,} records match"


def select(db: Any, *, task: str | None, owner: Owner | None = None, **others: Any) -> Wanted:
    """Returns the selection that the filter describes. Suggests an owner if no task without an owner has the name."""
    named = text_in("task", ID, task) if task and task.isdecimal() else task
    try:
        return journal.select(db, task=named, owner=owner, **others)
    except UnknownTask as error:
        if owner is not None:
            raise UnknownTask(f"{error} now; a deleted one is found by its id, or by its owner alone") from None
        raise UnknownTask(f"{error} without an owner; for an owner's task, add its owner or use its id") from None


@screen("/runs/{id}", "run.html", owned=True)
def run(here: Site, db: Any, request: Request) -> Shown:
    after = asked(request, "after", AFTER_ID) or 0
    full = tasks.get_run(db, id_of(request), pieces=PIECES, after=after)
    deleted, now = journal.deleted(db, [full.run.task_id]), entries.instant(db)
    grace_ms = steps.run(db, entries.graces_of([full.run])).get(full.run.task_id)
    pieces = steps.run(db, entries.pieces_of([full.run])).get(full.run.id)
    line = entries.line_of_run(full.run, ExplainContext(now, grace_ms=grace_ms, pieces=pieces))
    return {
        "full": full, "run": full.run, "line": line, "deleted": deleted, "hidden": here.settings.hide_args,
        "life": life.drawn([full.run], now, grace_ms=grace_ms, with_limits=True), "attempts": life.drawn(full.attempts, now),
        "pieces": life.drawn(full.pieces, now),
        "goes_on": any(one.state != "ended" for one in (full.run, *full.attempts, *full.pieces)),
    } | paging(request, "after", full.next)  # fmt: skip


@change("/runs/{id}/stop", owned=True)
def stop(here: Site, request: Request, _: Form) -> Response:
    """Asks to stop the run at this address."""
    return done(here, lambda run: f"run {run.id}: the next tick stops it", api.stop_run, id_of(request))


@screen("/runs/{id}/texts", "texts.html", owned=True)
def texts(here: Site, db: Any, request: Request) -> Shown:
    """Shows the texts of a run in the table of a task's runs. They may be long, so they are loaded when opened."""
    full = tasks.get_run(db, id_of(request), pieces=1)
    return {"run": full.run, "full": full, "hidden": here.settings.hide_args}


def grouped(db: Any, request: Request, by: str) -> Shown:
    """Counts drops by a common property. Raises BadInput for a filter of single entries."""
    for name in ("task", "at", *OF_ENDS):
        if (value := asked(request, name)) and (name, value) != ("outcome", Outcome.DROPPED):
            raise BadInput(name, value, "does not apply to groups of drops; leave out one of them")
    times = {name: asked(request, name) for name in ("since", "until")}
    since = times["since"] or (None if times["until"] else GROUPED)
    offset = asked(request, "after", integer(journal.AFTER_AT_MOST)) or 0
    counted = journal.drops(db, by=by, since=since, until=times["until"], limit=DROPS + 1, after=offset)
    deleted = journal.deleted(db, [one.example.task_id for one in counted if one.example])
    return {
        "counted": counted[:DROPS], "deleted": deleted, "offset": offset, "since": since, "functions": read_overview.functions(db),
    } | paging(request, "after", offset + DROPS if len(counted) > DROPS else None)  # fmt: skip
