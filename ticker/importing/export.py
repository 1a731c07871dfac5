"""Writes tasks for other programs: as JSON Lines, which `ticker import json` reads back, or as a crontab."""

import json
import re
import shlex
from collections.abc import Iterator
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from ticker.errors import escaped
from ticker.importing.sources.json_lines import FORMAT
from ticker.model import Kind
from ticker.read import tasks as read_tasks
from ticker.schedules.duration import words
from ticker.tasks import checks, definition, fields
from ticker.tasks.fields import Task

AT_ONCE = 1000
CRON_FIELDS = 5
_STEPS = {60_000 * n: f"*/{n} * * * *" if n > 1 else "* * * * *" for n in range(1, 31) if 60 % n == 0} | {
    3_600_000 * n: f"0 */{n} * * *" if n > 1 else "0 * * * *" for n in range(1, 13) if 24 % n == 0
} | {86_400_000: "0 0 * * *"}  # fmt: skip
"""The intervals that cron can express, in milliseconds."""


def tasks(db: Any, only: str) -> Iterator[Task]:
    """Yields the tasks whose names match, by id."""
    after = 0
    while page := read_tasks.list_tasks(db, after=after, limit=AT_ONCE):
        yield from (task for task in page if fnmatchcase(task.name, only))
        after = page[-1].id


def as_json(task: Task) -> str:
    """Returns one line of JSON: the arguments of `register` that differ from its defaults, and the task's state."""
    line: dict[str, Any] = {"format": FORMAT, **given(task)}
    if not task.enabled:
        line["enabled"] = False
    if task.paused_by is not None:
        line["paused"] = {"by": task.paused_by, "reason": task.paused_reason, "until": task.paused_until}
    line["next_run"] = task.next_run or min(task.waiting, default=None)
    return json.dumps(line, ensure_ascii=False, default=datetime.isoformat)


def given(task: Task) -> dict[str, Any]:
    """Returns the arguments of `register` that make this task. A box or tolerance that follows the interval is left out."""
    schedule = definition.schedule_of({column: getattr(task, column) for column in fields.DEFAULTS})
    given: dict[str, Any] = {"function": task.function, "name": task.name}
    if task.owner:
        given["owner"] = task.owner
    given[checks.NAMES[task.kind]] = schedule.text
    if task.zone != "UTC":
        given["zone"] = task.zone
    for field in fields.SETTINGS.values():
        value = getattr(task, field.column)
        if (
            field.is_schedule
            or value in (field.default, ())
            or (field.name == "tolerance" and task.kind is not Kind.INTERVAL)
        ):
            continue
        given[field.name] = words(value) if field.column.endswith("_ms") else value
    if task.kind is Kind.INTERVAL:
        if definition.has_usual_tolerance(task):
            given.pop("tolerance", None)
        if definition.has_default_box(task):
            given.pop("box", None)
    return given


def as_crontab(task: Task, command: str) -> tuple[str, list[str]]:
    """Returns a line of a crontab, and sentences on the properties that it loses. The line is empty if cron has no such schedule."""
    schedule, lost = _cron(task)
    if task.zone != "UTC" and schedule:
        lost.append(f"cron does not use its zone {task.zone}, but that of the host or of a CRON_TZ line")
    named = (
        field for field in fields.SETTINGS.values() if not field.is_schedule and field.name not in ("zone", "queue")
    )
    more = [field.name for field in named if _is_set(task, field.column, field.default)]
    if task.owner:
        more.append("owner")
    if task.paused_by is not None or not task.enabled:
        more.append("pause" if task.enabled else "disabled state")
    lost += [f"cron has no {', '.join(more)}"] if more else []
    values = {
        "id": task.id,
        "name": task.name,
        "function": task.function,
        "queue": task.queue,
        "args": json.dumps(task.args),
        "kwargs": json.dumps(dict(task.kwargs)),
    }
    filled = re.sub(
        r"\{(\w+)\}", lambda part: shlex.quote(str(values[part[1]])) if part[1] in values else part[0], command
    )
    return (f"{schedule} {filled}".replace("%", r"\%") if schedule else ""), [escaped(sentence) for sentence in lost]


def _is_set(task: Task, column: str, default: object) -> bool:
    value = getattr(task, column)
    return column not in ("args", "kwargs", "box_ms", "tolerance_ms") and value != default and bool(value)


def _cron(task: Task) -> tuple[str, list[str]]:
    if task.kind is Kind.INTERVAL:
        if (text := _STEPS.get(task.every_ms)) is None:
            return "", [f"cron cannot express its interval of {words(task.every_ms)}"]
        return text, ["cron counts its interval from the clock, not from the last run"]
    if task.kind is Kind.CRON and len(task.expression.split()) == CRON_FIELDS:
        return task.expression, []
    return "", [f"its schedule {task.expression} is not a cron expression of five fields"]
