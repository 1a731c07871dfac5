"""L1 to L3: what is due is pushed, and what is pushed starts, while nothing is wrong."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil, sqrt
from typing import NamedTuple

from tests.faults.checks import excuses
from tests.faults.checks.epochs import Epoch, epochs
from tests.faults.checks.findings import Findings
from tests.faults.checks.jobs import job_of
from tests.faults.checks.keys import has_keys
from tests.faults.facts import FOREVER, Calm, History, Task

OFTEN = 50  # intervals that a calm must hold before a rate is judged
RATE = 0.98


def windows(history: History) -> list[Calm]:
    """The calms, without their first D + 2 s: a fault's last effects."""
    left_out = history.setup.tick + excuses.SLACK
    return [Calm(calm.begin + left_out, calm.end) for calm in history.calms if calm.end - calm.begin > left_out]


def recovery(history: History, calm: Calm) -> float:
    """Returns how long the crowd has in a calm: 3 D + restart + the longest poll, because its suspects run apart first.

    N suspects run in the root of N jobs, which keep their workers until their longest poll has ended. So the last job begins
    after as many polls as the workers need rounds.
    """
    suspects = sum(_is_suspected(history.tasks[id_], calm) for id_ in history.setup.crowd & history.tasks.keys())
    rounds = max(1, ceil(ceil(sqrt(suspects)) / history.setup.crowd_workers))
    return 3 * history.setup.tick + history.setup.restart + rounds * history.setup.longest_poll


def _is_suspected(task: Task, calm: Calm) -> bool:
    first = task.version_at(calm.begin)
    inside = [version for version in task.versions if calm.begin < version.at <= calm.end]
    return any(version is not None and version.alone_until is not None for version in (first, *inside))


def windows_of(history: History, task: Task) -> list[Calm]:
    """Returns the windows in which L2 holds for a task. Before that, L7 judges a task of the crowd."""
    if task.id not in history.setup.crowd:
        return windows(history)
    begins = ((calm.begin + recovery(history, calm), calm.end) for calm in history.calms)
    return [Calm(begin, end) for begin, end in begins if begin < end]


def healthy(history: History) -> list[Task]:
    return [task for id_, task in history.tasks.items() if id_ not in history.setup.poison]


def unlimited(history: History) -> list[Task]:
    """Tasks that never wait for the room of a key. L6 judges the others."""
    return [task for task in healthy(history) if not has_keys(task)]


# ------------------------------------------------------------------------------------------------------------ L1


class Due(NamedTuple):
    """From the instant at which a tick had to see the task as due until it did not any more: moved on, or forbidden."""

    occurrence: int
    since: float
    until: float


def dues(history: History, task: Task) -> Iterator[Due]:
    """Versions that are alike in what makes a task due are one."""
    begin = task.versions[0]
    for before, after in pairwise([*task.versions, None]):
        assert before is not None
        if after is not None and _alike(before) == _alike(after):
            continue
        if begin.pushable and begin.next_run is not None:
            ready = max(begin.next_run, begin.push_after or 0.0)
            since = max(history.clocks.at(ready, near=begin.at), begin.at)
            yield Due(round(begin.next_run * 1_000_000), since, after.at if after else FOREVER)
        if after is not None:
            begin = after


def _alike(version: object) -> tuple[object, ...]:
    return (version.pushable, version.next_run, version.push_after)  # type: ignore[attr-defined]


def pushed_in_time(history: History) -> Findings:
    found = Findings(history)
    limit = history.setup.tick + 1
    calms = windows(history)
    for task in unlimited(history):
        if task.id in history.setup.crowd:
            continue  # what the slots of a group cannot begin is not pushed; L2 and L7 judge its starts
        for due in dues(history, task):
            pushed = min(due.until, _first_push(history, task.id, due.occurrence))
            for calm in overlapping(calms, min(due.since, pushed), pushed):
                waited = min(pushed, calm.end) - max(due.since, calm.begin)
                if found.judge(waited <= limit) and not _excused(
                    found, history, max(due.since, calm.begin), min(pushed, calm.end), task
                ):
                    found.blame(
                        task.id,
                        due.since,
                        f"task {task.id}: due since {history.seconds(due.since)} s, it was not pushed for {waited:.3f} s"
                        f" of a calm; the limit is D + 1 = {limit:g} s",
                    )
    return found


def _excused(found: Findings, history: History, begin: float, end: float, task: Task | None = None) -> bool:
    why = excuses.the_machine_was_full(history, begin, end)
    if not why and task is not None:
        why = excuses.waited_for_its_turn(history, task, begin, end)
    if why:
        found.excuse(why)
    return why is not None


def _first_push(history: History, task: int, occurrence: int) -> float:
    pushes = history.pushes.get(job_of(task, occurrence), ())
    return next((push.at for push in pushes if push.taken), FOREVER)


