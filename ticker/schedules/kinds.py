"""Schedules of every kind behind one shape. Start with `Schedule`; `parse` and `detect` are the ways in.

interval   1m                            every so often, counted from the tick that found the task due
cron       0 9 * * 1-5                   5, 6 (seconds first) or 7 fields (year last)
calendar   Mon..Fri *-*-* 09:00:00       systemd's OnCalendar
once       2026-05-01T09:00:00+02:00     a single time
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol
from zoneinfo import ZoneInfo

from ticker.errors import BadInput
from ticker.model import Alarm, DueTask, Kind
from ticker.schedules import calendar, cron, duration, once, phase, zones
from ticker.schedules.interval import Interval

if TYPE_CHECKING:
    from ticker.tasks.fields import Task

UTC = "UTC"
MICROSECOND = timedelta(microseconds=1)
MILLISECOND = timedelta(milliseconds=1)
LATE = timedelta(minutes=1)
_HOW = (
    "is no schedule; write an interval such as 15m, cron such as 0 9 * * 1-5, a calendar event such as "
    "Mon..Fri 09:00, or a time such as 2027-01-31T09:00:00Z"
)


class Schedule(Protocol):
    """`text` is normalized: what is stored, and what `parse` reads back to the same schedule."""

    @property
    def kind(self) -> Kind: ...

    @property
    def text(self) -> str: ...

    @property
    def zone(self) -> ZoneInfo: ...

    def next_after(self, instant: datetime) -> datetime | None:
        """The first time behind `instant`, which is aware; in UTC. None: there is none."""

    def words(self) -> str:
        """The schedule in English, without its zone."""


@dataclass(frozen=True, slots=True)
class Shifted:
    """A schedule whose times are each later by a fixed span."""

    schedule: Schedule
    by: timedelta

    @property
    def kind(self) -> Kind:
        return self.schedule.kind

    @property
    def text(self) -> str:
        return self.schedule.text

    @property
    def zone(self) -> ZoneInfo:
        return self.schedule.zone

    def next_after(self, instant: datetime) -> datetime | None:
        found = self.schedule.next_after(instant - self.by)
        return None if found is None else found + self.by

    def words(self) -> str:
        return f"{self.schedule.words()}, plus {duration.words(self.by // MILLISECOND)}"


def shifted(schedule: Schedule, ms: int | None) -> Schedule:
    return Shifted(schedule, ms * MILLISECOND) if ms else schedule


def parse(kind: Kind, text: str, zone: str = UTC) -> Schedule:
    """A stored schedule that is no interval. BadInput, also for a row that was edited by hand."""
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
    """Whatever kind the text is of. BadInput, in the words of the kind that it looks like."""
    field, parts = "expression", text.split()
    place = None if zone is None else zones.zone("zone", zone)
    utc = place or ZoneInfo(UTC)
    if text.lower().startswith("every "):
        raise BadInput(field, text, "begins with every; write the interval alone, such as 15m")
    if re.fullmatch(
        r"[+-]?[0-9]{9,}|[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:.,]+| [0-9:.,]+(?=[+Zz-]))([+-][0-9:]+|[Zz])?", text.strip()
    ):
        return once.parse(text, utc, field)
    if text.strip().startswith("@") or len(parts) > 4 or "*" in parts:
        return cron.parse(text, utc, field)
    if len(parts) == 1 and re.match(r"-?[0-9.]+[A-Za-z]*$|P|-?([0-9.]+[a-z]+)+$", parts[0]):
        return Interval(duration.milliseconds(field, text, least=duration.SECOND), utc)
    if parts and parts[0][0].isalpha() and not calendar.may_begin(parts[0]):
        raise BadInput(field, text, _HOW)
    return calendar.parse(text, place, field)


def never_fires(schedule: Schedule, now: datetime, field: str, said: object) -> None:
    """BadInput for a schedule that has no time behind `now`."""
    if schedule.next_after(now) is None:
        raise no_time(schedule.kind, field, said)


def no_time(kind: Kind, field: str, said: object) -> BadInput:
    why = "lies in the past" if kind is Kind.ONCE else "never fires again"
    return BadInput(field, said, f"{why}, and would wait for ever")


def times(schedule: Schedule, after: datetime, count: int) -> list[datetime]:
    """The next `count` times, or as many as there are."""
    found: list[datetime] = []
    while len(found) < count and (following := schedule.next_after(found[-1] if found else after)):
        found.append(following)
    return found


def first_run(schedule: Schedule, now: datetime, starts: datetime | None = None) -> datetime | None:
    """When a new task is due: an interval at once, the others at their first time; not before `starts`."""
    begin = max(now, starts or now)
    if schedule.kind is Kind.INTERVAL:
        return begin
    return schedule.next_after(begin - MICROSECOND if begin > now else now)


def after_pause(row: Mapping[str, Any], now: datetime) -> datetime | None:
    """When a resumed task by cron or calendar is due that would be due at once: it waits for its next time. Else None."""
    if row["kind"] not in (Kind.CRON, Kind.CALENDAR) or row["next_run"] is None or row["next_run"] > now:
        return None
    try:
        schedule = shifted(parse(Kind(row["kind"]), row["expression"], row["zone"]), row["phase_ms"])
        found = first_run(schedule, now, row["starts_at"])
    except BadInput:  # a row that a hand has spoilt: the push says so
        return None
    return None if found is None or (row["ends_at"] is not None and found > row["ends_at"]) else found


def shortest_gap(schedule: Schedule, now: datetime, look: int = 100) -> int | None:
    """Milliseconds between the two closest of the next times; None where there are not two."""
    found = times(schedule, now, look)
    return min(((b - a) // MILLISECOND for a, b in pairwise(found)), default=None)


def was_missed(task: DueTask, now: datetime, late: timedelta = LATE) -> bool:
    """Whether a later occurrence has passed, too, and this one is later than any tick makes it: two ticks, and a minute."""
    if now - task.occurrence <= late:
        return False
    later = of(task).next_after(task.occurrence)
    return later is not None and later <= now


def of(task: "DueTask | Task | Alarm") -> Schedule:
    """Returns the schedule in a task's row, including its place after each time. Raises BadInput if it cannot be scheduled."""
    return shifted(plain(task), None if task.kind is Kind.INTERVAL else task.phase_ms)


