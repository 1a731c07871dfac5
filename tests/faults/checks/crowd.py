"""L7: after a fault, each task of a large group starts again, whatever became of its neighbours."""

from itertools import pairwise

from tests.faults.checks import excuses
from tests.faults.checks.findings import Findings
from tests.faults.checks.liveness import recovery, starts_of
from tests.faults.facts import FOREVER, Calm, History, Task


def starts_again(history: History) -> Findings:
    """In a calm, what is due starts within 3 D + restart + the longest poll. L2 holds from then on."""
    found = Findings(history)
    for id_ in sorted(history.setup.crowd & history.tasks.keys()):
        for calm in history.calms:
            version = history.tasks[id_].version_at(calm.begin)
            if version is not None and version.pushable:
                _starts_again(history, history.tasks[id_], version.every_ms / 1000, calm, found)
    return found


def _starts_again(history: History, task: Task, every: float, calm: Calm, found: Findings) -> None:
    starts = starts_of(history, task.id)
    inside = [at for at in starts if calm.begin < at <= calm.end]
    before = max((at for at in starts if at <= calm.begin), default=_first_due(history, task) - every)
    for start, following in pairwise([before, *inside, FOREVER]):
        due = max(calm.begin, start + every)
        latest = due + recovery(history, calm)
        if (following != FOREVER or latest <= calm.end) and found.judge(following <= latest):
            _late(history, task, start, due, min(following, calm.end), latest - due, found)


def _first_due(history: History, task: Task) -> float:
    first = task.versions[0]
    return first.at if first.next_run is None else history.clocks.at(first.next_run, near=first.at)


def _late(history: History, task: Task, before: float, due: float, until: float, limit: float, found: Findings) -> None:
    why = (
        excuses.was_ruled_out(history.by_task.get(task.id, ()), before, until)
        or excuses.failed_its_push(task, due, until)
        or excuses.the_machine_was_full(history, due, until)
    )
    if why:
        found.excuse(why)
        return
    found.blame(
        task.id,
        due,
        f"task {task.id}: due at {history.seconds(due)} s of a calm, it did not start until {history.seconds(until)} s; the"
        f" limit is 3 D + restart + the longest poll of its group = {limit:g} s",
    )
