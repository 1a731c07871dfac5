"""S6, S9: what pauses of many tasks keep from starting, by the client's own word, and that they lose no single time."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from tests.faults.checks.findings import Findings
from tests.faults.checks.keys import SETTLED
from tests.faults.facts import FOREVER, History, Operation, Version
from tests.pauses import Pause


class Paused(NamedTuple):
    """From when on a pause is certainly in force, and until when."""

    begin: float
    end: float
    pause: Pause

    def forbids(self, row: Version, kind: str) -> bool:
        """Manual runs wait only if all tasks are paused."""
        return (kind != "manual" or self.pause.scope == "all") and self.pause.covers(row)


@lru_cache(maxsize=1)
def pauses(history: History) -> list[Paused]:
    """Those that were answered. A resumption may have happened as soon as it was asked for."""
    resumed = [operation for operation in history.operations if operation.op == "resume_all"]
    return [
        Paused(one.acked + SETTLED, min(_over(history, one), *(end.sent for end in resumed if _ends(end, one)), FOREVER), Pause(**_scope(one)))
        for one in history.operations
        if one.op == "pause_all" and one.acked is not None
    ]  # fmt: skip


def _over(history: History, one: Operation) -> float:
    until = one.change["until"]
    return FOREVER if until is None else history.clocks.at(until, near=one.sent) - SETTLED


def _ends(resumption: Operation, one: Operation) -> bool:
    return resumption.sent >= one.sent and _scope(resumption) == _scope(one)


def _scope(operation: Operation) -> Mapping[str, str]:
    return {name: operation.change[name] for name in ("scope", "value")}


def obeys_wide_pauses(history: History, found: Findings) -> None:
    """Each start in a pause, against the row that it judged."""
    for run in history.runs.values():
        for one in pauses(history) if run.started else ():
            assert run.started is not None
            if not one.begin <= run.started.at < one.end or run.task not in history.tasks:
                continue
            row = history.at_start(run) or history.tasks[run.task].version_at(run.started.at)
            if row and found.judge(not one.forbids(row, run.kind)):
                found.blame(
                    run.task, run.started.at,
                    f"task {run.task}: run {run.id} ({run.kind}) started at {history.seconds(run.started.at)} s, while"
                    f" {' '.join(filter(None, (one.pause.scope, one.pause.value)))} was paused",
                )  # fmt: skip


def loses_no_single_time(history: History, found: Findings) -> None:
    """An untouched task with a single time starts, however often it was paused. At the end, the harness disables all tasks."""
    once = (history.tasks[id_] for id_ in sorted(history.setup.steady & history.tasks.keys()))
    for task in (task for task in once if task.versions[0].kind == "once"):
        for run in history.by_task.get(task.id, ()):
            row = task.version_at(run.created.at)
            if run.kind != "scheduled" or (row and not row.enabled):
                continue
            if found.judge(run.started is not None):
                found.blame(
                    task.id, run.created.at, f"task {task.id}: its only time ended as {run.outcome} {run.reason}, without a start"
                )  # fmt: skip