def plain(task: "DueTask | Task | Alarm") -> Schedule:
    """Returns the same without the place."""
    if task.kind is not Kind.INTERVAL:
        return parse(task.kind, task.expression, task.zone)
    if task.every_ms <= 0:
        raise BadInput("every_ms", task.every_ms, "is no interval")
    return Interval(task.every_ms)


def upcoming(task: "Task", after: datetime, count: int, tick: int) -> list[datetime]:
    """Returns the next `count` times of a task that is pushed at `after`; `tick` is the milliseconds between two ticks."""
    if task.kind is not Kind.INTERVAL or task.phase_ms is None:
        return times(of(task), after, count)
    found = [after]
    while len(found) <= count:
        last = found[-1]
        found.append(phase.next_after(last, last, task.every_ms, task.tolerance_ms, task.phase_ms, tick))
    return found[1:]


def next_run(task: DueTask, now: datetime, tick: int = 0) -> datetime | None:
    """When a task that was pushed at `now` is due again; None: never. BadInput for a row that cannot be scheduled.

    An interval counts from the tick, or keeps its place, if it has one; `tick` is the milliseconds between two ticks. The
    other kinds go on after `now`, and never twice to one occurrence.
    """
    if task.phase_ms is not None and task.kind == Kind.INTERVAL:
        found: datetime | None = phase.next_after(
            task.occurrence, now, task.every_ms, task.tolerance_ms, task.phase_ms, tick
        )
    else:
        found = of(task).next_after(now if task.kind == Kind.INTERVAL else max(now, task.occurrence))
    return None if found is None or (task.ends_at is not None and found > task.ends_at) else found
