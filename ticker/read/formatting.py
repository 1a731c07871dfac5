"""Formats tasks, runs and lines: in words for people, and as JSON data for programs.

In JSON, times are ISO 8601 in UTC with microseconds and a `Z`. Durations are whole milliseconds, in fields named
`*_ms`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ticker.engine.timing import Backoff
from ticker.errors import BadInput
from ticker.model import GOOD, NO_FAILURE, Kind, Outcome, Reason
from ticker.read.explain import ago, counted, time_of_day
from ticker.schedules import kinds
from ticker.schedules.duration import words
from ticker.schedules.interval import Interval
from ticker.tasks import definition
from ticker.tasks.fields import FIELDS, Task
from ticker.tasks.rows import sees_all
from ticker.tasks.sorts import Field

if TYPE_CHECKING:
    from ticker.db.sql import Row
    from ticker.read.gates import LimitStatus
    from ticker.read.tasks import FullRun, RunRecord, TickerStatus
    from ticker.tasks.bulk import Bulk
    from ticker.tasks.gates import Limit
    from ticker.tasks.spreading import SpreadPlan


IN_WORDS = {
    "function", "args", "kwargs", "every", "cron", "calendar", "at", "zone", "starts", "ends", "max_runs", "remove", "spread", "within",
    "queue", "tolerance", "box", "retries", "backoff", "stretch", "pause_after", "probe", "dead_man", "enabled",
    "during",
}  # fmt: skip
"""The fields for which `details` shows more than their value."""

WARN = {"paused", "resuming", "disabled", "owner_inactive", Outcome.INTERRUPTED, Outcome.SLOWED_DOWN, Outcome.DROPPED}
BAD = {"failing", "not_pushed", *Outcome} - GOOD - WARN

STATES: Mapping[str, Callable[[Task], bool]] = {
    "done": lambda task: task.next_run is None and not (task.kind == Kind.ONCE and task.failures),
    "disabled": lambda task: not task.enabled,
    "owner_inactive": lambda task: not task.owner_active,
    "paused": lambda task: task.paused_by is not None or (task.pause is not None and not task.is_resuming),
    "resuming": lambda task: task.is_resuming,
    "not_pushed": lambda task: task.push_errors > 0,
    "unknown_function": lambda task: task.unknown_function,
    "running": lambda task: task.running_until is not None,
    "waiting": lambda task: bool(task.waiting),
    "no_room": lambda task: task.waits_for == "no_room",
    "queue_full": lambda task: task.waits_for == "queue_full",
    "waits_for_its_turn": lambda task: task.waits_for == "waits_for_its_turn",
    "outside_hours": lambda task: task.waits_for == "outside_hours",
    "failing": lambda task: task.failures > 0,
    "ok": lambda _: True,
}
"""Why nothing will run, or else what the task is doing. The first that applies is the task's state."""


def plain_data(value: Any) -> Any:
    """Converts any value to JSON data. A dataclass becomes an object with its fields, and those in its `derived`."""
    match value:
        case datetime():
            return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        case UUID():
            return str(value)
        case Mapping():
            return {key: plain_data(item) for key, item in value.items()}
        case list() | tuple():
            return [plain_data(item) for item in value]
    if is_dataclass(value):
        names = [*(field.name for field in fields(value)), *getattr(value, "derived", ())]
        return {name: plain_data(getattr(value, name)) for name in names}
    return value


def task_data(task: Task, ends: Mapping[int, "RunRecord"]) -> dict[str, Any]:
    """Returns a task as JSON data. `ends` has the records of the last ends of tasks, by their ids
    (`overview.last_ends`).
    """
    last = None
    if end := ends.get(task.id):
        names = ("outcome", "reason", "worker", "host", "started_at", "ended_at", "result")
        last = {"run_id": end.id, **{name: plain_data(getattr(end, name)) for name in names}}
    return {
        **plain_data(task), "owner": task.owner, "state": state(task), "schedule": schedule(task), "in_words": in_words(task),
        "last_end": last,
    }  # fmt: skip


def last_failure(last: "RunRecord | None") -> str:
    """Says when and why the run failed. The text is empty if it did not."""
    if last is None or last.outcome in NO_FAILURE:
        return ""
    where = f" on {last.worker or last.host}" if last.worker or last.host else ""
    return (
        f"{at(last.ended_at)} {last.outcome}{where}"
        + (f": {last.reason}" if last.reason else "")
        + f"; ticker runs --id {last.id} shows all"
    )


