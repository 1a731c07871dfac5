"""Describes what a request may contain, as JSON Schema, and reads times, owners and ids."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from ticker.errors import BadInput
from ticker.model import LARGEST_ID, NAME_AT_MOST
from ticker.schedules import once
from ticker.tasks import identity

Schema = Mapping[str, Any]
PAGE, MOST = 50, 1000  # rows of one answer

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
INSTANT: Schema = {"type": "string", "format": "date-time"}
TIME: Schema = {"type": "string", "minLength": 1, "maxLength": 64}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": NAME_AT_MOST}
OWNER: Schema = {"type": "string", "pattern": f"^[^:]{{1,{NAME_AT_MOST}}}:.{{1,{NAME_AT_MOST}}}$"}
ID: Schema = {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}

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


# --------------------------------------------------------------------------------------------------------- readers


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
    return int(text) if _DIGITS.fullmatch(text) and 1 <= int(text) <= LARGEST_ID else None
