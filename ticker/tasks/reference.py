"""Resolves references to a task: its `Task`, its id, or its name together with its owner."""

from typing import Any

from ticker.errors import BadInput
from ticker.model import LARGEST_ID
from ticker.tasks import checks, identity
from ticker.tasks.fields import Task

Ref = Task | int | str | None


def id_or_name(task: Ref) -> int | str | None:
    """Returns the task's id or name, checked. Raises BadInput."""
    if isinstance(task, Task):
        return task.id
    if isinstance(task, str):
        return checks.plain("task", task)
    if isinstance(task, bool) or not isinstance(task, int | None):
        raise BadInput("task", task, "is not a task, an id or a name")
    if task is not None and not 0 < task <= LARGEST_ID:
        raise BadInput("task", task, "is not an id: ids are whole numbers from 1")
    return task


def run_id(run: int) -> int:
    """Returns the id of a run, checked. Raises BadInput."""
    if not isinstance(ref := id_or_name(run), int):
        raise BadInput("run", run, "is not a run's id; list_runs returns the ids")
    return ref


def described(owner: Any) -> str:
    """Returns type:id, never an object's own repr, which may show private data."""
    named = identity.identify(owner)
    return f"{named.type}:{named.id}"
