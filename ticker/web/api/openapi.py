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
PROBLEM = {MEDIA_TYPE: {"schema": ref("Problem")}}


def document(operations: Iterable[Operation], root: str, *, needs_token: bool) -> dict[str, Any]:
    """Returns the OpenAPI document of the API that is served at the address `root`."""
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
    sources = [("path", operation.of), ("query", operation.query)]
    description = {
        "operationId": operation.name, "summary": operation.says,
        "parameters": [parameter(name, schema, place) for place, known in sources for name, schema in known.items()],
        "responses": {str(status): succeeds(status, kind) for status, kind in operation.answers.items()}
        | {str(status): {"description": PROBLEMS[status], "content": PROBLEM} for status in failures(operation)},
    }  # fmt: skip
    if operation.body and operation.body["properties"]:
        example = {} if operation.example is None else {"example": operation.example}
        content = {JSON: {"schema": operation.body, **example}}
        description["requestBody"] = {"required": bool(operation.body["required"]), "content": content}
    return description


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
