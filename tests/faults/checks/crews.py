"""The runs that shared a process: those of a batch one after another, those of a group at the same time."""

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
    """The process that ran it, by its own word, or else by its record."""
    one = history.witnessed.get(run.id)
    return one.begins[0].pid if one and one.begins else run.pid


def process_of(history: History, run: Run) -> str:
    """The supervised process to which it belonged, by its own word."""
    one = history.witnessed.get(run.id)
    return one.begins[0].process if one and one.begins else ""


def deed_of(history: History, run: Run) -> str:
    """What it did to its neighbours, by its own word."""
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
    """A number is given again, to a process of another worker, or after a while."""
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
    """Itself alone, where nobody knows its process."""
    return crew_by_run(history).get(run.id) or Crew(pid_of(history, run), (run,))


def last_activity(history: History, crew: Crew) -> float:
    """Of any of its runs, by their own words; the process lived until then at least."""
    return max((history.witnessed[run.id].last_own for run in crew.runs if run.id in history.witnessed), default=0.0)
