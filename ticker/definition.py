"""What a user says of a task, checked: a `Definition` fits every rule, or was refused with one sentence."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ticker import json_text, timing
from ticker.errors import BadInput, quoted
from ticker.schedules import calendar, cron, kinds, once, zones
from ticker.schedules.duration import Duration, milliseconds, words
from ticker.schedules.interval import UTC, Interval
from ticker.schedules.kinds import Schedule
from ticker.task import JSON_AT_MOST, NAME_AT_MOST, TEXT_AT_MOST, Kind, Task

USUAL_TICK = 30_000  # ms
LONG_BOX = 600_000  # ms: over it, the other tasks of the queue wait long

MOST_RUNS = 1_000_000_000

Given = Mapping[str, Any]
"""Checked fields under the names of the table's columns, only those that were passed."""


NOTHING: Mapping[str, Any] = {}


def _no_clock() -> datetime:
    raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A task as `register` takes it, for `reconcile`. What is None was not said, and stays as it is."""

    function: str
    name: str | None = None
    every: Duration | None = None
    cron: str | None = None
    calendar: str | None = None
    at: datetime | str | int | None = None
    zone: str | None = None
    starts: datetime | str | None = None
    ends: datetime | str | None = None
    max_runs: int | None = None
    catch_up: str | None = None
    keep: bool | None = None
    queue: str | None = None
    kwargs: Mapping[str, Any] | None = None
    tolerance: Duration | None = None
    box: Duration | None = None
    subject: str | None = None
    description: str | None = None
    metadata: Mapping[str, Any] | None = None

    def task_name(self) -> str:
        """The name, which defaults to the function's."""
        return plain("function", self.function) if self.name is None else plain("name", self.name)

    def given(self) -> dict[str, Any]:
        """What was said, checked; BadInput names field, value and limit."""
        said = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}
        return check({name: value for name, value in said.items() if value is not None})


def plain(field: str, value: object) -> str:
    """A name: printable text of 1 to 200 characters."""
    return _text(field, value, least=1, most=NAME_AT_MOST)


def prose(field: str, value: object) -> str:
    """A text for people: printable, up to 2,000 characters."""
    return _text(field, value, least=0, most=TEXT_AT_MOST)


def json_object(field: str, value: object) -> dict[str, Any]:
    """A JSON object of up to 64 kB, as PostgreSQL will give it back. Its errors never show a value: it may be a secret."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise BadInput(field, type(value).__name__, 'is no JSON object; write {"name": value}')
    try:
        text = json_text.dumps(value, most=JSON_AT_MOST)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(field, type(value).__name__, f"is not JSON that can be kept: {error}") from None
    return dict(json_text.stored(text))


def check(said: Mapping[str, Any]) -> dict[str, Any]:
    """Each field by its own rule, under its column's name."""
    checked = {COLUMNS.get(field, field): CHECKS[field](field, said[field]) for field in said if field not in SCHEDULE}
    return checked | _schedule({field: value for field, value in said.items() if field in SCHEDULE})


def applied(
    given: Given, before: Task | None, registered: Mapping[str, Any] = NOTHING, now: Callable[[], datetime] = _no_clock
) -> dict[str, Any]:
    """All columns of a definition: what was given, over what the task had, over the defaults.

    A tolerance or box that was never given, now or in `registered`, the columns of earlier registrations, follows the
    schedule. `now` is asked where a schedule is no interval. BadInput where the parts do not fit together.
    """
    said = {*given, *registered}
    values = {
        **DEFAULTS,
        **({} if before is None else {column: getattr(before, column) for column in DEFAULTS}),
        **given,
    }
    if "kind" not in said and before is None:
        raise BadInput("every", None, "is missing; say how often, such as 1m (or give cron, calendar or at)")
    if values["kind"] == Kind.INTERVAL:
        if before is not None and before.kind is not Kind.INTERVAL:  # what was said of an earlier interval holds again
            values |= {
                column: registered[column] for column in ("tolerance_ms",) if column in registered.keys() - given.keys()
            }
        _fit_interval(values, given, said, before)
    else:
        _fit_times(values, given, said, before, now)
    return values


def schedule_of(values: Mapping[str, Any]) -> Schedule:
    """The schedule that columns say."""
    if values["kind"] == Kind.INTERVAL:
        return Interval(values["every_ms"])
    return kinds.parse(Kind(values["kind"]), values["expression"], values["zone"])


