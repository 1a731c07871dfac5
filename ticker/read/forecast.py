"""Describes what happens to a task next, and what kept it from running at another time. Pure: reads no clock.

Three families of events decide whether a task is pushed at all: those about pauses, about `enabled`, and about its
owner. Between two events, the earlier one applies. Before the first event, its opposite applies.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from ticker.engine import timing
from ticker.errors import BadInput, start_worker
from ticker.model import EventKind, Kind, Reason, RunKind
from ticker.read import formatting
from ticker.read.entries import Event, event_words
from ticker.read.explain import WAITS_BECAUSE, counted, elapsed, reason, span, stopping, time_of_day
from ticker.read.tasks import due_since
from ticker.schedules import hours, interval, kinds, zones
from ticker.schedules.duration import SECOND
from ticker.tasks import definition, preview
from ticker.tasks.fields import Task
from ticker.tasks.preview import Preview
from ticker.tasks.rows import sees_all

if TYPE_CHECKING:
    from ticker.read.tasks import RunRecord, TickerStatus

START_ONE = "nothing is pushed; start one: ticker run"


@dataclass(frozen=True, slots=True)
class Family:
    """Events of one sort: those that stop a task, and the one that resumes it. `is_stopped`: whether a task is now."""

    name: str
    stops: frozenset[EventKind]
    resumes: EventKind
    is_stopped: Callable[[Task], bool]


FAMILIES = (
    Family(
        "paused",
        frozenset({EventKind.PAUSED, EventKind.AUTO_PAUSED}),
        EventKind.RESUMED,
        lambda task: task.paused_by is not None,
    ),
    Family("disabled", frozenset({EventKind.DISABLED}), EventKind.ENABLED, lambda task: not task.enabled),
    Family(
        "its owner was inactive",
        frozenset({EventKind.OWNER_INACTIVE}),
        EventKind.OWNER_ACTIVE,
        lambda task: not task.owner_active,
    ),
)


# ------------------------------------------------------------------------------------------------ at another time


def stopped(task: Task | None, events: Sequence[Event], at: datetime) -> list[str]:
    """Returns one sentence for each cause that kept the task from being pushed. `events` are the task's, oldest first."""
    sentences = (stopped_by(family, task is not None and family.is_stopped(task), events, at) for family in FAMILIES)
    return [sentence for sentence in sentences if sentence]


def stopped_by(family: Family, now: bool, events: Sequence[Event], at: datetime) -> str:
    own = [event for event in events if event.what in family.stops or event.what == family.resumes]
    before = [event for event in own if event.at <= at]
    after = [event for event in own if event.at > at]
    if not (before[-1].what in family.stops if before else after[0].what == family.resumes if after else now):
        return ""
    since = f" from {time_of_day(before[-1].at, at)}" if before else ""
    end = next((event for event in after if event.what == family.resumes), None)
    until = f" to {time_of_day(end.at, at)}" if end else ""
    why = event_words(before[-1]) if before else ""
    return f"{family.name}{since}{until}" + (f" {why}" if why.startswith("by ") else f": {why}" if why else "")


def then(
    task: Task | None,
    events: Sequence[Event],
    runs: Sequence["RunRecord"],
    tickers: Sequence["TickerStatus"],
    at: datetime,
) -> Iterator[str]:
    """Describes a task at a time in the past, as far as it is recorded."""
    if task and at < task.created_at:
        yield f"the task did not exist before {time_of_day(task.created_at, at)}"
        return
    yield from (f"then: {sentence}" for sentence in stopped(task, events, at))
    yield from (f"then: {sentence}" for sentence in held(runs, at))
    yield from (
        f"then: {event.what}: {event_words(event)}" for event in events if event.until and event.at <= at <= event.until
    )
    yield from (f"then: {sentence}" for sentence in no_time(task, at))
    if silence := silent(tickers, at):
        yield silence


