"""What a request may contain, as JSON Schema, and how its texts become values. BadInput names the piece."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from ticker import model, numbers
from ticker.errors import BadInput
from ticker.model import LARGEST_ID, NAME_AT_MOST
from ticker.schedules import once
from ticker.tasks import checks, identity

Schema = Mapping[str, Any]
Read = Callable[[str, Any], Any]
"""A piece's name and what was sent to its value. Raises BadInput."""

PAGE, MOST = 50, 1000  # rows of one answer

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
INSTANT: Schema = {"type": "string", "format": "date-time"}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": NAME_AT_MOST}
OWNER: Schema = {"type": "string", "pattern": f"^[^:]{{1,{NAME_AT_MOST}}}:.{{1,{NAME_AT_MOST}}}$"}
ID: Schema = {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}

_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-", re.ASCII)


def told(says: str, schema: Schema, **more: Any) -> Schema:
    """A schema with a sentence for the description."""
    return {**schema, **more, "description": says}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": [str(word) for word in words]}


def whole(most: int, least: int = 0) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def limit(usual: int = PAGE, says: str = "How many at most.", most: int = MOST) -> Schema:
    return told(says, whole(most, 1), default=usual)


def body(properties: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    """An object that has nothing else."""
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


# --------------------------------------------------------------------------------------------------------- readers


def value_in(field: str, schema: Schema, value: Any) -> Any:
    """A piece of a body: all that has neither a format nor a pattern is checked where it is used."""
    read = READ.get(schema.get("format") or schema.get("pattern", ""))
    return read(field, value) if read else value


def text_in(field: str, schema: Schema, text: str) -> Any:
    """The value that a text of an address stands for."""
    match schema:
        case {"maximum": model.LARGEST_ID}:
            return task_in(field, text)
        case {"type": "integer"}:
            return numbers.whole(field, text, schema["minimum"], schema["maximum"])
        case {"type": "boolean"} if text not in ("true", "false"):
            raise BadInput(field, text, "is neither true nor false")
        case {"type": "boolean"}:
            return text == "true"
        case {"enum": known} if text not in known:
            raise BadInput(field, text, f"is none of: {', '.join(known)}")
        case {"format": _} | {"pattern": _}:
            return value_in(field, schema, text)
    return checks.plain(field, text)


def instant_in(field: str, value: Any) -> datetime:
    """ISO 8601 with an offset."""
    if not isinstance(value, str) or not _DATE.match(value):
        raise BadInput(field, value, "is no time; write 2026-05-01T09:00:00Z")
    return once.parse(value, ZoneInfo("UTC"), field).at.astimezone(UTC)


def owner_in(field: str, value: Any) -> identity.Owner:
    """`type:id`."""
    if not isinstance(value, str) or ":" not in value:
        raise BadInput(field, value, "names no owner; write type:id, such as mail_channels:5")
    try:
        return identity.identify(None, value)
    except BadInput as error:
        raise BadInput(field, error.value, error.problem) from None


def task_in(field: str, text: str) -> int:
    if (found := id_in(text)) is None:
        raise BadInput(
            field, text, "is no id of a task: ids are whole numbers from 1; /tasks?name= finds those of a name"
        )
    return found


def id_in(text: str) -> int | None:
    """A row's id; None where the text can be none's."""
    return int(text) if _DIGITS.fullmatch(text) and 1 <= int(text) <= LARGEST_ID else None


READ: dict[str, Read] = {INSTANT["format"]: instant_in, OWNER["pattern"]: owner_in}
"""By the format or the pattern of a text."""
