"""Declares the operations of the API, describes what a request may contain, and reads it. Errors name the refused value.

The server and the OpenAPI document both use the declarations, and the page reads its forms and filters by them.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NoReturn, get_type_hints
from zoneinfo import ZoneInfo

from starlette.requests import Request

from ticker import model
from ticker.engine import jobs
from ticker.errors import BadInput, did_you_mean, quoted
from ticker.read.journal import Key
from ticker.read.owners import OwnerStatus
from ticker.schedules import once
from ticker.schedules.duration import whole
from ticker.tasks import checks, identity, sorts
from ticker.tasks.sorts import Schema
from ticker.web.access import is_json
from ticker.web.problems import Refused

PAGE, MOST = 50, 1000  # rows of one answer
NAMED_AT_MOST = 60  # characters; an error does not name a longer unknown field

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "minLength": 1, "maxLength": 64}
INSTANT, NAME, OWNER = sorts.INSTANT.schema, sorts.NAME.schema, sorts.OWNER.schema
ID: Schema = {"type": "integer", "minimum": 1, "maximum": model.LARGEST_ID}

_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-", re.ASCII)


def doc(says: str, schema: Schema, **more: Any) -> Schema:
    """Returns the schema with a description."""
    return {**schema, **more, "description": says}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": [str(word) for word in words]}


def integer(most: int, least: int = 0) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def limit(usual: int = PAGE, says: str = "The maximum number of entries.", most: int = MOST) -> Schema:
    return doc(says, integer(most, 1), default=usual)


def body(properties: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    """Returns the schema of an object that has these properties and no others."""
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


# ------------------------------------------------------------------------------------------------------- declarations

IN_PATH = {
    "id": doc("The id.", WHOLE, minimum=1),
    "owner": doc("The owner, as type:id.", OWNER),
    "key": doc("A key, or a pattern that ends with an asterisk.", NAME),
}


@dataclass(frozen=True, slots=True)
class Operation:
    """A handler, and the schemas of its input and answers.

    The handler takes the site, an open connection (None if `offline`), the values in the path, and the query and the
    body as keywords. It returns rows and values, which become JSON, or a response. `answers` maps each status to the
    type of its data (or a schema), with the usual status first. `query` maps names in the query to schemas. `body` is
    the schema of an object. If `body` is None, no body is read. `fails` has statuses of problems that only this
    operation has. If `owned`, viewers of some owners have it, too.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    answers: Mapping[int, Any]
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: Schema | None = None
    example: Mapping[str, Any] | None = None
    offline: bool = False
    fails: Collection[int] = ()
    owned: bool = False

    def __call__(self, *values: Any, **given: Any) -> Any:
        return self.handler(*values, **given)

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def says(self) -> str:
        """The handler's docstring, which is published."""
        return " ".join((self.handler.__doc__ or "").split())

    @property
    def of(self) -> Mapping[str, Schema]:
        """The names in the path, with their schemas."""
        return {name: IN_PATH[name] for name in re.findall(r"{(\w+)", self.path)}

    @property
    def template(self) -> str:
        """The path in OpenAPI's notation."""
        return self.path.replace(":path}", "}")


OPERATIONS: list[Operation] = []
"""All operations, those of one path next to each other."""


def operation(route: str, answer: Any = None, *statuses: int, **more: Any) -> Callable[[Callable[..., Any]], Operation]:
    """Declares a handler as an operation, such as `GET /tasks`. `answer` defaults to the type that the handler returns,
    and its status to 200, or 204 for None. `more` has further fields of the operation.
    """
    method, path = route.split()

    def declared(handler: Callable[..., Any]) -> Operation:
        kind = answer or get_type_hints(handler)["return"]
        answers = {204: None} if kind is type(None) else dict.fromkeys(statuses or [200], kind)
        OPERATIONS.append(Operation(method, path, handler, answers, **more))
        return OPERATIONS[-1]

    return declared


# ---------------------------------------------------------------------------------------------------------- a request


def path_of(request: Request, operation: Operation) -> list[Any]:
    """Returns the values in the path: a key, an owner, or the id of a row. Raises Refused if no row can have that id."""
    texts = [(name, request.path_params[name]) for name in operation.of]
    return [
        row_id(operation.path, text) if name == "id" else value_in(name, IN_PATH[name], text) for name, text in texts
    ]


def row_id(path: str, text: str) -> int:
    """Returns the id in a path such as `/tasks/{id}`. Raises Refused if no row can have it."""
    if (number := id_in(text)) is None:
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
    given = fields_of("body", schema, _object(request, sent) if sent else {})
    viewer = request.scope["ticker.access"].viewer
    if viewer and given.get("by", viewer.name) != viewer.name:
        raise BadInput("by", given["by"], f"is not the sender of this request, {quoted(viewer.name)}; leave it out")
    return given


