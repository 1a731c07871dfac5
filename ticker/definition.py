"""What a user says of a task, checked: a `Definition` fits every rule, or was refused with one sentence."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ticker import json_text, timing
from ticker.errors import BadInput, quoted
from ticker.schedules.duration import Duration, milliseconds
from ticker.task import JSON_AT_MOST, NAME_AT_MOST, TEXT_AT_MOST, Kind, Task

USUAL_TICK = 30_000  # ms
LONG_BOX = 600_000  # ms: over it, the other tasks of the queue wait long

Given = Mapping[str, Any]
"""Checked fields under the names of the table's columns, only those that were passed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A task as `register` takes it, for `reconcile`. What is None was not said, and stays as it is."""

    function: str
    name: str | None = None
    every: Duration | None = None
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
    return {COLUMNS.get(field, field): CHECKS[field](field, value) for field, value in said.items()}


def applied(given: Given, before: Task | None, registered: Collection[str] = ()) -> dict[str, Any]:
    """All columns of a definition: what was given, over what the task had, over the defaults.

    A tolerance or box that was never given, now or in `registered`, the columns of earlier registrations, follows the
    interval. BadInput where the parts do not fit together.
    """
    said = {*given, *registered}
    values = {
        **DEFAULTS,
        **({} if before is None else {column: getattr(before, column) for column in DEFAULTS}),
        **given,
    }
    if "every_ms" not in values or values["every_ms"] == 0:
        raise BadInput("every", None, "is missing; say how often, such as 1m")
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
    return values


def warnings(task: Task) -> tuple[str, ...]:
    """What is allowed, and rarely what was meant."""
    found = []
    if task.every_ms % USUAL_TICK:
        real = -(-task.every_ms // USUAL_TICK) * USUAL_TICK // 1000
        found.append(
            f"every {task.every_ms / 1000:g} s is no multiple of the usual tick of 30 s: with it, it runs every {real} s"
        )
    if task.box_ms > LONG_BOX:
        found.append(
            f"a box of {task.box_ms / 60_000:g} min can keep the other tasks of queue {quoted(task.queue)} waiting; "
            "give it a queue of its own"
        )
    return tuple(found)


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


def _every(field: str, value: object) -> int:
    return milliseconds(field, value, least=timing.SHORTEST_INTERVAL, most=timing.LONGEST_INTERVAL)


def _box(field: str, value: object) -> int:
    return milliseconds(field, value, least=timing.SHORTEST_BOX)


def _follows(column: str, before: Task | None, by_default: Callable[[int], int]) -> bool:
    return before is None or getattr(before, column) == by_default(before.every_ms)


CHECKS: Mapping[str, Callable[[str, object], Any]] = {
    "function": plain,
    "every": _every,
    "queue": plain,
    "kwargs": json_object,
    "tolerance": milliseconds,
    "box": _box,
    "subject": prose,
    "description": prose,
    "metadata": json_object,
    "enabled": _flag,
}

COLUMNS = {"every": "every_ms", "tolerance": "tolerance_ms", "box": "box_ms"}


DEFAULTS: Mapping[str, Any] = {
    "function": "", "kwargs": {}, "kind": Kind.INTERVAL, "expression": "", "zone": "UTC", "every_ms": 0,
    "tolerance_ms": 0, "box_ms": 0, "queue": "polling", "subject": "", "description": "", "metadata": {}, "enabled": True,
}  # fmt: skip