def no_time(task: Task | None, at: datetime) -> Iterator[str]:
    """Says when a task by times is due after `at`, if its schedule has no time then: a wrong zone looks like a missing
    run.
    """
    if task is None or task.kind not in (Kind.CRON, Kind.CALENDAR):
        return
    try:
        due = kinds.bounded(task, kinds.first_run(kinds.of(task), at - kinds.LATE, task.starts_at))
    except BadInput:  # a row edited by hand
        return
    if due is not None and due > at + kinds.LATE:
        next_one = f"the next one is {time_of_day(due, at)}{shown_there(task, due)}"
        yield f"its present schedule has no time within {span(kinds.LATE)} of {time_of_day(at, at)}; {next_one}"


def held(runs: Sequence["RunRecord"], at: datetime) -> Iterator[str]:
    for run in runs:
        if run.started_at and run.started_at <= at and (run.ended_at is None or at < run.ended_at):
            until = f" to {time_of_day(run.ended_at, at)}" if run.ended_at else ""
            did = "held the task" if run.pieces is None else "and its pieces were at work"
            yield f"run {run.id} {did} from {time_of_day(run.started_at, at)}{until}"


def silent(tickers: Sequence["TickerStatus"], at: datetime) -> str:
    """Returns a sentence if no ticker ticked then, according to the kept heartbeats, or an empty text if one may have."""
    if not tickers:
        return "no ticker has ticked here for a day, if ever"
    last = max((ticker.last_tick_at for ticker in tickers if ticker.last_tick_at), default=None)
    if last is not None and last < at:
        return f"no ticker has ticked since {time_of_day(last, at)}"
    first = min(ticker.started_at for ticker in tickers)
    return f"the current tickers started later, the first at {time_of_day(first, at)}" if first > at else ""


# ------------------------------------------------------------------------------------------------------------ next


def following(
    task: Task,
    runs: Sequence["RunRecord"],
    tickers: Sequence["TickerStatus"],
    now: datetime,
    halved: Sequence[str] = (),
) -> list[str]:
    """Returns sentences about what happens next: first the tickers, then open runs and jobs, then the schedule.

    `halved` says why the groups of its function are smaller, if they are.
    """
    parts = (
        ticking(tickers), running(task, runs, now), planned(runs, now), jobs(task, tickers, now), alone(task, now), halved,
        schedule(task, now, any(ticker.ticks() for ticker in tickers)),
    )  # fmt: skip
    return [sentence for part in parts for sentence in part]


def is_of_now(sentence: str) -> bool:
    """Returns whether a sentence of `following` says that a ticker ticks, and so nothing of what comes."""
    return sentence.startswith("a ticker ")


def ticking(tickers: Sequence["TickerStatus"]) -> Iterator[str]:
    """Says when a ticker last ticked. A missing ticker is the most common reason why a due task does not run."""
    alive = [ticker for ticker in tickers if ticker.lives()]
    if alive and all(ticker.failure for ticker in alive):
        yield from (ticker.fails for ticker in alive) if sees_all() else ("the ticks of the ticker fail",)
        return
    ages = [ticker.age_ms for ticker in alive or tickers if ticker.age_ms is not None and not ticker.has_ended]
    age = min(ages, key=abs, default=None)
    if alive:
        ticked = "makes its first pass" if age is None else f"ticked {span(max(age, 0) // SECOND * SECOND)} ago"
        yield f"a ticker {ticked}"
        return
    silent = "no ticker is running here" if age is None else f"no ticker has ticked for {span(abs(age))}"
    yield f"{formatting.last_stop(tickers) or silent}: {START_ONE}"


def running(task: Task, runs: Sequence["RunRecord"], now: datetime) -> Iterator[str]:
    for run in runs:
        if run.state == "running" and run.started_at:
            if run.until and run.until < now:
                yield f"run {run.id} has been dead since {time_of_day(run.until, now)} at the latest; no end has been recorded yet"
                continue
            end = f"; it is dead by {time_of_day(run.until, now)} at the latest" if run.until else ""
            yield f"run {run.id} has been running for {elapsed(run.started_at, now)}{end}{asked_to_stop(run)}"
        elif run.state == "processing":
            yield f"run {run.id} waits for its pieces{asked_to_stop(run)}"
    if task.running_until and not any(run.state == "running" for run in runs):
        yield f"a run holds the task until {time_of_day(task.running_until, now)} at the latest"


