"""What runs around each job in the worker. The whole door:

`task` registers a function, `Run` is what it is handed, `run` is what RQ calls (`run_batch` for several tasks), `Worker`
is RQ's worker with our launcher's promises, `HoldLost` is what a run learns that has lost its task, and `NOTHING_TO_DO` is
what a function returns that found no work.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wrappers.context import HoldLost, Quota, Run
    from wrappers.entry import run, run_batch
    from wrappers.limits import SoftLimit
    from wrappers.pieces import NOTHING_TO_DO
    from wrappers.registry import task
    from wrappers.worker import Worker

__all__ = ["task", "Run", "Quota", "HoldLost", "SoftLimit", "NOTHING_TO_DO", "run", "run_batch", "Worker"]

_HOMES = {
    "task": "registry", "Run": "context", "Quota": "context", "HoldLost": "context", "SoftLimit": "limits",
    "NOTHING_TO_DO": "pieces", "run": "entry", "run_batch": "entry", "Worker": "worker",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Each when it is asked for: a stock worker's horse pays for no Worker, and a keeper, of 14 MB, for nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'wrappers' has no attribute {name!r}")
    found = getattr(import_module(f"wrappers.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
