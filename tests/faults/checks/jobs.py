"""S5, S10: no advance without a push, and a bound on what waits."""

import re
from collections.abc import Sequence

from tests.faults.checks import excuses
from tests.faults.checks.advances import advances
from tests.faults.checks.findings import Findings
from tests.faults.facts import History, Push

SCHEDULED = re.compile(r"(?:[a-z0-9]{8}-)?t(\d+)-(\d+)")
PLANNED = re.compile(r"(?:[a-z0-9]{8}-)?r(\d+)")
WAITING_JOBS = 2  # of a task, unless the setting says otherwise


def job_of(task: int, occurrence: int) -> str:
    """Without the prefix of an installation, as a history names it."""
    return f"t{task}-{occurrence}"


# ------------------------------------------------------------------------------------------------------------ S5


def pushed_before(history: History) -> Findings:
    """The answer must have reached the ticker: one that was swallowed is none."""
    found = Findings(history)
    for id_, task in history.tasks.items():
        for version, occurrence in advances(task):
            pushes = history.pushes.get(job_of(id_, occurrence), ())
            latest = version.at + excuses.CLOCK_ERROR
            if found.judge(any(push.taken and push.delivered and push.at <= latest for push in pushes)):
                found.blame(
                    id_,
                    version.at,
                    f"task {id_}: the row moved on past occurrence {occurrence} at {history.seconds(version.at)} s, and Redis"
                    f" had taken no job for it: {_told(history, pushes)}",
                )
    return found


def _told(history: History, pushes: Sequence[Push]) -> str:
    told = [
        f"{push.answer or 'no answer'}{'' if push.delivered else ' (not delivered)'} at {history.seconds(push.at)} s"
        for push in pushes[:5]
    ]
    return ", ".join(told) or "there was no push"


# ----------------------------------------------------------------------------------------------------------- S10


def bounded(history: History) -> Findings:
    """A tick pushes no occurrence of a task of which enough jobs wait."""
    found = Findings(history)
    for task in history.tasks.values():
        for version in task.versions:
            if version.waiting and found.judge(len(version.waiting) <= WAITING_JOBS):
                found.blame(
                    task.id, version.at,
                    f"task {task.id}: {len(version.waiting)} occurrences waited at {history.seconds(version.at)} s;"
                    f" the limit is {WAITING_JOBS}",
                )  # fmt: skip
    return found
