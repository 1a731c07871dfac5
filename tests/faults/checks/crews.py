"""Finds the runs that shared a process: those of a batch one after another, those of a group at the same time."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from tests.faults.facts import History, Run

DEAD = frozenset({"killed", "interrupted"})  # what is recorded of a run whose process died under it
REUSED = 100.0  # seconds between two runs, after which the same number is another process


class Crew(NamedTuple):
    """The runs of a process, in the order of their starts."""

    pid: int
    runs: Sequence[Run]

    @property
    def dead(self) -> Sequence[Run]:
        return [run for run in self.runs if run.outcome in DEAD]


def pid_of(history: History, run: Run) -> int:
    """Returns the process that ran it, as the function itself recorded it, or else as its record says."""
    one = history.witnessed.get(run.id)
    return one.begins[0].pid if one and one.begins else run.pid


def process_of(history: History, run: Run) -> str:
    """Returns the supervised process to which it belonged, as the function itself recorded it."""
    one = history.witnessed.get(run.id)
    return one.begins[0].process if one and one.begins else ""


def deed_of(history: History, run: Run) -> str:
    """Returns what it did to its neighbours, as the function itself recorded it."""
    one = history.witnessed.get(run.id)
    return one.deed if one else ""


@lru_cache(maxsize=1)
def crews(history: History) -> Sequence[Crew]:
    by_pid: dict[int, list[Run]] = {}
    for run in history.runs.values():
        if run.started and pid_of(history, run):
            by_pid.setdefault(pid_of(history, run), []).append(run)
    return [Crew(pid, runs) for pid, same in by_pid.items() for runs in _apart(history, same)]


def _apart(history: History, runs: list[Run]) -> list[list[Run]]:
    """Splits the runs with the same process id: the id is used again by another worker, or after a while."""
    parts: list[list[Run]] = []
    for run in sorted(runs, key=lambda run: run.started or run.created):
        if parts and _are_together(history, parts[-1][-1], run):
            parts[-1].append(run)
        else:
            parts.append([run])
    return parts


def _are_together(history: History, earlier: Run, later: Run) -> bool:
    assert earlier.started and later.started
    processes = {process_of(history, earlier), process_of(history, later)} - {""}
    return len(processes) < 2 and later.started.at - earlier.started.at < REUSED


@lru_cache(maxsize=1)
def crew_by_run(history: History) -> Mapping[int, Crew]:
    return {run.id: crew for crew in crews(history) for run in crew.runs}


def crew_of(history: History, run: Run) -> Crew:
    """Returns the runs of its process. If the process is unknown, returns this run alone."""
    return crew_by_run(history).get(run.id) or Crew(pid_of(history, run), (run,))


def last_activity(history: History, crew: Crew) -> float:
    """Returns when any of its runs was last active, as they recorded it. The process lived at least until then."""
    return max((history.witnessed[run.id].last_own for run in crew.runs if run.id in history.witnessed), default=0.0)