def asked_to_stop(run: "RunRecord") -> str:
    sentence = stopping(run)
    return f"; {sentence}" if sentence else ""


def planned(runs: Sequence["RunRecord"], now: datetime) -> Iterator[str]:
    for run in runs:
        if run.state in ("planned", "pushed") and run.kind != RunKind.PIECE:
            name = f"attempt {run.attempt}" if run.kind == RunKind.RETRY else "a run that was requested by hand"
            is_due = run.due_at if run.state == "planned" else None
            when = f"is planned for {time_of_day(is_due, now)}" if is_due else "was pushed and has not started yet"
            yield f"{name} {when}" + (f": {reason(run)}" if run.reason else "")


def jobs(task: Task, tickers: Sequence["TickerStatus"], now: datetime) -> Iterator[str]:
    """Describes the waiting jobs from the row alone: Redis may have lost them, or a worker may have taken them."""
    if not task.waiting:
        return
    since, listening = elapsed(min(task.waiting), now), listeners(task.queue, tickers)
    if len(task.waiting) == 1:
        yield f"1 job was pushed to the queue {task.queue} and has not started; it was due {since} ago{listening}"
    else:
        jobs = f"{len(task.waiting)} jobs were pushed to the queue {task.queue} and have not started"
        yield f"{jobs}; the oldest was due {since} ago{listening}"
    if task.kind == Kind.INTERVAL and task.last_run:
        earliest = timing.earliest_start(task.last_run, task.every_ms, task.tolerance_ms)
        if earliest > now:
            yield f"a job that is taken before {time_of_day(earliest, now)} is dropped as too early"


def listeners(queue: str, tickers: Sequence["TickerStatus"]) -> str:
    """Says how many workers listened to the queue at the last tick. The text is empty if that tick has not counted
    them.
    """
    if not tickers or "crews" not in tickers[0].last_report:
        return ""
    crews = [(workers, busy) for queues, workers, busy in tickers[0].last_report["crews"] if queue in queues]
    listening, busy = sum(workers for workers, _ in crews), sum(busy for _, busy in crews)
    if not listening:
        return f"; no worker listened to it at the last tick: {start_worker(queue)}"
    how = f", {busy} of them busy" if listening > 1 else " and was busy" if busy else " and was idle"
    return f"; at the last tick, {counted(listening, 'worker')} listened to it{how}"


def alone(task: Task, now: datetime) -> Iterator[str]:
    """Says why the task shares its job with no other, or only with other suspects."""
    if task.alone_until is not None and task.alone_until > now:
        yield definition.alone(task, time_of_day(task.alone_until, now))


def schedule(task: Task, now: datetime, ticks: bool) -> Iterator[str]:
    """Says when the task is due next, or why it is not. `ticks`: whether ticks push what is due."""
    if stops := list(stops_now(task, now)):
        yield from stops
        return
    if task.next_run is None:
        yield done(task)
        return
    if task.next_run == task.again_at:
        yield "its last run asked for this time"
    elif slowed := definition.slowed(task):
        yield f"its interval is {slowed}"
    if task.push_errors:
        when = f"at {time_of_day(task.push_after, now)}" if task.push_after else "at the next tick"
        times = "once" if task.push_errors == 1 else f"{task.push_errors} times in a row"
        yield f"pushing it failed {times}; the next try is {when}: {task.push_error}"
    if off := off_phase(task):
        yield off
    due = max(task.next_run, now)
    if task.during:
        outside, due = outside_hours(task, now)
        yield from outside
    if due > now:
        yield f"due at {time_of_day(due, now)}{shown_there(task, due)}, in {span(due - now)}"
    else:
        since = due_since(task.next_run, task)
        waits = f"; it waits because {task.waits_because}" if task.waits_because else went_back(task, now, ticks)
        pushed = "" if task.push_errors else waits
        yield f"due since {time_of_day(since, now)}, for {elapsed(since, now)}{pushed}"


