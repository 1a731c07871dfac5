"""What a request may say, piece by piece: how each is described, and how it is read. BadInput names the piece."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from ticker import numbers
from ticker.errors import BadInput
from ticker.model import LARGEST_ID, NAME_AT_MOST
from ticker.schedules import once
from ticker.tasks import checks, identity

Schema = Mapping[str, Any]
Read = Callable[[str, Any], Any]
"""A piece's name and what was sent to its value: of an address that is text, of a body whatever JSON has."""

INSTANT: Schema = {"type": "string", "format": "date-time"}

OWNER = f"^[^:]{{1,{NAME_AT_MOST}}}:.{{1,{NAME_AT_MOST}}}$"

_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-", re.ASCII)


def as_it_is(_: str, value: Any) -> Any:
    """It is checked where it is used."""
    return value


@dataclass(frozen=True, slots=True)
class Field:
    """One piece. `says` is a sentence for the description; `read` takes the piece, or raises BadInput."""

    name: str
    says: str
    schema: Schema
    read: Read = as_it_is
    required: bool = False

    def needed(self) -> "Field":
        return replace(self, required=True)


# ------------------------------------------------------------------------------------------------------- factories


def label(name: str, says: str) -> Field:
    """A name: printable text of 1 to 200 characters."""
    return Field(name, says, {"type": "string", "minLength": 1, "maxLength": NAME_AT_MOST}, checks.plain)


def one_of(name: str, says: str, choices: Sequence[str]) -> Field:
    def read(field: str, value: Any) -> str:
        if value not in known:
            raise BadInput(field, value, f"is none of: {', '.join(known)}")
        return str(value)

    known = [str(choice) for choice in choices]
    return Field(name, says, {"type": "string", "enum": known}, read)


def number(name: str, says: str, least: int, most: int, default: int) -> Field:
    def read(field: str, value: Any) -> int:
        found = numbers.whole(field, value, least, most) if isinstance(value, str) else value
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise BadInput(field, value, f"is no whole number from {least:,} to {most:,}")
        return found

    return Field(name, says, {"type": "integer", "minimum": least, "maximum": most, "default": default}, read)


def flag(name: str, says: str) -> Field:
    def read(field: str, value: Any) -> bool:
        if value not in ("true", "false"):
            raise BadInput(field, value, "is neither true nor false")
        return bool(value == "true")

    return Field(name, says, {"type": "boolean"}, read)


def instant(name: str, says: str) -> Field:
    """ISO 8601 with an offset."""
    return Field(name, says, INSTANT, instant_in)


def owner(name: str, says: str) -> Field:
    """`type:id`."""
    return Field(name, says, {"type": "string", "pattern": OWNER}, owner_in)


def bookmark(name: str, pattern: str, read: Read) -> Field:
    """Where a page of a list begins."""
    return Field(name, "What `next` of the page before said.", {"type": "string", "pattern": f"^{pattern}$"}, read)


# --------------------------------------------------------------------------------------------------------- readers


def instant_in(field: str, value: Any) -> datetime:
    if not isinstance(value, str) or not _DATE.match(value):
        raise BadInput(field, value, "is no time; write 2026-05-01T09:00:00Z")
    return once.parse(value, ZoneInfo("UTC"), field).at.astimezone(UTC)


def owner_in(field: str, value: Any) -> identity.Owner:
    if not isinstance(value, str) or ":" not in value:
        raise BadInput(field, value, "names no owner; write type:id, such as mail_channels:5")
    try:
        return identity.identify(None, value)
    except BadInput as error:
        raise BadInput(field, error.value, error.problem) from None


def id_in(text: str) -> int | None:
    """A row's id; None where the text can be none's."""
    return int(text) if _DIGITS.fullmatch(text) and 1 <= int(text) <= LARGEST_ID else None
