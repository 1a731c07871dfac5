"""Reads the path, query and body of a request according to the schemas of its operation. BadInput names the refused value."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from starlette.requests import Request

from ticker import model, numbers
from ticker.errors import BadInput, did_you_mean, quoted
from ticker.tasks import checks
from ticker.web.access import is_json
from ticker.web.api import bookmarks, fields
from ticker.web.api.fields import Schema
from ticker.web.api.operation import Operation
from ticker.web.problems import Refused

LOOK_UP = "ids are whole numbers from 1; /tasks?name= finds tasks by name"
NAMED_AT_MOST = 60  # characters; an error does not name a longer unknown field
READ = {fields.INSTANT["format"]: fields.instant_in, fields.OWNER["pattern"]: fields.owner_in, **bookmarks.READ}
"""The parsers of texts, by format or pattern."""


def path_of(request: Request, operation: Operation) -> list[Any]:
    """Returns the values in the path: a key, an owner, or the id of a row. Raises Refused if no row can have that id."""
    texts = [(name, request.path_params[name]) for name in operation.of]
    for name, text in texts:
        if name == "id" and fields.id_in(text) is None:
            noun = operation.path.split("/")[1].removesuffix("s")
            raise Refused(404, f"there is no {noun} {quoted(text)}; ids are whole numbers from 1")
    return [int(text) if name == "id" else value_in(name, operation.of[name], text) for name, text in texts]


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
    """Returns the value of a field of the body or the path. A value without a format or pattern of ours is checked where it is used."""
    read = READ.get(schema.get("format") or schema.get("pattern", ""))
    return read(field, value) if read else value


def text_in(field: str, schema: Schema, text: str) -> Any:
    """Parses a value from the query. Raises BadInput."""
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