def first_run(values: Mapping[str, Any], now: datetime) -> datetime:
    """When a task with these columns is due first, or again after they were changed. BadInput where it never is."""
    starts, ends = (moment(values[column]) for column in ("starts_at", "ends_at"))
    found = kinds.first_run(schedule_of(values), now, starts)
    field = NAMES[Kind(values["kind"])]
    said = values["expression"] or words(values["every_ms"])
    if found is None:
        raise kinds.no_time(Kind(values["kind"]), field, said)
    if ends is not None and found > ends:
        raise BadInput("ends", ends.isoformat(), f"is before the first time of {said}, {found.isoformat()}")
    return found


def check_first(first: datetime, values: Mapping[str, Any]) -> None:
    """BadInput for a first time that a schedule, or its bounds, rules out."""
    starts, ends = (moment(values[column]) for column in ("starts_at", "ends_at"))
    if values["kind"] == Kind.ONCE:
        raise BadInput("first", first.isoformat(), "stands beside at, which is the only time")
    if first < (starts or first) or first > (ends or first):
        raise BadInput("first", first.isoformat(), "is not between starts and ends")


def moment(value: str | datetime | None) -> datetime | None:
    """A bound as a column, or a registration, has it."""
    return datetime.fromisoformat(value) if isinstance(value, str) and value else value or None


def _fit_interval(values: dict[str, Any], given: Given, said: Collection[str], before: Task | None) -> None:
    every = values["every_ms"]
    follow = before is None or before.every_ms != every
    if "tolerance_ms" not in said and follow and _follows("tolerance_ms", before, timing.tolerance_by_default):
        values["tolerance_ms"] = timing.tolerance_by_default(every)
    if "box_ms" not in said and follow and _follows("box_ms", before, timing.box_by_default):
        values["box_ms"] = timing.box_by_default(every)
    values["grace_ms"] = timing.grace(every)
    only = {"tolerance_ms", "box_ms"} & given.keys()
    blame = only.pop().removesuffix("_ms") if len(only) == 1 else None
    timing.check_fit(every, values["tolerance_ms"], values["box_ms"], blame=blame)


def _fit_times(
    values: dict[str, Any], given: Given, said: Collection[str], before: Task | None, now: Callable[[], datetime]
) -> None:
    if given.get("tolerance_ms"):
        raise BadInput(
            "tolerance", words(given["tolerance_ms"]), "is for intervals; other tasks run by their times alone"
        )
    values["tolerance_ms"] = 0
    changed = before is None or any(
        values[column] != getattr(before, column) for column in ("kind", "expression", "zone")
    )
    if changed:
        gap = kinds.shortest_gap(schedule_of(values), now())
        values["grace_ms"] = timing.grace(gap or LONG_BOX)
        if "box_ms" not in said and (before is None or _is_default_box(before, now())):
            values["box_ms"] = timing.box_between(gap)
    elif before is not None:
        values["grace_ms"] = before.grace_ms


def _is_default_box(before: Task, now: datetime) -> bool:
    """Whether nobody has changed it: not an operator either."""
    if before.kind is Kind.INTERVAL:
        return before.box_ms == timing.box_by_default(before.every_ms)
    try:
        gap = kinds.shortest_gap(kinds.of(before), now)
    except BadInput:  # a row that a hand has spoilt
        return True
    return before.box_ms in (timing.box_between(gap), timing.LONGEST_BOX_BY_DEFAULT)


def warnings(task: Task) -> tuple[str, ...]:
    """What is allowed, and rarely what was meant."""
    found = []
    if task.kind is Kind.INTERVAL and (rounded := rounded_up(task.every_ms)):
        found.append(rounded)
    if task.box_ms > LONG_BOX:
        found.append(
            f"a box of {task.box_ms / 60_000:g} min can keep the other tasks of queue {quoted(task.queue)} waiting; "
            "give it a queue of its own"
        )
    return tuple(found)


