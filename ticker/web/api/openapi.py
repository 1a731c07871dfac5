"""Describes the API in OpenAPI 3.1, from the same list of operations that is served.

Answers are described by the dataclasses that are shown, and the fields derived from them.
"""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from importlib.metadata import version
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from ticker.model import Pause
from ticker.read import formatting
from ticker.read.entries import JournalEntry
from ticker.read.owners import OwnerStatus
from ticker.read.tasks import RunRecord, TickerStatus
from ticker.tasks.fields import Task, columns_as_returned
from ticker.tasks.sorts import Schema
from ticker.web.api.operation import FLAG, INSTANT, OPERATIONS, TEXT, WHOLE, Operation, doc, one_of
from ticker.web.problems import MEDIA_TYPE
from ticker.web.site import OF_RUNS, OF_TASKS

JSON = "application/json"
TAGS = {
    "tasks": "Tasks, and changes of one or of many.", "schedules": "What a schedule means.",
    "owners": "Owners, and all tasks of one.", "runs": "Runs, drops and events.", "limits": "Limits of keys.",
    "pauses": "Pauses of many tasks.", "server": "The state of the server, and this description.",
}  # fmt: skip
PARTS = {"bulk": "tasks", "journal": "runs", "drops": "runs", "closures": "limits"}
"""The tags of paths that do not begin with one. All others are of the server."""
TAKES = {"bearer": {"type": "http", "scheme": "bearer"}, "basic": {"type": "http", "scheme": "basic"}}
SAYS = """\
Tasks, their runs, and operations on them. Errors are problem details (RFC 9457): one sentence, and the name of the field.
Times are ISO 8601 in UTC. Durations are whole milliseconds in fields named `..._ms`. Input may have any form that `register` accepts.
Values hidden by TICKER_HIDE_ARGS are null."""
SUCCESSES = {200: "Success.", 201: "Created.", 202: "Planned.", 204: "Done."}
PROBLEMS = {
    401: "A token is required.", 403: "The client is refused, or nothing can be changed here.", 404: "Not found.",
    408: "The body did not arrive in time.", 409: "The row is locked by another transaction; nothing was written.",
    413: "The body is too long.",
    415: "The body is not application/json.", 422: "A value is invalid; nothing was written.",
    503: "A server does not answer.",
}  # fmt: skip