def full_data(full: "FullRun") -> dict[str, Any]:
    texts = {"output": full.output, "error_output": full.error_output}
    return {**plain_data(full.run), **plain_data({**texts, "attempts": full.attempts, "made": full.pieces})}


def planned_data(planned: "Sequence[Row]") -> dict[str, Any]:
    """Describes manual runs that were planned, and those that the call joined, because they had not started."""
    return {"run_ids": [run["id"] for run in planned], "joined": [run["id"] for run in planned if run["has_joined"]]}


# ------------------------------------------------------------------------------------------------- derived, in words


def state(task: Task) -> str:
    return next(word for word, applies in STATES.items() if applies(task))


def tone(word: object) -> str:
    """Returns how a state or an outcome is coloured: good, bad, warn, or "" for no colour."""
    tones = {"good": GOOD, "bad": BAD, "warn": WARN}
    return next((name for name, words in tones.items() if word in words), "")


def state_in_words(task: Task) -> str:
    word = state(task)
    failing = f"failing: {task.failures} in a row"
    waits = [] if word == "outside_hours" else [word.replace("_", " ")]
    match word:
        case "running" | "waiting" if task.failures:
            return f"{word}, {failing}"
        case "unknown_function" | task.waits_for:
            return ": ".join([*waits, *filter(None, [task.waits_because])]) + (f", {failing}" if task.failures else "")
        case "paused" if task.paused_by is not None:
            return paused_itself(task, at(task.paused_until))
        case "paused" | "resuming":
            return paused_with_others(task)
        case "not_pushed":
            when = f"at {at(task.push_after)}" if task.push_after else "at the next tick"
            return f"not pushed: {task.push_error}; the next try is {when}"
        case "failing":
            return failing
    return word.replace("_", " ")


def paused_itself(task: Task, until: str) -> str:
    """Returns who has paused the task and why. `until` is the end of the pause in words, or empty."""
    ends = f" until {until}" if until else ""
    return f"paused by {task.paused_by}{ends}" + (f": {task.paused_reason}" if task.paused_reason else "")


def paused_with_others(task: Task) -> str:
    return f"waits for its turn after the pause of {task.pause}" if task.is_resuming else f"paused with {task.pause}"


def schedule(task: Task) -> str:
    zone = f" {task.zone}" if task.zone != "UTC" else ""
    if task.kind == Kind.INTERVAL:
        during = f" during {task.during}{zone}" if task.during else ""
        return f"every {Interval(task.every_ms, most_ms=task.every_most_ms).text}{during}"
    return f"{task.kind} {task.expression}{zone}"


def schedule_now(task: Task) -> str:
    """Returns the schedule, and the interval in force if that is longer."""
    now = f", now {words(task.interval_ms)}" if task.interval_ms != task.every_ms else ""
    return f"{schedule(task)}{now}"


def in_words(task: Task) -> str:
    """Returns the schedule in English, or an empty text for an interval, or for an invalid row edited by hand."""
    if task.kind == Kind.INTERVAL:
        return ""
    try:
        return kinds.of(task).words()
    except BadInput:
        return ""


def rate(limit: "Limit | LimitStatus") -> str:
    """Returns the rate as `limit` accepts it, such as `300/1m`, or an empty text."""
    return "" if limit.rate is None or limit.period_ms is None else f"{limit.rate}/{words(limit.period_ms)}"


def why(run: "RunRecord") -> str:
    """Returns the reason, with the comparison that led to it: `02:03 < 01:35 + 1m - 5s: 27s early`."""
    by, last, checked = run.early_ms, run.checked_last_run, run.checked_at
    if by is not None and last and checked:
        sum_ = f"{time_of_day(last, checked)} + {words(run.every_ms or 0)} - {words(run.tolerance_ms or 0)}"
        return f"{run.reason}: {time_of_day(checked, checked)} < {sum_}: {words(by)} early"
    if run.reason == Reason.CLOCK and last and checked:
        return f"{run.reason}: {time_of_day(checked, checked)} < last run {time_of_day(last, checked)}"
    return run.reason


def last_stop(tickers: Iterable["TickerStatus"]) -> str:
    """Says after which tick the last ticker stopped, or why it refused to start. Empty if another one ticked later, or
    none did.
    """
    seen = [one for one in tickers if one.last_tick_at is not None or one.refused]
    last = max(seen, key=lambda one: one.last_tick_at or one.started_at, default=None)
    if last is None or not last.has_ended:
        return ""
    if last.refused:
        where, why = (f", pid {last.pid} on {last.host},", f": {last.refused}") if sees_all() else ("", "")
        return f"the last ticker{where} refused to start {ago(last.seen_ms or 0)}{why}"
    assert last.last_tick_at is not None, "refused"
    now = last.last_tick_at + timedelta(milliseconds=last.age_ms or 0)
    return f"the last ticker stopped after its tick at {time_of_day(last.last_tick_at.replace(microsecond=0), now)}"


