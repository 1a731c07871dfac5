"""Reads the entries of django-celery-beat from its tables in PostgreSQL, disables those that are taken, and enables them again.

Beat holds its entries in memory. Within `MAX_INTERVAL`, it sees that `last_update` has moved: then it writes the last runs of
its entries to their rows, and reads the enabled ones. It may write a whole row back that was disabled meanwhile.
"""

import json
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ticker import settings
from ticker.errors import ConfigurationError, escaped, quoted
from ticker.importing import dialects, export
from ticker.importing.found import BY, Decision, Draft, Found, LeftOver, Source, Where, function_name
from ticker.importing.sources import taken_tasks
from ticker.importing.sources.samplers import RowSampler, Sampler
from ticker.importing.sources.taken_tasks import connected
from ticker.importing.take_over import TAKEN_FROM
from ticker.read import entries
from ticker.tasks import many, operations

NAME = "django-celery-beat"
OWN = "celery.backend_cleanup"
FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
MAX_INTERVAL = 5.0  # seconds, beat's own
LOOKS = 3
CHANGE_OVER = timedelta(minutes=1)
"""How far ahead the first run of a task lies at least: by then, what beat has run during the change-over is known."""

TABLES = """
SELECT n.nspname AS schema FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = 'django_celery_beat_periodictask' AND c.relkind IN ('r', 'p') ORDER BY 1
"""
ENTRIES = """
SELECT to_jsonb(t) AS task, to_jsonb(i) AS interval, to_jsonb(c) AS crontab, to_jsonb(o) AS clocked, to_jsonb(s) AS solar
FROM {schema}.django_celery_beat_periodictask t
LEFT JOIN {schema}.django_celery_beat_intervalschedule i ON i.id = t.interval_id
LEFT JOIN {schema}.django_celery_beat_crontabschedule c ON c.id = t.crontab_id
LEFT JOIN {schema}.django_celery_beat_clockedschedule o ON o.id = t.clocked_id
LEFT JOIN {schema}.django_celery_beat_solarschedule s ON s.id = t.solar_id
ORDER BY t.name
"""


STATES = """
SELECT name, enabled, total_run_count, last_run_at FROM {schema}.django_celery_beat_periodictask
WHERE name = ANY (%s) ORDER BY id FOR NO KEY UPDATE
"""
COUNTS = "SELECT name, total_run_count, last_run_at FROM {schema}.django_celery_beat_periodictask WHERE name = ANY (%s)"
DISABLE = """
UPDATE {schema}.django_celery_beat_periodictask SET enabled = false WHERE name = ANY (%s) AND enabled RETURNING name
"""
ENABLE = """
UPDATE {schema}.django_celery_beat_periodictask t SET enabled = true, last_run_at = g.last_run_at
FROM unnest(%s::text[], %s::timestamptz[]) AS g (name, last_run_at) WHERE t.name = g.name
"""
LOOK_AGAIN = """
INSERT INTO {schema}.django_celery_beat_periodictasks (ident, last_update) VALUES (1, clock_timestamp())
ON CONFLICT (ident) DO UPDATE SET last_update = excluded.last_update
"""
RAN = """
SELECT p.name, t.name, p.total_run_count, p.last_run_at, t.kind = 'once' OR t.max_runs = 1
FROM "{ours}".tasks t JOIN {schema}.django_celery_beat_periodictask p ON p.name = t.metadata -> '{key}' ->> 'id'
WHERE t.metadata -> '{key}' ->> 'source' = %s AND t.owner_type = '' AND t.owner_id = '' AND t.last_run IS NULL
AND (p.total_run_count > (t.metadata -> '{key}' ->> 'runs')::bigint OR ((t.kind = 'once' OR t.max_runs = 1)
    AND p.last_run_at > coalesce((t.metadata -> '{key}' ->> 'last_run')::timestamptz, '-infinity')))
ORDER BY p.id FOR NO KEY UPDATE OF p
"""
"""The entries that beat has run since they were taken, and whose tasks have not run. Beat sets the count of an entry that runs only
once back to 0 when it disables it.
"""
NOT_RUN = """
SELECT EXISTS (SELECT FROM "{ours}".tasks t WHERE t.metadata -> '{key}' ->> 'source' = %s AND t.last_run IS NULL)
"""


def opened(where: Where) -> "DjangoCeleryBeat":
    return DjangoCeleryBeat(where)


