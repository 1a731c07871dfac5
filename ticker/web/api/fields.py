"""Describes what a request may contain, as JSON Schema, and reads times, owners, ids and bookmarks."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from ticker.errors import BadInput
from ticker.model import LARGEST_ID, NAME_AT_MOST
from ticker.read.journal import Key
from ticker.read.owners import OwnerStatus
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


# ---------------------------------------------------------------------------------------- where a page of a list begins

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def bookmark(pattern: str) -> Schema:
    """Returns the schema of an opaque text. It encodes the end of a page, and the next request passes it back."""
    return doc("The value of `next` from the previous page.", TEXT, pattern=f"^{pattern}$")


_ID = "[1-9][0-9]{0,17}"
AFTER_ID, BEFORE_KEY, AFTER_OWNER = (
    bookmark(_ID),
    bookmark(f"([0-9]{{1,17}})-(run|event)-({_ID})"),
    bookmark("([01])-(.+)"),
)


def id_after(field: str, text: str) -> int:
    return int(_matched(AFTER_ID, field, text)[0])


def of_key(key: Key) -> str:
    """Returns the entry's time in microseconds since 1970, its sort and its id, as one string."""
    at, sort, id_ = key
    return f"{(at - EPOCH) // MICROSECOND}-{sort}-{id_}"


def key_before(field: str, text: str) -> Key:
    at, sort, id_ = _matched(BEFORE_KEY, field, text).groups()
    return EPOCH + int(at) * MICROSECOND, sort, int(id_)


def of_owner(owner: OwnerStatus) -> str:
    """Returns whether the owner is in trouble, and its name, as one string."""
    return f"{int(owner.in_trouble)}-{owner.owner}"


def owner_after(field: str, text: str) -> OwnerStatus:
    """Returns the last owner of the previous page, with only the fields that the list needs."""
    in_trouble, owner = _matched(AFTER_OWNER, field, text).groups()
    who = owner_in(field, owner)
    return OwnerStatus(who.type, who.id, 1, int(in_trouble), 0, 0, 0, None, None)


def _matched(schema: Schema, field: str, text: str) -> re.Match[str]:
    if match := re.fullmatch(schema["pattern"], text):
        return match
    raise BadInput(field, text, "does not continue this list; pass the value of `next` from its previous page")


READ = {
    INSTANT["format"]: instant_in, OWNER["pattern"]: owner_in, AFTER_ID["pattern"]: id_after,
    BEFORE_KEY["pattern"]: key_before, AFTER_OWNER["pattern"]: owner_after,
}  # fmt: skip
"""The parsers of texts, by format or pattern."""
