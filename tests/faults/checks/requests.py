"""L8: a run that was asked for waits for the run at work, and then starts."""

from collections.abc import Iterator

from tests.faults.checks import excuses
from tests.faults.checks.findings import Findings
from tests.faults.checks.keys import has_keys
from tests.faults.checks.liveness import overlapping, recovery, windows
from tests.faults.facts import FOREVER, Calm, History, Run


def starts_after_the_run_at_work(history: History) -> Findings:
    """A manual run is never dropped for a run at work, and at most one of a task is asked for while one is. In a calm, it starts
    within D + Q after nothing is at work, or as L7 says for the crowd. Pieces and limits wait for more."""
    found = Findings(history)
    for run in history.runs.values():
        if run.kind == "manual":
            if found.judge((run.outcome, run.reason) != ("dropped", "still_running")):  # what waits has the reason, too
                _blame(history, run, "was dropped because a run was at work", found)
            _joins(history, run, found)
            _starts(history, run, found)
    return found


def _joins(history: History, run: Run, found: Findings) -> None:
    """The client asks without arguments, so that a further request is the same one."""
    others = [
        other.id
        for other in history.by_task[run.task]
        if other.kind == "manual" and other.created < run.created and run.created.at < _settled(other)
    ]
    for active in _at_work(history, run):
        asked_meanwhile = [id_ for id_ in others if _asked_during(history.runs[id_], active)]
        if _asked_during(run, active) and found.judge(not asked_meanwhile):
            _blame(history, run, f"did not join run {asked_meanwhile[0]}, which waited for run {active.id}, too", found)


def _at_work(history: History, run: Run) -> Iterator[Run]:
    return (other for other in history.starts.get(run.task, ()) if other is not run)


def _asked_during(run: Run, active: Run) -> bool:
    """For certain: an instant of the database is not placed so exactly that it tells which of two neighbours was first."""
    assert active.started
    began, ended = active.started.at + excuses.CLOCK_ERROR, _freed(active) - excuses.CLOCK_ERROR
    return began < run.created.at < ended


def _freed(run: Run) -> float:
    return run.frees[0].at if run.frees else FOREVER


def _settled(run: Run) -> float:
    """When it no longer waited: it started, or was dropped."""
    moments = [moment.at for moment in (run.started, *run.frees) if moment]
    return min(moments, default=FOREVER)


def _starts(history: History, run: Run, found: Findings) -> None:
    task = history.tasks.get(run.task)
    if task is None or task.id in history.setup.poison or has_keys(task):
        return
    settled = _settled(run)
    for calm in overlapping(windows(history), run.created.at, run.created.at):
        ready = _ready(history, run, calm)
        until = min(settled, task.deleted.at if task.deleted else FOREVER, calm.end)
        was_allowed = all(version.at > until or version.pushable for version in task.versions if version.at >= ready)
        first = task.version_at(ready)
        if not (first and first.pushable and was_allowed and until > ready):
            continue
        limit, words = history.setup.tick + history.setup.queue_delay, "D + Q"
        if task.id in history.setup.crowd:  # its workers may be taken by jobs of suspects
            limit, words = recovery(history, calm), "that of L7"
        if found.judge(until - ready <= limit):
            if why := excuses.the_machine_was_full(history, ready, until):
                found.excuse(why)
                continue
            waited = f"did not start for {until - ready:.3f} s after nothing was at work"
            _blame(history, run, f"{waited}; the limit is {words} = {limit:g} s", found)


def _ready(history: History, run: Run, calm: Calm) -> float:
    """From when on no run of its task was at work."""
    ready = max(run.created.at, calm.begin)
    for active in _at_work(history, run):
        assert active.started
        if active.started.at <= ready + history.setup.tick + history.setup.queue_delay:
            ready = max(ready, _freed(active))
    return ready


def _blame(history: History, run: Run, what: str, found: Findings) -> None:
    at = run.created.at
    found.blame(run.task, at, f"task {run.task}: manual run {run.id}, asked for at {history.seconds(at)} s, {what}")