def went_back(task: Task, now: datetime, ticks: bool) -> str:
    """Says which tick pushes a due task, if there are any, and why an occurrence waits whose job ended before it could start."""
    cause = WAITS_BECAUSE.get(task.wait_reason or "")
    after = max(task.push_after or now, now)
    tick = "the next tick" if after == now else f"the first tick after {time_of_day(after, now)}"
    if task.wait_reason == Reason.STILL_RUNNING and (task.running_until or now) > now:
        tick = "the first tick after the run at work"
    return (f"; it waits because {cause}" if cause else "") + (f": {tick} pushes it" if ticks else "")


def shown_there(task: Task, due: datetime) -> str:
    """Returns what clocks show then in the zone of the schedule, unless that is UTC: a wrong zone looks like a wrong
    time.
    """
    if task.zone == "UTC":
        return ""
    try:
        return f" ({zones.wall(due, zones.zone('zone', task.zone)):%H:%M} in {task.zone})"
    except BadInput:  # a row edited by hand
        return ""


def outside_hours(task: Task, now: datetime) -> tuple[list[str], datetime]:
    """Returns a sentence if the task waits for its hours, and when it is due: not before `now`."""
    assert task.next_run is not None
    at, zone = max(task.next_run, now), "" if task.zone == "UTC" else f" {task.zone}"
    try:
        ends, due = hours.span(task.during, task.zone, now).ends, hours.in_hours(task, at)
    except BadInput:  # a row edited by hand: the push reports the error
        return [], at
    if task.waits_for == "outside_hours":
        return [task.waits_because], due
    if due >= ends:
        return [f"its hours {task.during}{zone} end at {time_of_day(ends, now)}, before it would be due again"], due
    return [], due


def next_times(task: Task, now: datetime, count: int, tick_ms: int | None = None) -> Preview:
    """Explains the schedule of a task, with its next times, or with warnings that say why it has none."""
    shown, stops = preview.of_task(task, now, count, tick_ms), tuple(stops_now(task, now))
    return replace(shown, times=(), warnings=(*stops, *shown.warnings)) if stops else shown


def off_phase(task: Task) -> str:
    """Says if a task is not due at its phase in the interval, or waits for longer than that.

    The text is empty before its first run, and if it is due at its end.
    """
    if (
        task.kind is not Kind.INTERVAL
        or task.phase_ms is None
        or task.next_run is None
        or task.interval_ms != task.every_ms
        or task.last_run is None
        or task.next_run in (task.again_at, task.ends_at)
    ):
        return ""
    every, away = task.every_ms, interval.since_phase(task.next_run, task.every_ms, task.phase_ms)
    if SECOND <= away <= every - SECOND:
        return f"it is due {span(away)} later in its interval than usual, so that it misses no run"
    if task.next_run - task.last_run > timing.span(every + task.tolerance_ms):
        return f"once, it waits longer than its interval of {span(every)}, until its usual time"
    return ""


def stops_now(task: Task, now: datetime) -> Iterator[str]:
    if not task.enabled:
        yield f"disabled: nothing is pushed until it is enabled; ticker edit {task.id} --enable"
    if not task.owner_active:
        yield "its owner is inactive: nothing is pushed until it is active again"
    if task.paused_by is not None:
        until = time_of_day(task.paused_until, now) if task.paused_until else ""
        yield formatting.paused_itself(task, until) + ("" if until else f"; ticker resume {task.id} ends it")
    if task.pause is not None:
        since = f"due since {time_of_day(task.next_run or now, now)}; it " if task.is_resuming else ""
        yield since + formatting.paused_with_others(task)


def done(task: Task) -> str:
    if task.max_runs is not None and task.started >= task.max_runs:
        return f"done: it has had all its {task.max_runs} runs"
    return f"done: its last time has passed ({task.expression or 'ends'})"