def fields_of(where: str, schema: Schema, given: Any) -> dict[str, Any]:
    """Returns the fields of an object with known properties. Raises BadInput."""
    if not isinstance(given, dict):
        raise BadInput(where, given, 'is not a JSON object; write {"name": value}')
    known = schema["properties"]
    check_names(given, known, where)
    check_required(given, schema)
    for name, value in given.items():
        if value is None:
            raise BadInput(name, None, "is null; leave the field out instead")
    return {name: value_in(name, known[name], value) for name, value in given.items()}


def check_required(given: Iterable[str], schema: Schema) -> None:
    for name in schema["required"]:
        if name not in given:
            says = schema["properties"][name]["description"]
            raise BadInput(name, None, f"is missing: {says[0].lower()}{says[1:].rstrip('.')}")


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
    if "properties" in schema:
        return fields_of(field, schema, value)
    read = READ.get(schema.get("format") or schema.get("pattern", ""))
    return read(field, value) if read else value


def text_in(field: str, schema: Schema, text: str) -> Any:
    """Parses a value from the query or from a form. Raises BadInput."""
    match schema:
        case {"maximum": model.LARGEST_ID} if id_in(text) is None:
            raise BadInput(
                field, text, "is not the id of a task: ids are whole numbers from 1; /tasks?name= finds tasks by name"
            )
        case {"type": "integer"}:
            return whole(field, text, schema["minimum"], schema["maximum"])
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


# ------------------------------------------------------------------------------------------------- times, owners, ids


def instant_in(field: str, value: Any) -> datetime:
    """Parses a time in ISO 8601 with an offset. Raises BadInput."""
    if not isinstance(value, str) or not _DATE.match(value):
        raise BadInput(field, value, "is not a time; write 2026-05-01T09:00:00Z")
    return once.parse(value, ZoneInfo("UTC"), field).at.astimezone(UTC)


def owner_in(field: str, value: Any) -> identity.Owner:
    """Parses an owner, written as `type:id`. Raises BadInput."""
    if not isinstance(value, str) or ":" not in value:
        raise BadInput(field, value, "is not an owner; write type:id, such as mail_channels:5")
    try:
        return identity.identify(value)
    except BadInput as error:
        raise BadInput(field, error.value, error.problem) from None


def id_in(text: str) -> int | None:
    """Parses an id. Returns None if no row can have it."""
    return int(text) if _DIGITS.fullmatch(text) and 1 <= int(text) <= model.LARGEST_ID else None


# ---------------------------------------------------------------------------------------- where a page of a list begins


def bookmark(pattern: str) -> Schema:
    """Returns the schema of an opaque text. It encodes the end of a page, and the next request passes it back."""
    return doc("The value of `next` from the previous page.", TEXT, pattern=f"^{pattern}$")


_ID = "[1-9][0-9]{0,17}"
AFTER_ID, BEFORE_KEY, AFTER_OWNER = (
    bookmark(f"({_ID})"),
    bookmark(f"([0-9]{{1,17}})-(run|event)-({_ID})"),
    bookmark("([01])-(.+)"),
)


def of_key(key: Key) -> str:
    """Returns the entry's time in microseconds since 1970, its sort and its id, as one string."""
    at, sort, id_ = key
    return f"{jobs.micros(at)}-{sort}-{id_}"


def key_before(at: str, sort: str, id_: str) -> Key:
    return jobs.instant(int(at)), sort, int(id_)


def of_owner(owner: OwnerStatus) -> str:
    """Returns whether the owner is in trouble, and its name, as one string."""
    return f"{int(owner.in_trouble)}-{owner.owner}"


def owner_after(in_trouble: str, owner: str) -> OwnerStatus:
    """Returns the last owner of the previous page, with only the fields that the list needs."""
    who = owner_in("after", owner)
    return OwnerStatus(who.type, who.id, None, 1, int(in_trouble), 0, 0, 0, None, None)


def continued(schema: Schema, read: Callable[..., Any]) -> Callable[[str, str], Any]:
    """Returns the parser of a bookmark, which passes the parts of the text to `read`."""

    def parse(field: str, text: str) -> Any:
        if match := re.fullmatch(schema["pattern"], text):
            return read(*match.groups())
        raise BadInput(field, text, "does not continue this list; pass the value of `next` from its previous page")

    return parse


READ = {INSTANT["format"]: instant_in, OWNER["pattern"]: owner_in} | {
    schema["pattern"]: continued(schema, read)
    for schema, read in ((AFTER_ID, int), (BEFORE_KEY, key_before), (AFTER_OWNER, owner_after))
}
"""The parsers of texts, by format or pattern."""