def document(root: str, *, needs_token: bool) -> dict[str, Any]:
    """Returns the OpenAPI document of the API that is served at the address `root`."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.template, {})[operation.method.lower()] = described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "rq-ticker", "version": version("rq-ticker"), "description": SAYS},
        "servers": [{"url": root}],
        "security": [{name: []} for name in TAKES] + ([] if needs_token else [{}]),
        "tags": [{"name": name, "description": says} for name, says in TAGS.items()],
        "paths": paths,
        "components": {"schemas": COMPONENTS, "securitySchemes": TAKES},
    }


def described(operation: Operation) -> dict[str, Any]:
    sources = [("path", operation.of), ("query", operation.query)]
    description = {
        "operationId": operation.name,
        "tags": [tag(operation.path)],
        "summary": operation.says.partition(". ")[0].removesuffix(".") + ".",
        "description": operation.says,
        "parameters": [parameter(name, schema, place) for place, known in sources for name, schema in known.items()],
        "responses": {str(status): succeeds(status, kind) for status, kind in operation.answers.items()}
        | {str(status): {"description": PROBLEMS[status], "content": PROBLEM} for status in failures(operation)},
    }
    if operation.body and operation.body["properties"]:
        example = {} if operation.example is None else {"example": operation.example}
        content = {JSON: {"schema": operation.body, **example}}
        description["requestBody"] = {"required": bool(operation.body["required"]), "content": content}
    return description


def tag(path: str) -> str:
    name = path.split("/")[1]
    return name if name in TAGS else PARTS.get(name, "server")


def parameter(name: str, schema: Schema, place: str) -> dict[str, Any]:
    bare = dict(schema)
    says = bare.pop("description")
    return {"name": name, "in": place, "required": place == "path", "description": says, "schema": bare}


def succeeds(status: int, kind: Any) -> dict[str, Any]:
    response: dict[str, Any] = {"description": SUCCESSES[status]}
    if status == 201:
        response["headers"] = {"Location": {"description": "The address of the task.", "schema": {"type": "string"}}}
    return response if kind is None else response | {"content": {JSON: {"schema": of(kind)}}}


def failures(operation: Operation) -> list[int]:
    """Returns the statuses of the problems with which the operation may answer."""
    has_body = operation.body is not None
    named = {404: operation.of, 408: has_body, 409: operation.method != "GET", 415: has_body}
    return sorted([401, 403, 413, 422, 503, *operation.fails, *(status for status, can_be in named.items() if can_be)])


# ----------------------------------------------------------------------------------------------------------- answers

PLAIN: Mapping[Any, Schema] = {
    str: TEXT, int: WHOLE, float: {"type": "number"}, bool: FLAG, type(None): {"type": "null"}, datetime: INSTANT,
    UUID: {"type": "string", "format": "uuid"}, Any: {},
}  # fmt: skip
NAMES: Mapping[type, str] = {RunRecord: "Run", OwnerStatus: "Owner", TickerStatus: "Ticker"}
"""The names of schemas that differ from those of their classes."""
COMPONENTS: dict[str, Schema] = {}
"""The schemas of the dataclasses in answers, by name."""


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(**kinds: Any) -> dict[str, Any]:
    """Returns the schema of an object that has all of these fields, each with its type."""
    return {"type": "object", "properties": {name: of(kind) for name, kind in kinds.items()}, "required": list(kinds)}


def of(kind: Any) -> Schema:
    """Returns the schema of a type. A schema is returned unchanged."""
    if isinstance(kind, dict):
        return kind
    if is_dataclass(kind):
        name = NAMES.get(kind) or kind.__name__  # type: ignore[union-attr, arg-type]
        if name not in COMPONENTS:
            COMPONENTS[name] = shown(kind)
        return ref(name)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [of(part) for part in parts]}
    if origin in (list, tuple):
        return {"type": "array", "items": of(parts[0])}
    if origin is not None:  # a mapping, usually with values of any type
        return {"type": "object"} | ({} if parts[1] is Any else {"additionalProperties": of(parts[1])})
    return one_of(*kind) if isinstance(kind, type) and issubclass(kind, StrEnum) else PLAIN[kind]


def shown(kind: Any) -> dict[str, Any]:
    """Returns the schema of a dataclass: its fields, which may be null if they can be hidden, and the derived fields."""
    hints = get_type_hints(kind)
    columns = columns_as_returned(of) if kind is Task else {field.name: of(hints[field.name]) for field in fields(kind)}
    hidden = {name: {"anyOf": [columns[name], PLAIN[type(None)]]} for name in OF_TASKS + OF_RUNS if name in columns}
    return object_of(**columns | hidden | DERIVED.get(kind, {}))


DERIVED: Mapping[type, dict[str, Any]] = {
    RunRecord: {"owner": str, "took_ms": int | None, "early_ms": int | None},
    JournalEntry: {"owner": str}, OwnerStatus: {"owner": str},
    Task: {"owner": str, "state": one_of(*formatting.STATES), "schedule": str, "in_words": str, "last_end": {"anyOf": [object_of(
        run_id=int, outcome=str, reason=str, worker=str, host=str, started_at=datetime | None, ended_at=datetime, result=Any,
    ), PLAIN[type(None)]]}},
}  # fmt: skip
"""The fields in answers that the dataclass does not have."""
COMPONENTS["FullRun"] = {"allOf": [of(RunRecord), object_of(
    output=str | None, error_output=str | None, attempts=list[RunRecord], made=list[RunRecord], next=str | None,
)]}  # fmt: skip
SERVER = object_of(answers=bool, error=str | None)
COMPONENTS["Health"] = object_of(
    healthy=bool, problems=list[str], max_age_ms=int | None, postgresql=SERVER, redis=SERVER, tickers=list[TickerStatus],
    unattended=dict[str, int], late=int | None, leased=dict[str, str], warnings=list[str], pauses=list[Pause],
)  # fmt: skip
FULL_RUN, HEALTH = ref("FullRun"), ref("Health")
COMPONENTS["Problem"] = object_of(type=str, title=str, status=int, detail=str) | {
    "description": "RFC 9457 problem details."
}
COMPONENTS["Problem"]["properties"]["field"] = doc(
    "The field of the input that the problem is about, if it is about a single one.", TEXT
)
PROBLEM = {MEDIA_TYPE: {"schema": ref("Problem")}}
