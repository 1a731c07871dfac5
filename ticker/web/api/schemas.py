"""What is answered, as JSON Schema: made from the same dataclasses that are shown, and what is derived beside them."""

import types
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from ticker.read.entries import JournalEntry
from ticker.read.forecast import Event
from ticker.read.journal import Drops
from ticker.read.overview import Counts, Function
from ticker.read.owners import OwnerStatus
from ticker.read.tasks import RunRecord, TickerStatus
from ticker.tasks.fields import Task, columns_as_returned
from ticker.tasks.preview import Preview
from ticker.web.api.fields import INSTANT, Schema
from ticker.web.problems import MEDIA_TYPE

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
PLAIN: Mapping[Any, Schema] = {
    str: TEXT, int: WHOLE, float: {"type": "number"}, bool: FLAG, type(None): {"type": "null"}, datetime: INSTANT,
    UUID: {"type": "string", "format": "uuid"}, Any: {},
}  # fmt: skip
NAMES: Mapping[type, str] = {
    Task: "Task", RunRecord: "Run", JournalEntry: "Line", Event: "Event", Drops: "Drops", OwnerStatus: "Owner",
    TickerStatus: "Ticker", Function: "Function", Counts: "Counts", Preview: "Preview",
}  # fmt: skip
STATES = (
    "done", "disabled", "owner_inactive", "paused", "not_pushed", "running", "waiting", "failing", "ok",
)  # fmt: skip


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def perhaps(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def thing(**properties: Schema) -> dict[str, Any]:
    """An object that has all of these."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def page(name: str, items: Schema, **beside: Schema) -> Schema:
    """A list, and where it goes on."""
    return thing(**{name: array(items), "next": perhaps(TEXT)}, **beside)


def of(kind: Any) -> Schema:
    """Of a field, by its type."""
    if kind in NAMES:
        return ref(NAMES[kind])
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [of(part) for part in parts]}
    if origin in (list, tuple):
        return array(of(parts[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object"}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {"type": "string", "enum": [str(word) for word in kind]}
    return PLAIN[kind]


def shown(kind: Any, hidden: Iterable[str] = (), without: Iterable[str] = (), **beside: Schema) -> dict[str, Any]:
    """Of a dataclass: its fields, those that may be hidden also null, and what is derived."""
    assert is_dataclass(kind)
    hints, left_out = get_type_hints(kind), set(without)
    found = {field.name: of(hints[field.name]) for field in fields(kind) if field.name not in left_out}
    return thing(**found | {name: perhaps(found[name]) for name in hidden if name in found} | beside)


def components(of_tasks: Collection[str], of_runs: Iterable[str]) -> dict[str, Any]:
    """All that are named; the arguments are the fields that may be hidden."""
    run = shown(RunRecord, of_runs, owner=TEXT, took_ms=perhaps(WHOLE), early_ms=perhaps(WHOLE))
    more = thing(
        output=perhaps(TEXT),
        error_output=perhaps(TEXT),
        attempts=array(ref("Run")),
        made=array(ref("Run")),
        next=perhaps(TEXT),
    )
    task = {name: perhaps(column) if name in of_tasks else column for name, column in columns_as_returned(of).items()}
    derived = {"owner": TEXT, "state": {"type": "string", "enum": list(STATES)}, "schedule": TEXT, "in_words": TEXT}
    return {
        "Task": thing(**task, **derived), "Run": run, "FullRun": {"allOf": [ref("Run"), more]},
        "Line": shown(JournalEntry, owner=TEXT), "Event": shown(Event), "Drops": shown(Drops), "Preview": shown(Preview),
        "Why": WHY, "Owner": shown(OwnerStatus, owner=TEXT), "Function": shown(Function), "Counts": shown(Counts),
        "Ticker": shown(TickerStatus, without=["age"], age_ms=perhaps(WHOLE)), "Health": HEALTH, "Problem": PROBLEM,
    }  # fmt: skip


WHY = thing(
    task_id=WHOLE, task=perhaps(ref("Task")), now=INSTANT, at=perhaps(INSTANT), lines=array(ref("Line")), then=array(TEXT),
    next=array(TEXT),
)  # fmt: skip
SERVER = thing(answers=FLAG, error=perhaps(TEXT))
HEALTH = thing(
    healthy=FLAG, problems=array(TEXT), max_age_ms=WHOLE, postgresql=SERVER, redis=SERVER, tickers=array(ref("Ticker")),
    unattended={"type": "object", "additionalProperties": WHOLE}, leased={"type": "object", "additionalProperties": TEXT},
)  # fmt: skip
PROBLEM = thing(type=TEXT, title=TEXT, status=WHOLE, detail=TEXT) | {"description": "RFC 9457 problem details."}
PROBLEM["properties"]["field"] = {**TEXT, "description": "What of the input it is about, where it is about one piece."}
PROBLEM_ANSWER: Schema = {MEDIA_TYPE: {"schema": ref("Problem")}}
