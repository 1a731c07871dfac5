"""Whom a task belongs to. SQLAlchemy is imported only when a mapped object is met, Django never."""

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from ticker.errors import BadInput
from ticker.model import NAME_AT_MOST

CONTROL = frozenset({"Cc", "Cs", "Zl", "Zp"})  # PostgreSQL's [[:cntrl:]] in any locale, and what is no UTF-8


@dataclass(frozen=True, slots=True)
class Owner:
    """The full name of the owner's table and the text of its key; both empty: nobody."""

    type: str
    id: str

    def __post_init__(self) -> None:
        if (self.type, self.id) != ("", ""):
            check_text("owner_type", self.type)
            check_text("owner_id", self.id)


NOBODY = Owner("", "")


def identify(owner: object) -> Owner:
    """Whom `owner` names: None, an Owner, a pair of texts, a text type:id, or a mapped object, flushed if pending."""
    if owner is None:
        return NOBODY
    if isinstance(owner, Owner):
        return owner
    if isinstance(owner, str) and ":" in owner:
        return _named(*owner.split(":", 1))
    if isinstance(owner, tuple | list) and len(owner) == 2:
        return _named(*owner)
    from ticker.tasks import django_models

    if (found := django_models.named(owner)) is not None:
        return Owner(*found)
    from ticker.tasks import mapped  # and with it SQLAlchemy, which whoever hands us an object has loaded anyway

    if (found := mapped.named(owner)) is not None:
        return Owner(*found)
    raise BadInput("owner", owner, "names no owner: no mapped or Django object, no pair of texts, no text type:id")


def key_text(key: Sequence[tuple[str, object]]) -> str:
    """Returns columns with their values as PostgreSQL prints a key: key::text, or json_build_array(...)::text for several."""
    values = [str(value) if isinstance(value, UUID) else value for _, value in key]
    for column, value in key:
        if isinstance(value, bool | Enum) or not isinstance(value, int | str | UUID):
            raise BadInput(column, value, "is no int, str or UUID; name the owner by a pair of texts")
    return str(values[0]) if len(values) == 1 else json.dumps(values, ensure_ascii=False)


def _named(type_: str, id_: str) -> Owner:
    owner = Owner(type_, id_)
    if owner == NOBODY:
        raise BadInput("owner", (type_, id_), "is empty; None stands for no owner")
    return owner


def check_text(field: str, value: object) -> None:
    if not isinstance(value, str):
        raise BadInput(field, value, f"is no text, but of type {type(value).__name__}")
    if not 0 < len(value) <= NAME_AT_MOST:
        raise BadInput(field, value, f"has {len(value)} characters; 1 to {NAME_AT_MOST} are allowed")
    if any(unicodedata.category(character) in CONTROL for character in value):
        raise BadInput(field, value, f"has a control character; 1 to {NAME_AT_MOST} printable ones are allowed")