class DjangoCeleryBeat(Source):
    """The entries in the database that --from names, or in DATABASE_URL. Each cron entry has its own zone.

    They can be taken over if both tables are in one database: an entry is disabled in the transaction that inserts its task.
    """

    name = NAME

    def __init__(self, where: Where) -> None:
        self._url, self._is_held, self._is_fresh = where.text, False, False
        self._disabled = set[str]()

    def read(self, now: datetime) -> list[Found]:
        """Returns the entries, except those that are disabled because they were taken over. Their first times under `held` are
        after the change-over.
        """
        if self._is_held and not self._is_fresh:
            self._make_fresh()
        taken = {one.id for one in self.taken()}
        with connected(self._url) as connection, connection.transaction():
            connection.execute("SET TRANSACTION READ ONLY")
            names = ("task", "interval", "crontab", "clocked", "solar")
            rows = connection.execute(ENTRIES.format(schema=schema_of(connection))).fetchall()
        founds = [_found(dict(zip(names, row, strict=True)), now) for row in rows]
        return [self._later(one, now + CHANGE_OVER) for one in founds if one.enabled or one.id not in taken]

    def _later(self, found: Found, earliest: datetime) -> Found:
        if not self._is_held or not found.next_there or found.next_there >= earliest:
            return found
        return replace(found, wanted={**found.wanted, "at" if "at" in found.wanted else "first": earliest})

    def _make_fresh(self) -> None:
        """Lets a living beat write the last runs to its rows."""
        with connected(self._url) as connection:
            connection.execute(LOOK_AGAIN.format(schema=schema_of(connection)))
        pause()
        self._is_fresh = True

    def sampler(self, founds: Sequence[Found]) -> Sampler:
        names = [one.id for one in founds]

        def rows() -> list[tuple[str, int, datetime | None]]:
            with connected(self._url) as db:
                text = COUNTS.format(schema=schema_of(db))
                return db.execute(text, [names]).fetchall()

        return RowSampler(rows)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Does not stop beat. First settles what an interrupted call has left. Afterwards, waits until beat has seen the disabled
        entries, and checks them again.
        """
        self._is_held = True
        try:
            self._settle_before()
            yield
        finally:
            self._is_held = self._is_fresh = False
            if self._disabled:
                self._settle()

    def park(self, db: Any, founds: Sequence[Found]) -> list[str]:
        try:
            schema = schema_of(db)
        except ConfigurationError:
            raise ConfigurationError(
                "--take-over disables beat's entries in the transaction that inserts their tasks, so the tables of django-celery-beat "
                "must be in the database of DATABASE_URL"
            ) from None
        states = _states(db, schema, [one.id for one in founds])
        if changed := [one.id for one in founds if states.get(one.id) != one.stored["state"]]:
            return changed
        db.execute(DISABLE.format(schema=schema), [[*states]])
        db.execute(LOOK_AGAIN.format(schema=schema))
        self._disabled |= {one.id for one in founds if one.enabled}
        return []

    def _settle_before(self) -> None:
        with connected("") as db:
            ours = settings.current().schema
            if db.execute(NOT_RUN.format(ours=ours, key=TAKEN_FROM), [NAME]).fetchone() == (True,):
                self._make_fresh()
                with db.transaction():
                    _move(db, schema_of(db))

    def _settle(self) -> None:
        """Disables entries that beat has written back, and moves the first times of those that it has run meanwhile."""
        for _ in range(LOOKS):
            pause()
            with connected("") as db, db.transaction():
                schema = schema_of(db)
                ran = _move(db, schema)
                back = [name for (name,) in db.execute(DISABLE.format(schema=schema), [[*self._disabled]])]
                if not ran and not back:
                    return
                db.execute(LOOK_AGAIN.format(schema=schema))
        names = ", ".join(map(escaped, [*ran, *back][:3]))
        raise ConfigurationError(
            f"celery beat still runs entries that were taken over ({names}): stop it, and check these tasks"
        )

    def taken(self) -> list[LeftOver]:
        return [LeftOver(id_, name, id_, is_parked=False) for id_, name in taken_tasks.taken(NAME)]

    def missing(self, db: Any, ids: Collection[str]) -> Collection[str]:
        return {*ids} - _states(db, schema_of(db), ids).keys()

    def unpark_at(self, db: Any, times: Mapping[str, datetime]) -> None:
        """Enables the entries in the transaction that deletes their tasks. Beat counts an interval from the last run."""
        schema = schema_of(db)
        rows = db.execute(ENTRIES.format(schema=schema)).fetchall()
        every = {task["name"]: timedelta(**{kind["period"]: kind["every"]}) for task, kind, *_ in rows if kind}
        last = [at - every[name] if name in every else entries.instant(db) for name, at in times.items()]
        db.execute(ENABLE.format(schema=schema), [[*times], last])
        db.execute(LOOK_AGAIN.format(schema=schema))

    def forget(self, ids: Sequence[str]) -> None:
        """Removes from their tasks where these came from. The entries stay disabled."""
        taken_tasks.forget(NAME, ids)


def pause() -> None:
    """Waits until a living beat has seen `last_update`."""
    threading.Event().wait(2 * MAX_INTERVAL)


def _move(db: Any, schema: str) -> list[str]:
    """Makes the tasks of entries that beat has run meanwhile again, with a later first time. Deletes those that run only once.

    Tasks that have run here stay. Returns the entries.
    """
    now, moved = entries.instant(db), list[str]()
    ran = db.execute(RAN.format(ours=settings.current().schema, schema=schema, key=TAKEN_FROM), [NAME]).fetchall()
    for id_, name, runs, last, is_once in ran:
        [task] = operations.unregister(db, name, by=BY)
        if not is_once:
            given = export.given(task)
            first = {"first": now + timedelta(milliseconds=task.every_ms)} if "every" in given else {}
            taken_from = {TAKEN_FROM: {**task.metadata[TAKEN_FROM], **_ran(runs, last)}}
            again = {**given, **first, "metadata": {**task.metadata, **taken_from}}
            many.register_many(db, [again], by=BY)
        moved.append(id_)
    return moved


def _ran(runs: int, last: datetime | None) -> dict[str, Any]:
    """Returns what a task's metadata note of its entry, so that a later run of beat is noticed."""
    return {"runs": runs, "last_run": last and last.isoformat()}


