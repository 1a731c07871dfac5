"""Encodes the end of a page of a list as an opaque string, and decodes it when the next request passes it back."""

import re
from datetime import UTC, datetime, timedelta

from ticker.errors import BadInput
from ticker.read.journal import Key
from ticker.read.owners import OwnerStatus
from ticker.web.api.fields import TEXT, Schema, doc, owner_in

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def bookmark(pattern: str) -> Schema:
    """Returns the schema of the parameter that defines where a page of a list begins."""
    return doc("The value of `next` from the previous page.", TEXT, pattern=f"^{pattern}$")


ID = "[1-9][0-9]{0,17}"
TASK, KEY, OWNER = bookmark(ID), bookmark(f"([0-9]{{1,17}})-(run|event)-({ID})"), bookmark("([01])-(.+)")


def of_task(field: str, text: str) -> int:
    return int(_matched(TASK, field, text)[0])


def of_key(key: Key) -> str:
    """Returns the entry's time in microseconds since 1970, its sort and its id, as one string."""
    at, sort, id_ = key
    return f"{(at - EPOCH) // MICROSECOND}-{sort}-{id_}"


def key_in(field: str, text: str) -> Key:
    at, sort, id_ = _matched(KEY, field, text).groups()
    return EPOCH + int(at) * MICROSECOND, sort, int(id_)


def of_owner(owner: OwnerStatus) -> str:
    """Returns whether the owner is in trouble, and its name, as one string."""
    return f"{int(owner.in_trouble)}-{owner.owner}"


def owner_before(field: str, text: str) -> OwnerStatus:
    """Returns the last owner of the previous page, with only the fields that the list needs."""
    in_trouble, owner = _matched(OWNER, field, text).groups()
    who = owner_in(field, owner)
    return OwnerStatus(who.type, who.id, 1, int(in_trouble), 0, 0, 0, None, None)


def _matched(schema: Schema, field: str, text: str) -> re.Match[str]:
    if match := re.fullmatch(schema["pattern"], text):
        return match
    raise BadInput(field, text, "does not continue this list; pass the value of `next` from its previous page")


READ = {TASK["pattern"]: of_task, KEY["pattern"]: key_in, OWNER["pattern"]: owner_before}