def overlapping(calms: Sequence[Calm], begin: float, end: float) -> Sequence[Calm]:
    first = bisect_left(calms, begin, key=lambda calm: calm.end)
    return calms[first : bisect_right(calms, end, key=lambda calm: calm.begin)]


# ------------------------------------------------------------------------------------------------------------ L2


def starts_often(history: History) -> Findings:
    found = Findings(history)
    for task in unlimited(history):
        starts = starts_of(history, task.id)
        for epoch in epochs(history)[task.id]:
            if epoch.version.pushable and epoch.version.kind == "interval":
                for calm in overlapping(windows_of(history, task), epoch.begin, epoch.end):
                    _no_long_gap(history, task, epoch, calm, starts, found)
    return found


def starts_of(history: History, task: int) -> list[float]:
    """Instants at which scheduled runs of it started."""
    return sorted(run.started.at for run in history.starts.get(task, ()) if run.started and run.kind == "scheduled")


def _no_long_gap(
    history: History, task: Task, epoch: Epoch, calm: Calm, starts: Sequence[float], found: Findings
) -> None:
    begin, end = max(calm.begin, _first_due(history, epoch)), min(calm.end, epoch.end)
    limit = epoch.version.longest + history.setup.tick + history.setup.queue_delay
    inside = starts[bisect_left(starts, begin) : bisect_right(starts, end)]
    for before, after in pairwise([begin, *inside, end] if begin < end else []):
        is_long = after - before > limit
        if (is_long or after != end) and found.judge(not is_long):
            _too_long(history, task, epoch, before, after, limit, found)


def _first_due(history: History, epoch: Epoch) -> float:
    """A task that never ran may have been given a first time."""
    version = epoch.version
    if version.last_run is None and version.next_run is not None:
        return max(epoch.begin, history.clocks.at(version.next_run, near=version.at))
    return epoch.begin


def _too_long(
    history: History, task: Task, epoch: Epoch, before: float, after: float, limit: float, found: Findings
) -> None:
    why = (
        excuses.was_ruled_out(history.by_task.get(task.id, ()), before, after)
        or excuses.failed_its_push(task, before, after)
        or excuses.waited_for_its_turn(history, task, before + epoch.version.longest, after)
        or excuses.the_machine_was_full(history, before, after)
    )
    if why:
        found.excuse(why)
        return
    found.blame(
        task.id,
        before,
        f"task {task.id}: no start from {history.seconds(before)} s to {history.seconds(after)} s, {after - before:.3f} s of"
        f" a calm; the limit is I + D + Q = {limit:g} s",
    )


# ------------------------------------------------------------------------------------------------------------ L3


def keeps_its_rate(history: History) -> Findings:
    """Only of tasks that nobody edits, with an interval that is a multiple of D, and a tolerance of a second or more.

    What is due in the last Q of a calm may start behind it, so that a calm counts without it.
    """
    found = Findings(history)
    calms = [Calm(calm.begin, calm.end - history.setup.queue_delay) for calm in windows(history)]
    for id_ in sorted(history.setup.steady & {task.id for task in unlimited(history)}):
        for calm in calms:
            for epoch in epochs(history)[id_]:
                if epoch.begin <= calm.begin and calm.end <= epoch.end and _is_rated(history, epoch, calm):
                    _often_enough(history, id_, epoch, calm, found)
    return found


def _is_rated(history: History, epoch: Epoch, calm: Calm) -> bool:
    every, version = epoch.version.every_ms, epoch.version
    fits = bool(every) and every % round(history.setup.tick * 1000) == 0 and version.tolerance_ms >= 1000
    return fits and version.pushable and calm.end - calm.begin >= OFTEN * every / 1000


def _kept(history: History, task: int, tolerance: float) -> list[float]:
    """Instants at which occurrences of it were due that started.

    Those, too, that were dropped as too early because the start before had waited for a worker for longer than T: then S1
    demands the drop, and no ticker could have had it otherwise.
    """
    kept, waited = [], 0.0
    for run in history.by_task.get(task, ()):
        if run.kind == "scheduled" and run.occurrence is not None:
            due = history.clocks.at(run.occurrence / 1_000_000, near=run.created.at)
            waited = run.started.at - due if run.started else waited
            if run.started or (run.reason == "too_early" and waited > tolerance):
                kept.append(due)
    return sorted(kept)


def _often_enough(history: History, task: int, epoch: Epoch, calm: Calm, found: Findings) -> None:
    least = RATE * (calm.end - calm.begin) / (epoch.version.every_ms / 1000)
    kept = _kept(history, task, epoch.version.tolerance_ms / 1000)
    count = bisect_right(kept, calm.end) - bisect_left(kept, calm.begin)
    if found.judge(count >= least) and not _excused(found, history, calm.begin, calm.end):
        found.blame(
            task,
            calm.begin,
            f"task {task}: {count} occurrences kept in the calm from {history.seconds(calm.begin)} s to {history.seconds(calm.end)} s;"
            f" at least {least:.1f} are promised",
        )
