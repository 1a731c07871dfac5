"""Declares an operation of the API, and reads its input from a request. Errors name the refused value.

The server and the OpenAPI document both use the declarations, and the page's forms read their fields by them.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from starlette.requests import Request

from ticker import model, numbers
from ticker.errors import BadInput, did_you_mean, quoted
from ticker.tasks import checks
from ticker.web.access import is_json
from ticker.web.api import fields
from ticker.web.api.fields import Schema
from ticker.web.problems import Refused

LOOK_UP = "ids are whole numbers from 1; /tasks?name= finds tasks by name"
NAMED_AT_MOST = 60  # characters; an error does not name a longer unknown field


@dataclass(frozen=True, slots=True)
class Operation:
    """A handler, and the schemas of its input and answers.

    The handler takes the site, an open connection (None if `offline`), the values in the path, and the query and the
    body as keywords. It returns rows and values, which become JSON, or a response. `answers` maps each status to the
    type of its data (or a schema), with the usual status first. `of` and `query` map names in the path and the query to
    schemas. `body` is the schema of an object. If `body` is None, no body is read. `fails` has statuses of problems
    that only this operation has.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    answers: Mapping[int, Any]
    of: Mapping[str, Schema] = field(default_factory=dict)
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: Schema | None = None
    example: Mapping[str, Any] | None = None
    offline: bool = False
    fails: Collection[int] = ()

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def says(self) -> str:
        """The handler's docstring, which is published."""
        return " ".join((self.handler.__doc__ or "").split())

    @property
    def template(self) -> str:
        """The path in OpenAPI's notation."""
        return self.path.replace(":path}", "}")


# ---------------------------------------------------------------------------------------------------------- a request


def path_of(request: Request, operation: Operation) -> list[Any]:
    """Returns the values in the path: a key, an owner, or the id of a row. Raises Refused if no row can have that id."""
    texts = [(name, request.path_params[name]) for name in operation.of]
    return [
        row_id(operation.path, text) if name == "id" else value_in(name, operation.of[name], text)
        for name, text in texts
    ]


def row_id(path: str, text: str) -> int:
    """Returns the id in a path such as `/tasks/{id}`. Raises Refused if no row can have it."""
    if (number := fields.id_in(text)) is None:
        noun = path.split("/")[1].removesuffix("s")
        raise Refused(404, f"there is no {noun} {quoted(text)}; ids are whole numbers from 1")
    return number


def query_of(request: Request, known: Mapping[str, Schema]) -> dict[str, Any]:
    """Returns the query parameters, with the defaults of those that were left out."""
    usual = {name: schema["default"] for name, schema in known.items() if "default" in schema}
    given = request.query_params.multi_items()
    for name, times in Counter(name for name, _ in given).items():
        if times > 1:
            raise BadInput("query", name, "is given more than once; give it once")
    check_names(dict(given), known, "query")
    return usual | {name: text_in(name, known[name], text) for name, text in given}


def body_of(request: Request, sent: bytes, schema: Schema) -> dict[str, Any]:
    """Returns the fields of the object in the body. An empty body is an empty object."""
    given, known = _object(request, sent) if sent else {}, schema["properties"]
    check_names(given, known, "body")
    for name in schema["required"]:
        if name not in given:
            says = known[name]["description"]
            raise BadInput(name, None, f"is missing: {says[0].lower()}{says[1:].rstrip('.')}")
    for name, value in given.items():
        if value is None:
            raise BadInput(name, None, "is null; leave the field out instead")
    return {name: value_in(name, known[name], value) for name, value in given.items()}


def check_names(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raises BadInput for an unknown name. The error's field is that name if it is printable and short, else `where`."""
    for name in (name for name in given if name not in known):
        names = ", ".join(known) or "none"
        if name.isprintable() and 0 < len(name) <= NAMED_AT_MOST:
            raise BadInput(
                name, None, f"is not known in the {where} of this request{did_you_mean(name, known)}; known: {names}"
            )
        raise BadInput(where, name, f"is not known here; known: {names}")


def value_in(field: str, schema: Schema, value: Any) -> Any:
    """Returns the value of a field of the body or the path. A value without a format or pattern of ours is checked
    where it is used.
    """
    read = fields.READ.get(schema.get("format") or schema.get("pattern", ""))
    return read(field, value) if read else value


def text_in(field: str, schema: Schema, text: str) -> Any:
    """Parses a value from the query or from a form. Raises BadInput."""
    match schema:
        case {"maximum": model.LARGEST_ID} if fields.id_in(text) is None:
            raise BadInput(field, text, f"is not the id of a task: {LOOK_UP}")
        case {"type": "integer"}:
            return numbers.whole(field, text, schema["minimum"], schema["maximum"])
        case {"type": "boolean"} if text not in ("true", "false"):
            raise BadInput(field, text, "is neither true nor false")
        case {"type": "boolean"}:
            return text == "true"
        case {"enum": known} if text not in known:
            raise BadInput(field, text, f"is not one of: {', '.join(known)}")
        case {"format": _} | {"pattern": _}:
            return value_in(field, schema, text)
    return checks.plain(field, text)


def _object(request: Request, sent: bytes) -> dict[str, Any]:
    if not is_json(request.headers):
        raise Refused(415, "the body is not declared as JSON; send Content-Type: application/json")
    try:
        value = json.loads(sent.decode(), parse_constant=_no_number)
    except RecursionError:
        raise BadInput("body", None, "is nested too deeply") from None
    except ValueError as error:  # the standard library's text is shown only if it names a position
        where = f": {error}" if isinstance(error, json.JSONDecodeError) else ""
        raise BadInput("body", None, f"is not valid JSON{where}") from None
    if not isinstance(value, dict):
        raise BadInput("body", None, 'is not a JSON object; write {"name": value}')
    return value


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")
