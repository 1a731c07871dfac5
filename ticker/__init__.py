"""Rows in your PostgreSQL define what runs and how often; a ticker puts due tasks on your RQ queues.

This module is the public interface. It imports each name on first use, so a worker does not pay for names that it never
uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ticker.errors import (
    BadInput,
    BulkStopped,
    ConfigurationError,
    DatabaseUnavailable,
    QueueUnavailable,
    RowLocked,
    TickerError,
    TickerWarning,
    Unavailable,
    UnknownOwner,
    UnknownRun,
    UnknownTask,
)

if TYPE_CHECKING:
    from ticker.model import Kind, Outcome, Pause, Reason
    from ticker.read.entries import JournalEntry
    from ticker.read.gates import LimitStatus, list_limits, list_pauses
    from ticker.read.journal import Drops, drops, journal, list_runs
    from ticker.read.owners import OwnerStatus, list_owners
    from ticker.read.tasks import FullRun, RunRecord, get, get_run, list_tasks
    from ticker.read.why import Why, why
    from ticker.tasks.bulk import Bulk, bulk
    from ticker.tasks.defaults import defaults
    from ticker.tasks.definition import Wanted
    from ticker.tasks.fields import Task
    from ticker.tasks.gates import Limit, limit, pause_all, release, resume_all, unlimit
    from ticker.tasks.identity import Owner
    from ticker.tasks.many import Registered, register_many
    from ticker.tasks.operations import edit, pause, reconcile, register, resume, run_now, stop, unregister
    from ticker.tasks.preview import Preview, validate

__all__ = [
    "register", "register_many", "unregister", "reconcile", "edit", "pause", "resume", "pause_all", "resume_all", "run_now", "stop", "bulk", "defaults", "limit", "unlimit", "release",
    "get", "list_tasks", "list_owners", "list_limits", "list_pauses", "list_runs", "get_run", "why", "journal", "drops", "validate",
    "Preview", "Why", "JournalEntry", "Drops", "RunRecord", "FullRun", "Task", "Wanted", "Registered", "Bulk", "Owner", "OwnerStatus", "Limit", "LimitStatus", "Pause",
    "Kind", "Outcome", "Reason",
    "TickerError", "BadInput", "UnknownTask", "UnknownRun", "UnknownOwner", "ConfigurationError",
    "Unavailable", "DatabaseUnavailable", "RowLocked", "BulkStopped", "QueueUnavailable", "TickerWarning",
]  # fmt: skip

_HOMES = {
    "model": ("Kind", "Outcome", "Pause", "Reason"),
    "read.entries": ("JournalEntry",),
    "read.gates": ("LimitStatus", "list_limits", "list_pauses"),
    "read.journal": ("Drops", "drops", "journal", "list_runs"),
    "read.owners": ("OwnerStatus", "list_owners"),
    "read.tasks": ("FullRun", "RunRecord", "get", "get_run", "list_tasks"),
    "read.why": ("Why", "why"),
    "tasks.bulk": ("Bulk", "bulk"),
    "tasks.defaults": ("defaults",),
    "tasks.definition": ("Wanted",),
    "tasks.fields": ("Task",),
    "tasks.gates": ("Limit", "limit", "pause_all", "release", "resume_all", "unlimit"),
    "tasks.identity": ("Owner",),
    "tasks.many": ("Registered", "register_many"),
    "tasks.operations": ("edit", "pause", "reconcile", "register", "resume", "run_now", "stop", "unregister"),
    "tasks.preview": ("Preview", "validate"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"ticker.{_HOME[name]}"), name)
    raise AttributeError(f"module 'ticker' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