def _states(db: Any, schema: str, names: Collection[str]) -> dict[str, tuple[Any, ...]]:
    """Locks the rows, and returns whether each is enabled, how often it has run, and when last."""
    return {name: tuple(state) for name, *state in db.execute(STATES.format(schema=schema), [[*names]]).fetchall()}


def schema_of(connection: Any) -> str:
    """Returns the schema of beat's tables, quoted. Raises ConfigurationError if there is not exactly one."""
    schemas = [schema for (schema,) in connection.execute(TABLES)]
    if len(schemas) == 1:
        return '"{}"'.format(schemas[0].replace('"', '""'))
    where = (
        f"in the schemas {', '.join(schemas)}; keep it in only one of them"
        if schemas
        else "not in this database; pass its URL: --from"
    )
    raise ConfigurationError(f"the table django_celery_beat_periodictask is {where}")


def _found(row: Mapping[str, Any], now: datetime) -> Found:
    task = row["task"]
    state = task["enabled"], task["total_run_count"], _instant(task["last_run_at"])
    fields, faults = _arguments(task)
    timing, times = _schedule(row)
    wanted: dict[str, Any] = {"function": function_name(task["task"]), "name": task["name"], **fields}
    wanted |= {field: task[field] for field in ("queue", "description") if task[field]}
    draft, due = Draft(wanted, refusals=[*_refusals(row, now), *faults], notes=[*_notes(task)]), None
    draft.decisions.append(Decision("box", "beat stores no time limit; how long may a run last?"))
    if isinstance(timing, str):
        draft.refusals.append(timing)
    else:
        wanted |= {**timing, **_bounds(task, timing)}
        due = _next(task, wanted, times, now) if task["enabled"] else None
        if due and "every" in wanted:
            wanted["first"] = due
        if due and due <= now and "at" in wanted:
            wanted["at"] = now + CHANGE_OVER  # until it is decided
            question = f"its time {due.isoformat()} has passed, and beat has not run it; when should it run?"
            draft.decisions.append(Decision("at", question))
    return draft.found(
        NAME, task["name"], None if draft.refusals else due, enabled=task["enabled"], times=times,
        stored={"identity": task["name"], "state": state, "last": state[-1], "taken_from": _ran(*state[1:])},
    )  # fmt: skip


