"""Describes the API in OpenAPI 3.1, from the same table of operations that is served."""

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from ticker.web.api.fields import Schema
from ticker.web.api.operation import Operation
from ticker.web.api.schemas import components, of, ref
from ticker.web.problems import MEDIA_TYPE

JSON = "application/json"
TAKES = {"bearer": {"type": "http", "scheme": "bearer"}, "basic": {"type": "http", "scheme": "basic"}}
SAYS = """\
Tasks, their runs, and what is to be done with them. Errors are problem details (RFC 9457), each in one sentence that names
the field. Times are ISO 8601 in UTC, durations whole milliseconds under `..._ms`; what is handed in is as `register` takes it.
What TICKER_HIDE_ARGS hides is null."""
SUCCESSES = {200: "Here it is.", 201: "It was made.", 202: "It is planned.", 204: "It is done."}
PROBLEMS = {
    401: "A token is wanted.", 403: "Not from here, or nothing can be changed here.", 404: "There is no such thing.",
    409: "The row is locked by somebody else; nothing was written.", 413: "The body is too long.",
    415: "The body is no application/json.", 422: "A value cannot be taken; nothing was written.",
    503: "A server does not answer now.",
}  # fmt: skip
PROBLEM = {MEDIA_TYPE: {"schema": ref("Problem")}}


def document(operations: Iterable[Operation], root: str, *, needs_token: bool) -> dict[str, Any]:
    """Returns the description of the API that is served at the address `root`."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.template, {})[operation.method.lower()] = described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "rq-ticker", "version": version("rq-ticker"), "description": SAYS},
        "servers": [{"url": root}],
        "security": [{name: []} for name in TAKES] + ([] if needs_token else [{}]),
        "paths": paths,
        "components": {"schemas": components(), "securitySchemes": TAKES},
    }


def described(operation: Operation) -> dict[str, Any]:
    places = [("path", operation.of), ("query", operation.query)]
    found = {
        "operationId": operation.name, "summary": operation.says,
        "parameters": [parameter(name, schema, place) for place, known in places for name, schema in known.items()],
        "responses": {str(status): succeeds(status, kind) for status, kind in operation.answers.items()}
        | {str(status): {"description": PROBLEMS[status], "content": PROBLEM} for status in failures(operation)},
    }  # fmt: skip
    if operation.body and operation.body["properties"]:
        example = {} if operation.example is None else {"example": operation.example}
        content = {JSON: {"schema": operation.body, **example}}
        found["requestBody"] = {"required": bool(operation.body["required"]), "content": content}
    return found


def parameter(name: str, schema: Schema, place: str) -> dict[str, Any]:
    bare = dict(schema)
    says = bare.pop("description")
    return {"name": name, "in": place, "required": place == "path", "description": says, "schema": bare}


def succeeds(status: int, kind: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"description": SUCCESSES[status]}
    if status == 201:
        said["headers"] = {"Location": {"description": "Its address.", "schema": {"type": "string"}}}
    return said if kind is None else said | {"content": {JSON: {"schema": of(kind)}}}


def failures(operation: Operation) -> list[int]:
    """Returns the statuses of the problems that the operation can answer with."""
    named = {404: operation.of, 409: operation.method != "GET", 415: operation.body is not None}
    return sorted([401, 403, 413, 422, 503, *(status for status, can_be in named.items() if can_be)])