def rounded_up(every: int) -> str:
    """A sentence where an interval is no multiple of the usual tick, and so is longer in truth."""
    if every % USUAL_TICK == 0:
        return ""
    real = -(-every // USUAL_TICK) * USUAL_TICK // 1000
    return f"every {every / 1000:g} s is no multiple of the usual tick of 30 s: with it, it runs every {real} s"


def _text(field: str, value: object, *, least: int, most: int) -> str:
    if not isinstance(value, str):
        raise BadInput(field, value, "is no text")
    if not least <= len(value) <= most:
        raise BadInput(field, value, f"has {len(value)} characters; {least} to {most} are allowed")
    if not value.isprintable():
        raise BadInput(field, value, "has characters that cannot be printed")
    return value


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadInput(field, value, "is neither True nor False")
    return value


def _box(field: str, value: object) -> int:
    return milliseconds(field, value, least=timing.SHORTEST_BOX)


def _follows(column: str, before: Task | None, by_default: Callable[[int], int]) -> bool:
    if before is None or before.kind is not Kind.INTERVAL:
        return True
    return bool(getattr(before, column) == by_default(before.every_ms))


def _schedule(said: Mapping[str, Any]) -> dict[str, Any]:
    """What was said of when: one of `every`, `cron`, `calendar` and `at`, perhaps with a zone."""
    names = [field for field in NAMES.values() if field in said]
    if len(names) > 1:
        raise BadInput(names[-1], said[names[-1]], f"stands beside {names[0]}; a task has one schedule")
    zone = zones.zone("zone", said["zone"]) if "zone" in said else None
    if not names:
        return {} if zone is None else {"zone": zone.key}
    return _interval(said, zone) if names == ["every"] else _times(names[0], said[names[0]], zone)


def _interval(said: Mapping[str, Any], zone: ZoneInfo | None) -> dict[str, Any]:
    if zone is not None:
        raise BadInput("zone", zone.key, "has no meaning beside every: an interval is real time")
    every = milliseconds("every", said["every"], least=timing.SHORTEST_INTERVAL, most=timing.LONGEST_INTERVAL)
    return {"kind": Kind.INTERVAL, "expression": "", "zone": "UTC", "every_ms": every}


def _times(field: str, value: object, zone: ZoneInfo | None) -> dict[str, Any]:
    """Without a zone, said or in the text, the one that the task has stays."""
    if field != "at" and not isinstance(value, str):
        raise BadInput(field, value, "is no text")
    schedule = READ[field](value, zone)
    named = zone is not None or (field == "calendar" and calendar.names_zone(str(value)))
    given = {"kind": schedule.kind, "expression": schedule.text, "every_ms": 0}
    return given | ({"zone": schedule.zone.key} if named else {})


def _bound(field: str, value: object) -> str:
    """Where a schedule begins or ends; an empty text takes the bound away."""
    return "" if value == "" else once.parse(value, UTC, field).text


def _count(field: str, value: object) -> int | None:
    """How often in all; 0 takes the limit away."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_RUNS:
        raise BadInput(field, value, f"is no whole number from 1 to {MOST_RUNS:,} (0: no limit)")
    return value or None


def _catch_up(field: str, value: object) -> str:
    if value not in ("one", "none"):
        raise BadInput(field, value, "is neither 'one' (a single late run) nor 'none' (what was missed is skipped)")
    return str(value)


CHECKS: Mapping[str, Callable[[str, object], Any]] = {
    "function": plain,
    "starts": _bound,
    "ends": _bound,
    "max_runs": _count,
    "catch_up": _catch_up,
    "keep": _flag,
    "queue": plain,
    "kwargs": json_object,
    "tolerance": milliseconds,
    "box": _box,
    "subject": prose,
    "description": prose,
    "metadata": json_object,
    "enabled": _flag,
}

COLUMNS = {"tolerance": "tolerance_ms", "box": "box_ms", "starts": "starts_at", "ends": "ends_at"}

NAMES = {Kind.INTERVAL: "every", Kind.CRON: "cron", Kind.CALENDAR: "calendar", Kind.ONCE: "at"}
SCHEDULE = {*NAMES.values(), "zone"}
READ: Mapping[str, Callable[[Any, ZoneInfo | None], Schedule]] = {
    "cron": lambda text, zone: cron.parse(text, zone or UTC),
    "calendar": calendar.parse,
    "at": lambda value, zone: once.parse(value, zone or UTC),
}
FIELDS = (*SCHEDULE, *CHECKS)


DEFAULTS: Mapping[str, Any] = {
    "function": "", "kwargs": {}, "kind": Kind.INTERVAL, "expression": "", "zone": "UTC", "every_ms": 0,
    "tolerance_ms": 0, "box_ms": 0, "queue": "polling", "subject": "", "description": "", "metadata": {}, "enabled": True,
    "starts_at": None, "ends_at": None, "max_runs": None, "catch_up": "one", "keep": True,
}  # fmt: skip
