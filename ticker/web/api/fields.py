"""What a request may contain, as JSON Schema, and how its texts become values. BadInput names the piece."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from ticker.errors import BadInput
from ticker.model import LARGEST_ID, NAME_AT_MOST
from ticker.schedules import once
from ticker.tasks import identity

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


def id_in(text: str) -> int | None:
    """A row's id; None where the text can be none's."""
    return int(text) if _DIGITS.fullmatch(text) and 1 <= int(text) <= LARGEST_ID else None
