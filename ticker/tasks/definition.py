"""Builds definitions of tasks from a user's fields. A definition that breaks a rule raises BadInput with one sentence."""

from collections.abc import Collection, Mapping
from dataclasses import FrozenInstanceError
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, Unpack

from ticker.engine import timing
from ticker.errors import BadInput, quoted
from ticker.model import Kind
from ticker.schedules import hours, interval, kinds
from ticker.schedules.duration import figure, words
from ticker.schedules.interval import UTC, Interval
from ticker.schedules.kinds import Schedule
from ticker.tasks import checks, fields
from ticker.tasks.fields import DEFAULTS, Task

LONG_BOX = 600_000  # ms; above it, other tasks of the queue wait for a long time

Given = Mapping[str, Any]
"""Checked fields under the names of the table's columns, only those that were passed."""


NOTHING: Mapping[str, Any] = {}


class Wanted(SimpleNamespace):
    """A task for `reconcile`, with the fields of `register`. A field that is None was not passed and stays unchanged."""

    @fields.spelled_out
    def __init__(self, *, function: str, name: str | None = None, **settings: Unpack[fields.TaskFields]) -> None:
        fields.check_names("Wanted", settings, ("function", "name", *fields.SETTINGS))
        super().__init__(function=function, name=name, **(dict.fromkeys(fields.SETTINGS) | settings))

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Wanted, **vars(self)), ()

    def task_name(self) -> str:
        """Returns the name, which defaults to the function's."""
        return checks.plain("function", self.function) if self.name is None else checks.plain("name", self.name)

    def given(self) -> dict[str, Any]:
        """Checks and returns the fields that were passed. Raises BadInput, which names the field, the value and the
        limit.
        """
        return fields.check({name: value for name, value in vars(self).items() if name != "name" and value is not None})


def applied(
    given: Given, before: Task | None, registered: Mapping[str, Any] = NOTHING, now: datetime | None = None
) -> dict[str, Any]:
    """Returns all columns of a definition: the given fields, then the task's own values, then the defaults.

    A tolerance or box that was never passed follows the schedule. `registered` holds the columns of earlier
    registrations. `now` is required if `needs_now` returns True. Raises BadInput if the parts do not fit together.
    """
    explicit = {*given, *registered}
    values = {
        **DEFAULTS,
        **({} if before is None else {column: getattr(before, column) for column in DEFAULTS}),
        **given,
    }
    if "kind" not in explicit and before is None:
        raise BadInput("every", None, "is missing; write a duration such as 1m, or use cron, calendar or at")
    is_interval = values["kind"] == Kind.INTERVAL
    if (
        before is not None and (before.kind is Kind.INTERVAL) != is_interval
    ):  # what was registered earlier applies again
        columns = ("tolerance_ms", "during", "zone") if is_interval else ("within_ms", "zone")
        values |= {column: registered[column] for column in columns if column in registered.keys() - given.keys()}
    checks.call(values["args"], values["kwargs"])
    if is_interval:
        _fit_interval(values, given, explicit, before)
    else:
        assert now is not None, "needs_now"
        _fit_times(values, given, explicit, before, now)
    return values


def needs_now(given: Given, before: Task | None) -> bool:
    """Returns whether a definition depends on the time. The definition of an interval task does not."""
    return bool(given.get("kind", Kind.INTERVAL if before is None else before.kind) != Kind.INTERVAL)


def schedule_of(values: Mapping[str, Any]) -> Schedule:
    """Returns the schedule of these columns."""
    if values["kind"] == Kind.INTERVAL:
        return Interval(values["every_ms"], most_ms=values["every_most_ms"])
    return kinds.parse(Kind(values["kind"]), values["expression"], values["zone"])


