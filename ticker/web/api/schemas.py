"""Describes the answers as JSON Schema, from the dataclasses that are shown and what is derived from them."""

import types
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from ticker.model import Task
from ticker.read.entries import JournalEntry
from ticker.read.forecast import Event
from ticker.read.journal import Drops
from ticker.read.overview import Counts, Function
from ticker.read.owners import OwnerStatus
from ticker.read.tasks import RunRecord, TickerStatus
from ticker.read.why import Why
from ticker.tasks.preview import Preview
from ticker.web.api.fields import FLAG, INSTANT, TEXT, WHOLE, Schema, one_of
from ticker.web.problems import MEDIA_TYPE
from ticker.web.site import OF_RUNS, OF_TASKS

PLAIN: Mapping[Any, Schema] = {
    str: TEXT, int: WHOLE, float: {"type": "number"}, bool: FLAG, type(None): {"type": "null"}, datetime: INSTANT,
    UUID: {"type": "string", "format": "uuid"}, Any: {},
}  # fmt: skip
NAMES: Mapping[type, str] = {
    Task: "Task", RunRecord: "Run", JournalEntry: "Line", Event: "Event", Drops: "Drops", OwnerStatus: "Owner",
    TickerStatus: "Ticker", Function: "Function", Counts: "Counts", Preview: "Preview", Why: "Why",
}  # fmt: skip
STATES = ("done", "disabled", "owner_inactive", "paused", "not_pushed", "running", "waiting", "failing", "ok")


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def perhaps(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def thing(**properties: Schema) -> dict[str, Any]:
    """Returns the schema of an object that has all of these."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def listed(name: str, component: str, **beside: Schema) -> Schema:
    return thing(**{name: array(ref(component))}, **beside)


def page(name: str, component: str, **beside: Schema) -> Schema:
    """Returns the schema of a list, and of where it goes on."""
    return listed(name, component, next=perhaps(TEXT), **beside)


def of(kind: Any) -> Schema:
    """Returns the schema of a type."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind in NAMES:
        return ref(NAMES[kind])
    if origin in (Union, types.UnionType):
        return {"anyOf": [of(part) for part in parts]}
    if origin in (list, tuple):
        return array(of(parts[0]))
    if origin is not None:  # a mapping
        return {"type": "object"}
    return one_of(*kind) if isinstance(kind, type) and issubclass(kind, StrEnum) else PLAIN[kind]


def shown(kind: Any, hidden: Iterable[str] = (), **beside: Schema) -> dict[str, Any]:
    """Returns the schema of a dataclass: its fields, null also for those that may be hidden, and what is derived."""
    hints = get_type_hints(kind)
    found = {field.name: of(hints[field.name]) for field in fields(kind)}
    return thing(**found | {name: perhaps(found[name]) for name in hidden if name in found} | beside)


def components() -> dict[str, Any]:
    """Returns the schemas that have a name."""
    run = {"owner": TEXT, "took_ms": perhaps(WHOLE), "early_ms": perhaps(WHOLE)}
    task = {"owner": TEXT, "state": one_of(*STATES), "schedule": TEXT, "in_words": TEXT}
    ticker = shown(TickerStatus, age_ms=perhaps(WHOLE))
    return {name: shown(kind) for kind, name in NAMES.items()} | {
        "Task": shown(Task, OF_TASKS, **task), "Run": shown(RunRecord, OF_RUNS, **run), "FullRun": FULL_RUN,
        "Line": shown(JournalEntry, owner=TEXT), "Owner": shown(OwnerStatus, owner=TEXT),
        "Ticker": thing(**{name: schema for name, schema in ticker["properties"].items() if name != "age"}),
        "Health": HEALTH, "Problem": PROBLEM,
    }  # fmt: skip


MORE = listed(
    "attempts", "Run", made=array(ref("Run")), output=perhaps(TEXT), error_output=perhaps(TEXT), next=perhaps(TEXT)
)
FULL_RUN = {"allOf": [ref("Run"), MORE]}
SERVER = thing(answers=FLAG, error=perhaps(TEXT))
HEALTH = thing(
    healthy=FLAG, problems=array(TEXT), max_age_ms=WHOLE, postgresql=SERVER, redis=SERVER, tickers=array(ref("Ticker")),
    unattended={"type": "object", "additionalProperties": WHOLE}, leased={"type": "object", "additionalProperties": TEXT},
)  # fmt: skip
PROBLEM = thing(type=TEXT, title=TEXT, status=WHOLE, detail=TEXT) | {"description": "RFC 9457 problem details."}
PROBLEM["properties"]["field"] = {**TEXT, "description": "What of the input it is about, where it is about one piece."}
PROBLEM_ANSWER: Schema = {MEDIA_TYPE: {"schema": ref("Problem")}}