def at(instant: datetime | None) -> str:
    return f"{moment(instant)}Z" if instant else ""


def moment(instant: datetime | None) -> str:
    """Formats a time in whole seconds. The column's heading says that it is UTC."""
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if instant else ""


def details(task: Task) -> dict[str, Any]:
    return {
        "id": task.id, "name": task.name, "owner": task.owner, "function": task.function,
        "arguments": " ".join(json.dumps(one, ensure_ascii=False) for one in (task.args, task.kwargs) if one),
        "schedule": schedule(task), "interval now": definition.slowed(task),
        "in words": in_words(task), "tolerance": words(task.tolerance_ms), "box": words(task.box_ms),
        "starts": at(task.starts_at), "ends": at(task.ends_at),
        "runs": f"{task.started} of {task.max_runs}" if task.max_runs else "",
        "removed after success": "yes" if task.remove else "",
        "phase": phase(task),
        "runs alone": definition.alone(task, at(task.alone_until)) if task.alone_until else "",
        "queue": task.queue, "state": state_in_words(task), "next run": at(task.runs_next) or f"none: {state_in_words(task)}",
        "waiting jobs": len(task.waiting) or "", "last run": at(task.last_run), "last outcome": task.last_outcome,
        "last end": at(task.last_ended_at), "last success": at(task.last_success_at),
        "last work": at(task.last_worked_at),
        "cursor": "" if task.cursor is None else json.dumps(task.cursor, ensure_ascii=False),
        **on_failure(task),
        **{field.label.lower(): setting(field, task) for field in FIELDS.values() if field.name not in IN_WORDS},
        "created": at(task.created_at), "changed": at(task.updated_at),
    }  # fmt: skip


def setting(field: Field, task: Task) -> str:
    """Returns a field's value as text, or an empty text for its default."""
    value = getattr(task, field.column)
    if value == field.default:
        return ""
    if isinstance(value, tuple):
        return ", ".join(value)
    if field.kind == "json":
        return json.dumps(value, ensure_ascii=False)
    return words(value) if field.column.endswith("_ms") else str(value)


def phase(task: Task) -> str:
    if task.phase_ms is None:
        return "spread" if task.spread else ""
    where = "into the interval" if task.within_ms is None else f"after each time, within {words(task.within_ms)}"
    return f"{words(task.phase_ms)} {where}"


def on_failure(task: Task) -> dict[str, Any]:
    """Returns the settings for failures, and the totals."""
    return {
        "retries": f"{task.retries}, {task.backoff} apart" if task.retries else "",
        "back-off": task.backoff if not task.retries and task.backoff != Backoff().text else "",
        "stretches to": words(task.stretch_ms) if task.stretch_ms else "",
        "pauses itself": _pause(task),
        "notifies": f"after {counted(task.dead_man, 'interval')} without a success" if task.dead_man else "",
        "in all": f"{task.succeeded} succeeded, {task.failed} failed, {task.dropped} dropped",
    }


def _pause(task: Task) -> str:
    probe = f", tried again after {words(task.probe_ms)}" if task.probe_ms else ""
    if not task.pause_after:
        return f"never{probe}" if probe else ""
    failures = "1 failure" if task.pause_after == 1 else f"{task.pause_after} failures in a row"
    return f"after {failures}{probe}"


def bulk_in_words(done: "Bulk") -> str:
    """Returns what a change of many tasks has done, or would do."""
    matched = f"{counted(done.matched, 'task')} {'matches' if done.matched == 1 else 'match'}"
    if done.action in ("run", "retry"):
        changed = f"{counted(done.changed, 'run')} requested" if done.applied else f"{done.changed} would run"
    else:
        changed = f"{done.changed} {'changed' if done.applied else 'would change'}"
    return f"{done.action}: {matched}: {changed}, {done.unchanged} need no change, {done.refused} refused"


def spread_in_words(plan: "SpreadPlan") -> str:
    return (
        f"{plan.tasks} interval tasks, {plan.placed} with a phase; maximum due within one tick: "
        f"{plan.most_now} now, {plan.most_then} once all have a phase"
        + (f"; spreading {plan.refusal}" if plan.refusal else "")
    )
