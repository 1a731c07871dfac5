"""What people do to a row, as change_tasks and delete_tasks."""

from tests.model.rules import Bounds
from tests.model.runs import Step
from tests.model.state import Row, State, due_at, is_locked, put


def edits(state: State, bounds: Bounds) -> list[Step]:
    steps: list[Step] = []
    for task, row in enumerate(state.rows):
        if not row.alive or is_locked(state, task):
            continue
        word = "disabled" if row.enabled else "enabled"
        steps.append((f"task {word}", put(state, task, row._replace(enabled=not row.enabled, push_after=None)), ""))
        steps.append(("task deleted", put(state, task, row._replace(alive=False)), ""))
        for timing in range(len(bounds.timings)):
            if timing != row.timing:
                steps.append(("interval edited", put(state, task, edited(row, timing, bounds)), ""))
    return steps


def edited(row: Row, timing: int, bounds: Bounds) -> Row:
    """A changed interval may bring the next run nearer, never push it away."""
    every = bounds.in_force(timing, row.pace)
    return due_at(row, min(row.next_run, every))._replace(timing=timing, push_after=None)
