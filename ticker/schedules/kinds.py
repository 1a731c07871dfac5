"""Gives schedules of every kind one interface. Start with `Schedule`; `parse` and `detect` return one.

interval   1m, or 1m..30m                a fixed or elastic interval, counted from the tick that found the task due
cron       0 9 * * 1-5                   5, 6 (seconds first) or 7 fields (year last)
calendar   Mon..Fri *-*-* 09:00:00       systemd's OnCalendar
once       2026-05-01T09:00:00+02:00     a single time
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol
from zoneinfo import ZoneInfo

from ticker.errors import BadInput
from ticker.model import Alarm, DueTask, Kind
from ticker.schedules import calendar, cron, duration, hours, interval, once, zones
from ticker.schedules.interval import MILLISECOND, Interval

if TYPE_CHECKING:
    from ticker.tasks.fields import Task

UTC = "UTC"
MICROSECOND = timedelta(microseconds=1)
LATE = timedelta(minutes=1)
TEMPLATE = "template"  # has paused a cron or calendar task of a new owner until a tick has computed its first time
_HOW = (
    "is not a schedule; write an interval such as 15m, cron such as 0 9 * * 1-5, a calendar event such as "
    "Mon..Fri 09:00, or a time such as 2027-01-31T09:00:00Z"
)


class Schedule(Protocol):
    """A schedule of any kind. `text` is normalized: it is stored, and `parse` reads it back as the same schedule."""

    @property
    def kind(self) -> Kind: ...

    @property
    def text(self) -> str: ...

    @property
    def zone(self) -> ZoneInfo: ...

    def next_after(self, instant: datetime) -> datetime | None:
        """Returns the first time after `instant` (aware), in UTC, or None if there is none."""

    def words(self) -> str:
        """Returns the schedule in English, without its zone."""


class Shifted:
    """A schedule whose times are all later by a fixed span."""

    def __init__(self, schedule: Schedule, by: timedelta) -> None:
        self.schedule, self.by = schedule, by
        self.kind, self.text, self.zone = schedule.kind, schedule.text, schedule.zone

    def next_after(self, instant: datetime) -> datetime | None:
        unshifted = self.schedule.next_after(instant - self.by)
        return None if unshifted is None else unshifted + self.by

    def words(self) -> str:
        return f"{self.schedule.words()}, plus {duration.words(self.by // MILLISECOND)}"


def shifted(schedule: Schedule, ms: int | None) -> Schedule:
    return Shifted(schedule, ms * MILLISECOND) if ms else schedule


def parse(kind: Kind, text: str, zone: str = UTC) -> Schedule:
    """Returns a stored schedule other than an interval. Raises BadInput, for example for a row edited by hand."""
    if kind is Kind.CRON:
        return _cron(text, zone)
    if kind is Kind.CALENDAR:
        return _calendar(text, zone)
    if kind is Kind.ONCE:
        return once.parse(text, zones.zone("zone", zone))
    raise BadInput("kind", kind, "has no expression")


@lru_cache(maxsize=10_000)
def _cron(text: str, zone: str) -> cron.Cron:
    return cron.parse(text, zones.zone("zone", zone))


@lru_cache(maxsize=10_000)
def _calendar(text: str, zone: str) -> calendar.Calendar:
    return calendar.parse(text, zones.zone("zone", zone))


def detect(text: str, zone: str | None = None) -> Schedule:
    """Returns the schedule, of any kind, that a text describes. Raises the BadInput of the kind that the text
    resembles.
    """
    field, parts = "expression", text.split()
    given = None if zone is None else zones.zone("zone", zone)
    utc = given or ZoneInfo(UTC)
    if text.lower().startswith("every "):
        raise BadInput(field, text, "begins with 'every'; write the interval alone, such as 15m")
    if re.fullmatch(
        r"[+-]?[0-9]{9,}|[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:.,]+| [0-9:.,]+(?=[+Zz-]))([+-][0-9:]+|[Zz])?", text.strip()
    ):
        return once.parse(text, utc, field)
    if text.strip().startswith("@") or len(parts) > 4 or "*" in parts:
        return cron.parse(text, utc, field)
    if len(parts) == 1 and re.match(r"-?[0-9.]+[A-Za-z]*$|P|-?([0-9.]+[a-z]+)+$", parts[0]):
        return interval.parse(field, text, utc)
    if parts and parts[0][0].isalpha() and not calendar.may_begin(parts[0]):
        raise BadInput(field, text, _HOW)
    return calendar.parse(text, given, field)


def never_fires(schedule: Schedule, now: datetime, field: str, value: object) -> None:
    """Raises BadInput for a schedule that has no time after `now`."""
    if schedule.next_after(now) is None:
        raise no_time(schedule.kind, field, value)


def no_time(kind: Kind, field: str, value: object) -> BadInput:
    why = "is in the past" if kind is Kind.ONCE else "never fires again"
    return BadInput(field, value, f"{why}, so the task would never run")


def times(schedule: Schedule, after: datetime, count: int) -> list[datetime]:
    """Returns the next `count` times, or as many as there are."""
    result: list[datetime] = []
    while len(result) < count and (following := schedule.next_after(result[-1] if result else after)):
        result.append(following)
    return result


def first_run(schedule: Schedule, now: datetime, starts: datetime | None = None) -> datetime | None:
    """Returns when a new task is due: an interval task at once, any other at its first time, but not before `starts`."""
    begin = max(now, starts or now)
    if schedule.kind is Kind.INTERVAL:
        return begin
    return schedule.next_after(begin - MICROSECOND if begin > now else now)


def first_by_default(row: Mapping[str, Any], now: datetime) -> datetime | None:
    """Returns the first time of a cron or calendar task that a trigger has created for a new owner. No trigger can
    compute it.

    None means that the row stays due: it is another task, has no other time, or cannot be scheduled, which its push
    reports.
    """
    if row["paused_by"] != TEMPLATE:
        return None
    try:
        first = first_run(
            shifted(parse(Kind(row["kind"]), row["expression"], row["zone"]), row["phase_ms"]), now, row["starts_at"]
        )
    except BadInput:
        return None
    return None if first is None or (row["ends_at"] is not None and first > row["ends_at"]) else first


def shortest_gap(schedule: Schedule, now: datetime) -> int | None:
    """Returns the milliseconds between the two closest of the next 100 times, or None if there are fewer than two."""
    return min(((b - a) // MILLISECOND for a, b in pairwise(times(schedule, now, 100))), default=None)


def was_missed(task: DueTask, now: datetime, late: timedelta = LATE) -> bool:
    """Returns whether this occurrence is overdue by more than ticks can cause (`late`), and a later one has passed,
    too.

    The interval of a task that was resumed counts from then on.
    """
    since = max(task.occurrence, task.resumed_at or task.occurrence) if task.kind is Kind.INTERVAL else task.occurrence
    if now - since <= late:
        return False
    later = of(task).next_after(since)
    return later is not None and later <= now


def of(task: "DueTask | Task | Alarm") -> Schedule:
    """Returns the schedule in a task's row, with its phase after each time, or its hours.

    Raises BadInput if it cannot be scheduled.
    """
    if task.kind is not Kind.INTERVAL:
        return shifted(parse(task.kind, task.expression, task.zone), task.phase_ms)
    return hours.InHours(in_force(task), task) if task.during else in_force(task)


def in_force(task: "DueTask | Task | Alarm") -> Interval:
    """Returns the interval of a task, regardless of its hours; of an elastic interval, the one in force. Raises
    BadInput.
    """
    if task.every_ms <= 0:
        raise BadInput("every_ms", task.every_ms, "is not an interval")
    return _interval(task.every_ms if task.pace_ms is None else task.pace_ms)


_interval = lru_cache(maxsize=10_000)(Interval)


def upcoming(task: "Task", after: datetime, count: int, tick: int) -> list[datetime]:
    """Returns the next `count` times of a task that is pushed at `after`. `tick` is the time between two ticks, in ms."""
    if task.kind is not Kind.INTERVAL:
        return times(of(task), after, count)
    result, every = [after], Interval(task.interval_ms)
    while len(result) <= count:
        last = result[-1]
        if task.phase_ms is None or task.interval_ms != task.every_ms:
            due = every.next_after(last)
        else:
            due = interval.next_in_phase(last, last, task.every_ms, task.tolerance_ms, task.phase_ms, tick)
        result.append(hours.in_hours(task, due))
    return result[1:]


def next_run(task: DueTask, now: datetime, tick: int = 0) -> datetime | None:
    """Returns when a task that is pushed at `now` is due again, or None if it never is. `tick` is in milliseconds.

    An interval counts from the tick, or keeps its phase if it has one. The other kinds continue after `now`, and never
    return the same occurrence twice. Raises BadInput for a row that cannot be scheduled.
    """
    due: datetime | None
    if task.kind != Kind.INTERVAL:
        due = of(task).next_after(max(now, task.occurrence))
    elif task.phase_ms is None:
        due = in_force(task).next_after(now)
    elif task.pace_ms is not None:
        due = interval.next_at_pace(now, task.every_ms, task.tolerance_ms, task.phase_ms, task.pace_ms)
    else:
        due = interval.next_in_phase(task.occurrence, now, task.every_ms, task.tolerance_ms, task.phase_ms, tick)
    # the end of the run may shorten a longer interval in force: the tick that finds the task due puts it off, if need be
    return bounded(task, due if due is None or task.pace_ms is not None else hours.in_hours(task, due))


def bounded(task: "DueTask | Task", due: datetime | None) -> datetime | None:
    """Returns the time, or None if the schedule has ended by then."""
    return None if due is None or (task.ends_at is not None and due > task.ends_at) else due