def _arguments(task: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns args and kwargs, and why they cannot be brought over."""
    fields, faults = dict[str, Any](), list[str]()
    empty: tuple[tuple[str, Any, str], ...] = (("args", [], "array"), ("kwargs", {}, "object"))
    for field, nothing, kind in empty:
        try:
            value = json.loads(task[field] or "null") or nothing
        except ValueError:
            faults.append(f"{field} are not JSON; beat cannot run the entry either")
            continue
        faults += [
            f"{path} is a {of} in Celery's JSON; pass a text, a number, or an id" for path, of in encoded(value, field)
        ]
        if not isinstance(value, type(nothing)):
            faults.append(f"{field} are not a JSON {kind}")
        elif value:
            fields[field] = value
    return fields, faults


def _bounds(task: Mapping[str, Any], timing: Mapping[str, Any]) -> Mapping[str, Any]:
    starts, ends = _instant(task["start_time"]), _instant(task["expires"])
    is_once = task["one_off"] and "at" not in timing
    given = {"starts": starts, "ends": ends, "max_runs": 1 if is_once else None}
    return {field: value for field, value in given.items() if value is not None}


def _notes(task: Mapping[str, Any]) -> Iterator[str]:
    if task["priority"] is not None:
        yield f"priority {task['priority']} orders messages of Celery; in RQ, the order of a worker's queues decides"
    if task["expire_seconds"] is not None:
        yield f"expire_seconds {task['expire_seconds']} has no counterpart; a job expires by its task's schedule"


def _refusals(row: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """Yields one sentence for each thing that has no counterpart, or nothing left to run."""
    task, expires, clocked = row["task"], _instant(row["task"]["expires"]), row["clocked"]
    if task["name"] == OWN:
        yield "it deletes Celery's own results, and beat creates it again; leave it to Celery"
    for field in ("exchange", "routing_key"):
        if task[field]:
            yield f"{field} {quoted(task[field])} routes messages of Celery; set queue to the RQ queue, and clear this field"
    if task["headers"] not in (None, "", "{}"):
        yield "headers belong to messages of Celery; pass their values as arguments, and clear them"
    if expires and expires <= now:
        yield f"it expired at {expires.isoformat()}; nothing is left to run"
    if task["one_off"] and (task["total_run_count"] or (clocked and not task["enabled"])):
        yield "it should run only once, and has run; nothing is left to run"


def _schedule(row: Mapping[str, Any]) -> tuple[Mapping[str, Any] | str, dialects.Times | None]:
    """Returns the fields of the schedule, or why there are none, and its times by beat's rule."""
    given = [name for name in ("interval", "crontab", "clocked", "solar") if row[name]]
    if len(given) != 1:
        return (
            f"it has {' and '.join(given) or 'no schedule'}, but beat runs only entries with exactly one schedule",
            None,
        )
    schedule = row[given[0]]
    if given == ["interval"]:
        return {"every": timedelta(**{schedule["period"]: schedule["every"]}).total_seconds()}, None
    if given == ["clocked"]:
        return {"at": _instant(schedule["clocked_time"])}, None
    if given == ["solar"]:
        return (
            f"{schedule['event']} follows the sun; write a time of day, or let the function look whether it is time",
            None,
        )
    text = " ".join(schedule[field].replace(" ", "") for field in FIELDS)
    translated = dialects.translate(NAME, text, schedule["timezone"])
    return translated.refusal or translated.wanted, translated.times


def _next(
    task: Mapping[str, Any], wanted: Mapping[str, Any], times: dialects.Times | None, now: datetime
) -> datetime | None:
    """Returns when beat runs the entry next: by its last run, or by its last change if it never ran."""
    last, starts = _instant(task["last_run_at"]), _instant(task["start_time"])
    if "at" in wanted:
        at: datetime = wanted["at"]
        return at
    since = last or _instant(task["date_changed"]) or now
    if times is not None:
        after = max(since, now, starts or now)
        return next(iter(times(after, 1)), None)
    due = since + timedelta(seconds=wanted["every"])
    return max(due if last or not starts else starts, starts or due)


def encoded(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yields the place and the kind of each value that Celery's JSON encodes, such as a datetime."""
    if isinstance(value, dict) and "__type__" in value:
        yield path, str(value["__type__"])
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from encoded(item, f"{path}.{key}")
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from encoded(item, f"{path}[{place}]")


def _instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).astimezone(UTC) if text else None
