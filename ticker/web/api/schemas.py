"""Describes the answers as JSON Schema: the dataclasses that are shown, and the fields derived from them."""

import types
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from ticker.read.entries import Event, JournalEntry
from ticker.read.gates import LimitStatus
from ticker.read.health import Health
from ticker.read.journal import Drops
from ticker.read.overview import Counts, Function
from ticker.read.owners import OwnerStatus
from ticker.read.tasks import FullRun, RunRecord, TickerStatus
from ticker.read.why import Why
from ticker.registration.limits import Limit
from ticker.tasks.fields import Task, columns_as_returned
from ticker.tasks.pauses import Pause
from ticker.tasks.preview import Preview
from ticker.web.api.fields import FLAG, INSTANT, TEXT, WHOLE, Schema, doc, one_of
from ticker.web.site import OF_RUNS, OF_TASKS

PLAIN: Mapping[Any, Schema] = {
    str: TEXT, int: WHOLE, float: {"type": "number"}, bool: FLAG, type(None): {"type": "null"}, datetime: INSTANT,
    UUID: {"type": "string", "format": "uuid"}, Any: {},
}  # fmt: skip
NAMES: Mapping[type, str] = {
    Task: "Task", RunRecord: "Run", JournalEntry: "JournalEntry", Event: "Event", Drops: "Drops", OwnerStatus: "Owner",
    TickerStatus: "Ticker", Function: "Function", Counts: "Counts", Preview: "Preview", Why: "Why", FullRun: "FullRun",
    Health: "Health", Limit: "Limit", LimitStatus: "LimitStatus", Pause: "Pause",
}  # fmt: skip
STATES = (
    "done", "disabled", "owner_inactive", "paused", "resuming", "not_pushed", "unknown_function", "running", "waiting", "limited", "failing", "ok",
)  # fmt: skip


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(**kinds: Any) -> dict[str, Any]:
    """Returns the schema of an object that has all of these fields, each with its type."""
    return {"type": "object", "properties": {name: of(kind) for name, kind in kinds.items()}, "required": list(kinds)}


def of(kind: Any) -> Schema:
    """Returns the schema of a type. A schema is returned unchanged."""
    if isinstance(kind, dict):
        return kind
    if kind in NAMES:
        return ref(NAMES[kind])
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [of(part) for part in parts]}
    if origin in (list, tuple):
        return {"type": "array", "items": of(parts[0])}
    if origin is not None:  # a mapping, usually with values of any type
        return {"type": "object"} | ({} if parts[1] is Any else {"additionalProperties": of(parts[1])})
    return one_of(*kind) if isinstance(kind, type) and issubclass(kind, StrEnum) else PLAIN[kind]


def shown(kind: Any, hidden: Iterable[str] = (), **more: Any) -> dict[str, Any]:
    """Returns the schema of a dataclass: its fields, which may be null if they can be hidden, and the derived fields."""
    hints = get_type_hints(kind)
    kinds = {field.name: hints[field.name] for field in fields(kind)}
    return object_of(**kinds | {name: kinds[name] | None for name in hidden if name in kinds} | more)


def task_schema(hidden: Collection[str]) -> Schema:
    """Returns the schema of a task: its columns, with the descriptions of its fields, and the derived fields."""
    columns = columns_as_returned(of)
    nullable = {name: {"anyOf": [columns[name], PLAIN[type(None)]]} for name in hidden}
    return object_of(
        **columns | nullable, owner=str, state=one_of(*STATES), schedule=str, in_words=str, last_end=LAST_END
    )


def components() -> dict[str, Any]:
    """Returns the named schemas."""
    plain = (Event, Drops, Function, Counts, Preview, Why, Limit, LimitStatus, Pause, TickerStatus)
    return {NAMES[kind]: shown(kind) for kind in plain} | {
        "Task": task_schema(OF_TASKS),
        "Run": shown(RunRecord, OF_RUNS, owner=str, took_ms=int | None, early_ms=int | None),
        "FullRun": FULL_RUN, "JournalEntry": shown(JournalEntry, owner=str), "Owner": shown(OwnerStatus, owner=str),
        "Health": HEALTH, "Problem": PROBLEM,
    }  # fmt: skip


LAST_END = {"anyOf": [object_of(
    run_id=int, outcome=str, reason=str, worker=str, host=str, started_at=datetime | None, ended_at=datetime, result=Any,
), {"type": "null"}]}  # fmt: skip
MORE = object_of(
    output=str | None, error_output=str | None, attempts=list[RunRecord], made=list[RunRecord], next=str | None
)
FULL_RUN = {"allOf": [of(RunRecord), MORE]}
SERVER = object_of(answers=bool, error=str | None)
HEALTH = object_of(
    healthy=bool, problems=list[str], max_age_ms=int, postgresql=SERVER, redis=SERVER, tickers=list[TickerStatus],
    unattended=dict[str, int], late=int | None, leased=dict[str, str], warnings=list[str], pauses=list[Pause],
)  # fmt: skip
PROBLEM = object_of(type=str, title=str, status=int, detail=str) | {"description": "RFC 9457 problem details."}
PROBLEM["properties"]["field"] = doc(
    "The field of the input that the problem is about, if it is about a single one.", TEXT
)
