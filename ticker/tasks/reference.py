"""Names a task: by its `Task`, its id, or its name together with its owner."""

from typing import Any

from ticker.errors import BadInput
from ticker.model import LARGEST_ID
from ticker.tasks import checks, identity
from ticker.tasks.fields import Task

Ref = Task | int | str | None


def id_or_name(task: Ref) -> int | str | None:
    """What names a task, checked; BadInput where it cannot."""
    if isinstance(task, Task):
        return task.id
    if isinstance(task, str):
        return checks.plain("task", task)
    if isinstance(task, bool) or not isinstance(task, int | None):
        raise BadInput("task", task, "is no task, no id and no name")
    if task is not None and not 0 < task <= LARGEST_ID:
        raise BadInput("task", task, "is no id: ids are whole numbers from 1")
    return task


def described(owner: Any) -> str:
    """type:id, and never an object's own repr, which may show what is nobody's business."""
    who = identity.identify(owner)
    return f"{who.type}:{who.id}"