def first_run(values: Mapping[str, Any], now: datetime) -> datetime:
    """Returns when a new or changed task with these columns is first due, regardless of its hours.

    Raises BadInput if it never is due.
    """
    starts, ends = (moment(values[column]) for column in ("starts_at", "ends_at"))
    first = kinds.first_run(schedule_of(values), now, starts)
    field = checks.NAMES[Kind(values["kind"])]
    text = values["expression"] or words(values["every_ms"])
    if first is None:
        raise kinds.no_time(Kind(values["kind"]), field, text)
    opening = max(first, hours.span(values["during"], values["zone"], first).begins) if values["during"] else first
    if ends is not None and opening > ends:
        raise BadInput("ends", ends.isoformat(), f"is before the first time of {text}, {opening.isoformat()}")
    return first


def check_first(first: datetime, values: Mapping[str, Any]) -> None:
    """Raises BadInput for a first time that the schedule or its bounds exclude."""
    starts, ends = (moment(values[column]) for column in ("starts_at", "ends_at"))
    if values["kind"] == Kind.ONCE:
        raise BadInput("first", first.isoformat(), "cannot be combined with at, which already sets the only time")
    if first < (starts or first) or first > (ends or first):
        raise BadInput("first", first.isoformat(), "is not between starts and ends")


def moment(value: str | datetime | None) -> datetime | None:
    """Returns a bound from a column or a registration as a datetime, or None."""
    return datetime.fromisoformat(value) if isinstance(value, str) and value else value or None


def _fit_interval(values: dict[str, Any], given: Given, explicit: Collection[str], before: Task | None) -> None:
    every, retries = values["every_ms"], values["retries"]
    follow = before is None or before.every_ms != every
    if "tolerance_ms" not in explicit and follow and has_usual_tolerance(before):
        values["tolerance_ms"] = timing.tolerance_by_default(every)
    if "box_ms" not in explicit and (follow or _are_new(retries, before)) and has_default_box(before):
        values["box_ms"] = timing.box_by_default(every, retries)
    values["grace_ms"] = timing.grace(every)
    if given.get("within_ms"):
        raise BadInput(
            "within",
            words(given["within_ms"]),
            "applies only to cron and calendar; for an interval, spread is enough",
        )
    values["within_ms"] = None
    check_hours(values["during"], every, given.get("zone", UTC.key))
    values["zone"] = values["zone"] if values["during"] else UTC.key
    only = {"tolerance_ms", "box_ms"} & given.keys()
    blame = only.pop().removesuffix("_ms") if len(only) == 1 else None
    timing.check_fit(every, values["tolerance_ms"], values["box_ms"], blame=blame)
    if values["stretch_ms"] is not None and values["stretch_ms"] <= every:
        raise BadInput("stretch", words(values["stretch_ms"]), f"must be longer than the interval of {words(every)}")


def check_hours(during: str, every: int, zone: str) -> None:
    """Checks that an interval fits into its hours. Without hours, it has no zone: it is elapsed time. Raises BadInput."""
    if not during and zone != UTC.key:
        raise BadInput("zone", zone, "does not apply to every without during: an interval is elapsed time")
    if during and every > (shortest := hours.stored(during).shortest):
        problem = f"lasts {words(shortest)}, less than the interval of {words(every)}; write longer hours, or use cron"
        raise BadInput("during", during, problem)


def check_no_hours(during: str | None) -> None:
    if during:
        raise BadInput("during", during, "applies only to every; cron and calendar name their own hours")


def _fit_times(
    values: dict[str, Any], given: Given, explicit: Collection[str], before: Task | None, now: datetime
) -> None:
    for field, value in (("tolerance", given.get("tolerance_ms")), ("stretch", values["stretch_ms"])):
        if value:
            raise BadInput(field, words(value), "applies only to intervals; other tasks run at their times")
    check_no_hours(given.get("during"))
    values["during"] = ""
    _fit_window(values, now)
    values["tolerance_ms"] = 0
    changed = _are_new(values["retries"], before) or any(
        values[column] != getattr(before, column) for column in ("kind", "expression", "zone")
    )
    if changed:
        gap = kinds.shortest_gap(schedule_of(values), now)
        values["grace_ms"] = timing.grace(gap or LONG_BOX)
        if "box_ms" not in explicit and (before is None or has_usual_box(before, now)):
            values["box_ms"] = timing.box_between(gap, values["retries"])
    elif before is not None:
        values["grace_ms"] = before.grace_ms


