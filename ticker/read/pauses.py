"""Lists pauses of many tasks, and describes them."""

from ticker import clock
from ticker.db.steps import Steps, reads
from ticker.read.explain import counted
from ticker.read.formatting import at
from ticker.tasks.pauses import Pause, pause_from
from ticker.tasks.queries import query


@reads
def list_pauses() -> Steps[list[Pause]]:
    """Returns the pauses of many tasks that are in force, and those that are over while tasks still wait, oldest first."""
    return [pause_from(row) for row in (yield query("list_pauses", now=clock.now()))]


@reads
def has_tasks(pause: Pause) -> Steps[bool]:
    """Returns whether there is a task that the pause is for. For a rare one, this reads the whole table."""
    return bool((yield query("has_paused_tasks", id=pause.id))[0]["has_tasks"])


def sentence(pause: Pause) -> str:
    """Says who has paused which tasks, and how many wait."""
    is_one = pause.waiting == 1
    waiting = f"{pause.waiting:,} due {'task waits' if is_one else 'tasks wait'}"
    if pause.in_force:
        until = f" until {at(pause.until)}" if pause.until else ""
        reason = f": {pause.reason}" if pause.reason else ""
        return f"{pause.words} are paused by {pause.by} since {at(pause.paused_at)}{until}{reason}; {waiting}"
    budget = f", up to {counted(pause.budget, 'task')} per tick" if pause.budget else ""
    return f"the pause of {pause.words} is over since {at(pause.resumed_at or pause.until)}; {waiting} for {'its' if is_one else 'their'} turn{budget}"


def then(pause: Pause) -> str:
    """Says how a pause kept a task waiting at a time in the past."""
    until = f" to {at(pause.resumed_at)}" if pause.resumed_at else ""
    reason = f": {pause.reason}" if pause.reason else ""
    return f"then: {pause.words} were paused by {pause.by} from {at(pause.paused_at)}{until}{reason}"
