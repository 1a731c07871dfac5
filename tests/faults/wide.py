"""The pauses of many tasks in a fault run: of which tasks, and how they begin and end."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import ticker
from tests.faults.keys import HELD
from tests.faults.stage import Stage

Scope = tuple[str, str]
ALL: Scope = ("all", "")
GROUP = "odd"
SCOPES: tuple[Scope, ...] = (
    ("function", "poll.plain"), ("function", "poll.slows"), ("queue", "polling"), ("queue", "slow"), ("group", GROUP),
    ("owner_type", "mailboxes"),
)  # fmt: skip
OF_LIMITS: tuple[Scope, ...] = (("limit", "host:a"), ("limit", HELD), ("limit", "account:*"))


def paused(stage: Stage, scope: Scope, seconds: float | None = None) -> Iterator[str]:
    """Pauses these tasks; with `seconds`, the pause also ends by itself. Whether it was paused or not, it is resumed."""
    name, value = scope
    of = {name: value} if value else {}
    until = None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
    about = {"scope": name, "value": value, "until": None if until is None else until.timestamp()}
    try:
        with stage.database() as db:
            _told(stage, "pause_all", about, lambda: ticker.pause_all(db, reason="a fault run", until=until, **of))
        yield " ".join(scope)
    finally:
        resume(stage, scope)


def resume(stage: Stage, scope: Scope) -> None:
    name, value = scope
    of = {name: value} if value else {}
    about = {"scope": name, "value": value}
    stage.insist(lambda db: _told(stage, "resume_all", about, lambda: ticker.resume_all(db, **of)))


def resume_all(stage: Stage) -> None:
    """For a new world: the end of a pause may be among what is lost."""
    for scope in (ALL, *SCOPES, *OF_LIMITS):
        resume(stage, scope)


def _told(stage: Stage, op: str, change: dict[str, object], act: Callable[[], object]) -> None:
    about = {"op": op, "id": time.monotonic_ns(), "task": None, "tasks": [], "owner": None, "change": change}
    stage.journal.write("client", phase="sent", **about)
    act()
    stage.journal.write("client", phase="acked", **about)