def _fit_window(values: Mapping[str, Any], now: datetime) -> None:
    """Checks that the window in which the task has its phase ends before the schedule's next time."""
    within, named = values["within_ms"], values["kind"] in (Kind.CRON, Kind.CALENDAR)
    if within is not None and not (values["spread"] and named):
        raise BadInput("within", words(within), "needs spread, and cron or calendar")
    if values["spread"] and within is None:
        raise BadInput("spread", True, "needs every, or else within (such as 2h) together with cron or calendar")
    if within is not None and (gap := kinds.shortest_gap(schedule_of(values), now)) is not None and within >= gap:
        raise BadInput("within", words(within), f"must be shorter than the {words(gap)} between two of its times")


def _are_new(retries: int, before: Task | None) -> bool:
    """Returns whether the task had no retries and now has some, or the reverse. Its default box then changes, too."""
    return before is None or bool(retries) != bool(before.retries)


def has_usual_box(before: Task, now: datetime) -> bool:
    """Returns whether the box still has a default value."""
    if before.kind is Kind.INTERVAL:
        return has_default_box(before)
    try:
        gap = kinds.shortest_gap(kinds.of(before), now)
    except BadInput:  # a row that was damaged by hand
        return True
    return before.box_ms in (timing.box_between(gap, before.retries), timing.LONGEST_BOX_BY_DEFAULT)


def warnings(task: Task, tick: int = timing.USUAL_TICK) -> tuple[str, ...]:
    """Returns warnings about allowed but unusual values. `tick` is in milliseconds."""
    warnings = []
    if task.kind is Kind.INTERVAL and not keeps_place(task, tick) and (rounded := rounded_up(task.every_ms, tick)):
        warnings.append(rounded)
    if task.box_ms > LONG_BOX:
        warnings.append(
            f"a box of {words(task.box_ms)} can keep the other tasks of queue {quoted(task.queue)} waiting; "
            "give this task its own queue"
        )
    return tuple(warnings)


def keeps_place(task: Task, tick: int) -> bool:
    """Returns whether the task can keep its phase with this tick and still run as often as its interval requires."""
    return task.spread and interval.keeps_phase(task.every_ms, task.tolerance_ms, tick)


def rounded_up(every: int, tick: int = timing.USUAL_TICK) -> str:
    """Returns a warning if an interval is not a multiple of the tick, and is therefore rounded up to one."""
    if every % tick == 0:
        return ""
    real = -(-every // tick) * tick
    return (
        f"every {figure(every)} is not a multiple of {tick_in_words(tick)}: with it, the task runs every {figure(real)}"
    )


def slowed(task: Task) -> str:
    """Returns the interval in force, with the reason, if it is longer than the task's own. Otherwise, the text is
    empty.
    """
    if task.stretched_ms is not None:
        return f"{figure(task.stretched_ms)} while it fails, otherwise {figure(task.pace_ms or task.every_ms)}"
    if task.pace_ms is None:
        return ""
    again = f"it is {figure(task.every_ms)} again after a run that finds work"
    return f"{figure(task.pace_ms)} because its last runs found nothing to do; {again}"


def alone(task: Task, until: str) -> str:
    """Returns why and until when a task runs alone. `until` is its `alone_until` in words."""
    if task.alone_until == timing.LATEST:
        return "it runs alone or with other suspects until one of its runs has ended: a run was interrupted or lost, and the cause is unknown"
    return f"it runs alone in its job until {until}: one of its runs was killed or lost, and no other run was the cause"


def tick_in_words(tick: int) -> str:
    return f"the {'usual tick' if tick == timing.USUAL_TICK else 'tick'} of {tick / 1000:g} s"


def has_usual_tolerance(before: Task | None) -> bool:
    """Returns whether the tolerance is the default."""
    if before is None or before.kind is not Kind.INTERVAL:
        return True
    return before.tolerance_ms == timing.tolerance_by_default(before.every_ms)


def has_default_box(before: Task | None) -> bool:
    if before is None or before.kind is not Kind.INTERVAL:
        return True
    return before.box_ms == timing.box_by_default(before.every_ms, before.retries)
