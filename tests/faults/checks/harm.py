"""S11, S12 and H: what one task does to others, what must not be seen, and whether the history itself is whole."""

import mmap
from pathlib import Path
from urllib.parse import quote

from tests.faults.checks.findings import Findings
from tests.faults.checks.jobs import PLANNED, SCHEDULED
from tests.faults.checks.liveness import pushed_in_time, starts_often
from tests.faults.facts import History, Run

# ----------------------------------------------------------------------------------------------------------- S11


def harms_no_other(history: History) -> Findings:
    """Each record is of the task and the occurrence that its job names; and beside poison the others keep L1 and L2."""
    found = Findings(history)
    for run in history.runs.values():
        if run.job:
            wrong = _names_another(run)
            if found.judge(wrong is None):
                found.blame(
                    run.task, run.created.at, f"task {run.task}: run {run.id} was made by job {run.job}, {wrong}"
                )
    if history.setup.poison & history.tasks.keys():
        for other in (pushed_in_time(history), starts_often(history)):
            found.facts += other.facts
            found.broken += [(task, at, f"beside poison, {sentence}") for task, at, sentence in other.broken]
    return found


def _names_another(run: Run) -> str | None:
    if match := SCHEDULED.fullmatch(run.job):
        same = (int(match[1]), int(match[2])) == (run.task, run.occurrence)
        return None if same else "which is of another task or occurrence"
    if match := PLANNED.fullmatch(run.job):
        return None if int(match[1]) in {run.id, run.parent} else "which is of another run"
    return None


# ----------------------------------------------------------------------------------------------------------- S12


def keeps_secrets(history: History) -> Findings:
    """A secret is told by its number: a report that shows it would be one more leak."""
    found = Findings(history)
    if not history.setup.secrets:
        return found
    secrets = [sorted({secret.encode(), quote(secret, safe="").encode()}) for secret in history.setup.secrets]
    for path in history.logs:
        for number, forms in enumerate(secrets):
            line = _line_with(path, forms)
            if found.judge(line is None):
                found.blame(None, None, f"secret {number} stands in {path.relative_to(history.folder)}, line {line}")
    _texts(history, secrets, found)
    return found


def _texts(history: History, secrets: list[list[bytes]], found: Findings) -> None:
    for job, pushes in history.pushes.items():
        for push in pushes:
            _text(push.description, secrets, found, None, push.at, f"the description of job {job}")
    for run in history.runs.values():
        if run.reason or run.traceback:
            text = f"{run.reason}\n{run.traceback}"
            _text(text, secrets, found, run.task, run.created.at, f"the reason or the traceback of run {run.id}")


def _text(text: str, secrets: list[list[bytes]], found: Findings, task: int | None, at: float, where: str) -> None:
    content = text.encode("utf-8", "replace")
    shown = [number for number, forms in enumerate(secrets) if any(form in content for form in forms)]
    if found.judge(not shown):
        found.blame(task, at, f"task {task}: secret {shown[0]} stands in {where}")


def _line_with(path: Path, forms: list[bytes]) -> int | None:
    """The number of the first line that shows it; a log may be longer than the memory."""
    if path.stat().st_size == 0:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        places = [place for form in forms if (place := text.find(form)) >= 0]
        return text[: min(places)].count(b"\n") + 1 if places else None


# ------------------------------------------------------------------------------------------------------------- H


def is_whole(history: History) -> Findings:
    """Not a promise of the product: a history with holes proves nothing."""
    found = Findings(history)
    if found.judge(history.last is not None):
        found.blame(None, None, "there is no event 'last': the harness did not come to its end")
    for torn in history.torn:
        if found.judge(torn.is_last):
            found.blame(None, None, f"{torn.file}, line {torn.line}, is no JSON, and others follow it")
    for id_, one in history.witnessed.items():
        run = history.runs.get(id_)
        if found.judge(run is not None and run.started is not None and run.task == one.task):
            found.blame(
                one.task, one.first, f"task {one.task}: run {id_} was active, and no record says that it started"
            )
    _trail_is_whole(history, found)
    return found


def _trail_is_whole(history: History, found: Findings) -> None:
    for id_, run in history.runs.items():
        if found.judge(history.final_runs.get(id_) == (run.state, run.outcome)):
            found.blame(
                run.task, run.created.at, f"run {id_} is {run.state} by its trail, and by its row at the end it is not"
            )
    for id_, task in history.tasks.items():
        if found.judge(task.versions[0].op == "I" and (id_ in history.final_tasks) == (task.deleted is None)):
            found.blame(
                id_, task.versions[0].at, f"task {id_}: its trail does not begin with it, or does not end as its row"
            )
