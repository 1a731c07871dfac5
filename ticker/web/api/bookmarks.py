"""Where a page of a list ended, as a text that the next request brings back. Whoever gets it need not read it."""

import re
from datetime import UTC, datetime, timedelta

from ticker.errors import BadInput
from ticker.read.journal import Key
from ticker.read.owners import OwnerStatus
from ticker.web.api.fields import owner_in

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

TASK = "[1-9][0-9]{0,17}"
KEY = f"([0-9]{{1,17}})-(run|event)-({TASK})"
OWNER = "([01])-(.+)"


def of_task(field: str, text: str) -> int:
    if not re.fullmatch(TASK, text):
        raise _unknown(field, text)
    return int(text)


def of_key(key: Key) -> str:
    """When it ended or happened, in microseconds since 1970, what it was, and its id."""
    at, sort, id_ = key
    return f"{(at - EPOCH) // MICROSECOND}-{sort}-{id_}"


def key_in(field: str, text: str) -> Key:
    if not (found := re.fullmatch(KEY, text)):
        raise _unknown(field, text)
    return EPOCH + int(found[1]) * MICROSECOND, found[2], int(found[3])


def of_owner(owner: OwnerStatus) -> str:
    """Whether it is in trouble, and who it is."""
    return f"{int(owner.in_trouble)}-{owner.owner}"


def owner_before(field: str, text: str) -> OwnerStatus:
    """As much of the last owner as the list needs."""
    if not (found := re.fullmatch(OWNER, text)):
        raise _unknown(field, text)
    who = owner_in(field, found[2])
    return OwnerStatus(who.type, who.id, 1, int(found[1]), 0, 0, 0, None, None)


def _unknown(field: str, text: str) -> BadInput:
    return BadInput(field, text, "is no end of a page of this list; give what its `next` said")
