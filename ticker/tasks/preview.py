"""Previews a schedule before it is used: its kind, text, description, next times and warnings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

from ticker import clock, settings
from ticker.engine import timing
from ticker.errors import BadInput
from ticker.model import DueTask, Kind
from ticker.schedules import hours, kinds, zones
from ticker.schedules.calendar import Calendar
from ticker.schedules.cron import Cron
from ticker.schedules.duration import whole, words
from ticker.schedules.hours import InHours
from ticker.schedules.interval import Interval
from ticker.schedules.kinds import Schedule
from ticker.schedules.once import EPOCH
from ticker.tasks import checks, definition, fields
from ticker.tasks.fields import Task

YEAR = timedelta(days=366)
MOST_TIMES = 1000


@dataclass(frozen=True, slots=True)
class Preview:
    """A schedule's meaning. `normalized` is the text to be stored; `times` are the next times, in UTC."""

    kind: Kind
    normalized: str
    zone: str
    words: str
    times: tuple[datetime, ...]
    warnings: tuple[str, ...]


def validate(
    text: str, *, zone: str | None = None, during: str | None = None, count: int = 5, now: datetime | None = None,
    tick_ms: int | None = None,
) -> Preview:  # fmt: skip
    """Returns the preview of a schedule, such as `1m`, `0 9 * * 1-5`, `Mon..Fri 09:00` or `2027-01-01T00:00:00Z`.

    `during` and `zone` are as in `register`. Raises BadInput if the text is invalid or never fires. `now` defaults to
    this machine's clock, and `tick_ms` to TICKER_TICK.
    """
    if not isinstance(text, str):
        raise BadInput("expression", text, "is not a string")
    schedule = in_hours(kinds.detect(text, zone), zone or "UTC", checks.during("during", during or ""))
    start = now or clock.python_utc()
    kinds.never_fires(schedule, start, "expression", text)
    return of(schedule, start, count, tick_ms)


def of_fields(given: Mapping[str, Any], count: int, now: datetime) -> Preview:
    """Returns the preview of a schedule in fields of `register`, such as `every` and `zone`. Raises BadInput."""
    values = {"zone": "UTC", "during": "", **fields.check(given)}
    schedule = in_hours(definition.schedule_of(values), values["zone"], values["during"])
    field = checks.NAMES[Kind(values["kind"])]
    kinds.never_fires(schedule, now, field, given[field])
    return of(schedule, now, count)


def in_hours(schedule: Schedule, zone: str, during: str) -> Schedule:
    """Returns the schedule with these hours, if there are any. It is then due as soon as they begin. Raises BadInput."""
    if not isinstance(schedule, Interval):
        definition.check_no_hours(during)
        return schedule
    definition.check_hours(during, schedule.every_ms, zone)
    task = DueTask(0, EPOCH, "", "", schedule.every_ms, 0, 0, zone=zone, during=during)
    return InHours(schedule, task) if during else schedule


def of(schedule: Schedule, start: datetime, count: int, tick_ms: int | None = None) -> Preview:
    """Returns the preview of a parsed schedule."""
    count = whole("count", count, 1, MOST_TIMES)
    return Preview(
        schedule.kind, schedule.text, schedule.zone.key, schedule.words(),
        tuple(kinds.times(schedule, start, count)), tuple(_warnings(schedule, start, tick_ms or settings.current().tick_ms)),
    )  # fmt: skip


def of_task(task: Task, now: datetime, count: int, tick_ms: int | None = None) -> Preview:
    """Returns the preview of a task: its times from its next run on, at its current interval. A finished task has no
    times.
    """
    if task.next_run is None:
        return replace(of(kinds.of(task), now, 1), times=())
    start = max(task.next_run, now)
    first = task.next_run if (begin := hours.in_hours(task, start)) == start else begin
    tick = tick_ms or settings.current().tick_ms
    preview = of(kinds.of(task), begin, count, tick)
    if task.every_most_ms:
        elastic = Interval(task.every_ms, most_ms=task.every_most_ms)
        preview = replace(preview, words=(InHours(elastic, task) if task.during else elastic).words())
    if task.phase_ms is not None and definition.keeps_place(task, tick):
        preview = replace(preview, warnings=())
    if slowed := definition.slowed(task):
        preview = replace(preview, warnings=(*preview.warnings, f"its interval is {slowed}"))
    later = kinds.upcoming(task, begin, count, tick)
    times = tuple(t for t in (first, *later) if task.ends_at is None or t <= task.ends_at)[:count]
    if task.max_runs is not None:
        times = times[: max(task.max_runs - task.started, 0)]
    return replace(preview, times=times)


def _warnings(schedule: Schedule, start: datetime, tick: int) -> Iterator[str]:
    if isinstance(schedule, Interval | InHours):
        every = schedule.schedule if isinstance(schedule, InHours) else schedule
        if rounded := definition.rounded_up(every.every_ms, tick):
            yield rounded
        return
    gap = kinds.shortest_gap(schedule, start)
    if gap is not None and gap < tick:
        yield (
            f"two of its times are {words(gap)} apart, less than {definition.tick_in_words(tick)}: "
            "all times between two ticks lead to one run"
        )
    box = timing.box_between(gap)
    if box < timing.LONGEST_BOX_BY_DEFAULT:
        yield f"its time box is {words(box)} by default: half the {words(gap or 0)} between two of its times"
    if isinstance(schedule, Calendar) or (isinstance(schedule, Cron) and not schedule.is_wildcard):
        yield from _changes(schedule, start)


def _changes(schedule: Cron | Calendar, start: datetime) -> Iterator[str]:
    """Yields warnings about the first time in the next year that clocks skip, and the first that they show twice."""
    seen: set[bool] = set()
    for change in zones.changes(start, schedule.zone, YEAR):
        before, after = (
            zones.wall(change - zones.SECOND, schedule.zone) + zones.SECOND,
            zones.wall(change, schedule.zone),
        )
        is_gap = before < after
        low, high = min(before, after), max(before, after)
        named = takewhile(lambda shown, end=high: shown < end, schedule.shown_after(low - zones.SECOND))  # type: ignore[misc]
        shown = next(named, None)
        if shown is None or is_gap in seen:
            continue
        seen.add(is_gap)
        when = f"{shown:%Y-%m-%d %H:%M}"
        if not is_gap:
            yield f"clocks in {schedule.zone.key} show {when} twice: it runs the first time only"
        elif isinstance(schedule, Calendar):
            yield f"clocks in {schedule.zone.key} skip {when}: as with systemd, it does not run then"
        else:
            runs = f"{zones.wall(change, schedule.zone):%H:%M}, {change.astimezone(UTC):%H:%M} UTC"
            yield f"clocks in {schedule.zone.key} skip {when}: it runs at {runs}"
