"""Rows in your PostgreSQL say what must run and how often; a ticker puts the due ones on the RQ queue you already have.

The public door. What is behind it is imported when it is first used, so that a worker does not pay for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ticker.errors import (
    BadInput,
    ConfigurationError,
    DatabaseUnavailable,
    QueueUnavailable,
    RowLocked,
    TickerError,
    Unavailable,
    UnknownOwner,
    UnknownRun,
    UnknownTask,
)

if TYPE_CHECKING:
    from ticker.definition import Wanted
    from ticker.identity import Owner
    from ticker.ledger import Why, why
    from ticker.lines import Line
    from ticker.owner_status import OwnerStatus, list_owners
    from ticker.preview import Preview, validate
    from ticker.record import Drops, drops, journal
    from ticker.registration import edit, pause, reconcile, register, resume, run_now, unregister
    from ticker.status import FullRun, RunRecord, get, get_run, list_runs, list_tasks
    from ticker.task import Kind, Outcome, Reason, Task
    from ticker.templates import defaults

__all__ = [
    "register", "unregister", "reconcile", "edit", "pause", "resume", "run_now", "defaults",
    "get", "list_tasks", "list_owners", "list_runs", "get_run", "why", "journal", "drops", "validate",
    "Preview", "Why", "Line", "Drops", "RunRecord", "FullRun", "Task", "Wanted", "Owner", "OwnerStatus", "Kind", "Outcome", "Reason",
    "TickerError", "BadInput", "UnknownTask", "UnknownRun", "UnknownOwner", "ConfigurationError",
    "Unavailable", "DatabaseUnavailable", "RowLocked", "QueueUnavailable",
]  # fmt: skip

_HOME = {
    **dict.fromkeys(("register", "unregister", "reconcile", "edit", "pause", "resume", "run_now"), "registration"),
    **dict.fromkeys(("get", "list_tasks", "list_runs", "get_run", "RunRecord", "FullRun"), "status"),
    **dict.fromkeys(("why", "Why"), "ledger"),
    **dict.fromkeys(("journal", "drops", "Drops"), "record"),
    "Line": "lines",
    **dict.fromkeys(("Task", "Kind", "Outcome", "Reason"), "task"),
    **dict.fromkeys(("Preview", "validate"), "preview"),
    **dict.fromkeys(("list_owners", "OwnerStatus"), "owner_status"),
    "defaults": "templates",
    "Wanted": "definition",
    "Owner": "identity",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"ticker.{_HOME[name]}"), name)
    raise AttributeError(f"module 'ticker' has no attribute {name!r}")
