"""The public API of the worker side:

`task` registers a function, and `limit` declares a limit. `Run` is passed to the function, `run` is what RQ calls
(`run_batch` for several tasks), and `Worker` is RQ's worker with the launcher's guarantees. `HoldLost` is raised in a
run that no longer holds its task. A function that found no work returns `NOTHING_TO_DO`. `SlowDown` ends a run, and
closes a key for a while.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wrappers.entry import run, run_batch
    from wrappers.group.begun import shared
    from wrappers.pipeline.context import HoldLost, Quota, Run
    from wrappers.pipeline.fan_out import NOTHING_TO_DO
    from wrappers.pipeline.registry import limit, task
    from wrappers.pipeline.slow_down import SlowDown
    from wrappers.rq.worker import Worker
    from wrappers.sandbox.limits import SoftLimit

__all__ = [
    "task", "limit", "Run", "Quota", "HoldLost", "SlowDown", "SoftLimit", "NOTHING_TO_DO", "shared", "run", "run_batch", "Worker",
]  # fmt: skip

_HOMES = {
    "entry": ("run", "run_batch"),
    "group.begun": ("shared",),
    "pipeline.context": ("HoldLost", "Quota", "Run"),
    "pipeline.fan_out": ("NOTHING_TO_DO",),
    "pipeline.slow_down": ("SlowDown",),
    "pipeline.registry": ("limit", "task"),
    "rq.worker": ("Worker",),
    "sandbox.limits": ("SoftLimit",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a name on first use, so that a stock worker's horse does not load Worker, and the supervisor loads
    nothing.
    """
    if name not in _HOME:
        raise AttributeError(f"module 'wrappers' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"wrappers.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
