"""Finds which keys a run used, which limits applied to them, and until when a key was closed.

The runs record their own keys, and the harness its declarations. So this does not depend on the product's tables of limits.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from tests.faults.checks import excuses
from tests.faults.facts import FOREVER, Declaration, History, Run, Task, Version, Witnessed

SETTLED = 0.25  # seconds after a COMMIT, within which a statement may still go by what it read before


class Use(NamedTuple):
    """A start with a key. `at` is when the audit trigger saw it, and `recorded` when its record says that it was decided."""

    run: Run
    at: float
    recorded: float
    witnessed: Witnessed | None

    @property
    def first(self) -> float:
        """When the function was active first, or the start if it never was."""
        return self.witnessed.first if self.witnessed else self.at

    @property
    def freed(self) -> float:
        """When its place was free again: at its recorded end, or after B + g."""
        return min([self.at + self.run.hold, *(moment.at for moment in self.run.frees)])


def keys_of(version: Version | None) -> Sequence[str]:
    """Returns the keys of a task, as its kwargs name them."""
    kwargs = version.kwargs if version else None
    return kwargs.get("keys", ()) if isinstance(kwargs, dict) else ()


def has_keys(task: Task) -> bool:
    """Returns whether the task ever had keys. It may have waited for their room, so L6 judges it instead of L1 to L3."""
    return any(keys_of(version) for version in task.versions)


@lru_cache(maxsize=1)
def uses(history: History) -> Mapping[str, Sequence[Use]]:
    """Returns the starts with each key, in their order."""
    by_key: dict[str, list[Use]] = {}
    for run in history.runs.values():
        if run.started is None:
            continue
        one = history.witnessed.get(run.id)
        own = one.begins[0].kwargs if one and one.begins else None
        keys = own.get("keys", ()) if isinstance(own, dict) else keys_of(_row(history, run))
        recorded = history.clocks.at(run.started_at or 0.0, near=run.started.at)
        for key in keys:
            by_key.setdefault(key, []).append(Use(run, run.started.at, recorded, one))
    return {key: sorted(found, key=lambda use: use.at) for key, found in by_key.items()}


def _row(history: History, run: Run) -> Version | None:
    """A piece changes no row of its task when it starts."""
    assert run.started
    task = history.tasks.get(run.task)
    return history.at_start(run) or (task.version_at(run.started.at) if task else None)


# ------------------------------------------------------------------------------------------------------------ limits


def settled(history: History, at: float) -> float:
    """Returns from when on all statements must know what was committed at an instant. A fault may stop a statement that has
    read something older."""
    faults = [fault.end for fault in history.faults if fault.begin <= at <= fault.end and excuses.stops_all_ends(fault)]
    return max([at, *faults]) + SETTLED


def in_force(history: History, key: str, at: float) -> Sequence[Declaration]:
    """Returns the limits of which any may have applied at this instant. Returns nothing if there may have been no limit."""
    ordered = declared(history, key)
    latest = max((number for number, (since, _) in enumerate(ordered) if since <= at), default=None)
    if latest is None:
        return ()
    return [one for _, one in ordered[latest:] if one.sent <= at + excuses.CLOCK_ERROR]


def declared(history: History, key: str) -> Sequence[tuple[float, Declaration]]:
    """Returns the declarations for the key, or else for its longest pattern, each with the instant since which all know it."""
    by_name = _by_name(history)
    patterns = [name for name in by_name if name.endswith("*") and key.startswith(name.rstrip("*"))]
    return by_name.get(key) or by_name.get(max(patterns, key=len, default=""), ())


@lru_cache(maxsize=1)
def _by_name(history: History) -> Mapping[str, Sequence[tuple[float, Declaration]]]:
    by_name: dict[str, list[tuple[float, Declaration]]] = {}
    for one in history.limits:
        since = FOREVER if one.acked is None else settled(history, one.acked)
        by_name.setdefault(one.key, []).append((since, one))
    return by_name


def concurrency(history: History, key: str, at: float) -> tuple[float, float]:
    """Returns the lowest and the highest number of runs that the key may have allowed at this instant."""
    numbers = [FOREVER if one.concurrency is None else float(one.concurrency) for one in in_force(history, key, at)]
    return min(numbers, default=FOREVER), max(numbers, default=FOREVER)


# ------------------------------------------------------------------------------------------------------------- holds


class Hold(NamedTuple):
    """A key is certainly closed from `since` to `until`."""

    since: float
    until: float
    by: int


@lru_cache(maxsize=1)
def holds(history: History) -> Mapping[str, Sequence[Hold]]:
    """Returns the holds that were committed: the call returned, or the end of the run was recorded as `slowed_down`."""
    by_key: dict[str, list[Hold]] = {}
    for one in history.holds:
        run = history.runs.get(one.run)
        ends = [moment.at for outcome, moment in run.ends if outcome == "slowed_down"] if run else []
        committed = min([at for at in (one.held, *ends) if at is not None], default=None)
        if committed is not None:
            by_key.setdefault(one.key, []).append(Hold(settled(history, committed), one.at + one.seconds, one.run))
    return {key: sorted(found) for key, found in by_key.items()}
