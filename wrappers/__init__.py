"""What runs around each job in the worker. The whole door:

`task` registers a function, `Run` is what it is handed, `run` is what RQ calls, `Worker` is RQ's worker with our
launcher's promises, `HoldLost` is what a run learns that has lost its task.
"""

from typing import TYPE_CHECKING, Any

from wrappers.context import HoldLost, Quota, Run
from wrappers.entry import run
from wrappers.limits import SoftLimit
from wrappers.registry import task

if TYPE_CHECKING:
    from wrappers.worker import Worker

__all__ = ["task", "Run", "Quota", "HoldLost", "SoftLimit", "run", "Worker"]


def __getattr__(name: str) -> Any:
    """`Worker` only when it is asked for: a stock worker's horse imports this package for every job."""
    if name == "Worker":
        from wrappers.worker import Worker

        return Worker
    raise AttributeError(f"module 'wrappers' has no attribute {name!r}")
