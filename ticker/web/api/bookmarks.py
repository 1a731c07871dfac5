"""Writes where a page of a list ended, as an opaque text, and reads it when the next request brings it back."""

import re
from datetime import UTC, datetime, timedelta

from ticker.errors import BadInput
from ticker.read.journal import Key
from ticker.read.owners import OwnerStatus
from ticker.web.api.fields import TEXT, Schema, doc, owner_in

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def bookmark(pattern: str) -> Schema:
    """Describes where a page of a list begins."""
    return doc("What `next` of the page before said.", TEXT, pattern=f"^{pattern}$")


ID = "[1-9][0-9]{0,17}"
TASK, KEY, OWNER = bookmark(ID), bookmark(f"([0-9]{{1,17}})-(run|event)-({ID})"), bookmark("([01])-(.+)")


def of_task(field: str, text: str) -> int:
    return int(_matched(TASK, field, text)[0])


def of_key(key: Key) -> str:
    """Returns when it ended or happened, in microseconds since 1970, what it was, and its id."""
    at, sort, id_ = key
    return f"{(at - EPOCH) // MICROSECOND}-{sort}-{id_}"


def key_in(field: str, text: str) -> Key:
    at, sort, id_ = _matched(KEY, field, text).groups()
    return EPOCH + int(at) * MICROSECOND, sort, int(id_)


def of_owner(owner: OwnerStatus) -> str:
    """Returns whether it is in trouble, and its name."""
    return f"{int(owner.in_trouble)}-{owner.owner}"


def owner_before(field: str, text: str) -> OwnerStatus:
    """Returns as much of the last owner as the list needs."""
    in_trouble, owner = _matched(OWNER, field, text).groups()
    who = owner_in(field, owner)
    return OwnerStatus(who.type, who.id, 1, int(in_trouble), 0, 0, 0, None, None)


def _matched(schema: Schema, field: str, text: str) -> re.Match[str]:
    if found := re.fullmatch(schema["pattern"], text):
        return found
    raise BadInput(field, text, "is no end of a page of this list; give what its `next` said")


READ = {TASK["pattern"]: of_task, KEY["pattern"]: key_in, OWNER["pattern"]: owner_before}
