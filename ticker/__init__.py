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
    UnknownTask,
)

if TYPE_CHECKING:
    from ticker.definition import Wanted
    from ticker.identity import Owner
    from ticker.preview import Preview, validate
    from ticker.registration import edit, pause, reconcile, register, resume, run_now, unregister
    from ticker.status import get, list_runs, list_tasks
    from ticker.task import Kind, Outcome, Reason, Task

__all__ = [
    "register", "unregister", "reconcile", "edit", "pause", "resume", "run_now",
    "get", "list_tasks", "list_runs", "validate",
    "Preview", "Task", "Wanted", "Owner", "Kind", "Outcome", "Reason",
    "TickerError", "BadInput", "UnknownTask", "UnknownOwner", "ConfigurationError",
    "Unavailable", "DatabaseUnavailable", "RowLocked", "QueueUnavailable",
]  # fmt: skip

_HOME = {
    **dict.fromkeys(("register", "unregister", "reconcile", "edit", "pause", "resume", "run_now"), "registration"),
    **dict.fromkeys(("get", "list_tasks", "list_runs"), "status"),
    **dict.fromkeys(("Task", "Kind", "Outcome", "Reason"), "task"),
    **dict.fromkeys(("Preview", "validate"), "preview"),
    "Wanted": "definition",
    "Owner": "identity",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"ticker.{_HOME[name]}"), name)
    raise AttributeError(f"module 'ticker' has no attribute {name!r}")
