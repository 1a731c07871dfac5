"""Defines pauses of many tasks, which registration writes and reading lists."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from ticker.db.sql import Row
from ticker.errors import BadInput
from ticker.tasks import checks

SCOPES = ("group", "function", "queue", "owner_type", "limit")


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of all tasks (`scope` is `all`), or of those with the same `value` in one respect. Times are in UTC.

    `words` names the tasks. A pause is `in_force` until it is resumed, or until `until`. After that, each tick resumes
    up to `budget` tasks. `waiting` is how many due tasks wait for its end; counting stops at 10,000.
    """

    id: int
    scope: str
    value: str
    words: str
    by: str
    reason: str
    paused_at: datetime
    until: datetime | None
    resumed_at: datetime | None
    resumed_by: str
    budget: int | None
    in_force: bool
    waiting: int


def pause_from(row: Row) -> Pause:
    return Pause(**row)


def scope_of(given: Mapping[str, str | None]) -> dict[str, str]:
    """Returns the scope that is given, at most one of SCOPES, and its value, as columns. Without one, all tasks are
    meant.
    """
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) > 1:
        names = " and ".join(named)
        raise BadInput("pause", names, "cannot be combined; pause each of them")
    for name, value in named.items():
        return {"scope": name, "value": _checked(name, value)}
    return {"scope": "all", "value": ""}


def _checked(name: str, value: str) -> str:
    if name == "limit":
        checks.key("limit", value, pattern=True)
        return value
    return checks.plain(name, value)
