"""Applies actions to one or many tasks: pause, resume, run, enable, disable and delete."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ticker.errors import BadInput, UnknownTask
from ticker.read import entries
from ticker.read.explain import counted
from ticker.registration import operations
from ticker.schedules import once
from ticker.web.pages.screen import Form, as_id, change, id_of
from ticker.web.site import Site

BY = "the page"
MANY = 1000  # tasks of one request


@dataclass(frozen=True, slots=True)
class Action:
    """`work` acts on a task. `result` describes what was done. `leaves`: the task's own screen no longer exists afterwards."""

    result: str
    work: Callable[[Any, int, Form], Any]
    leaves: bool = False


def pause(db: Any, task: int, form: Form) -> Any:
    """Pauses a task, with the reason and the end (a time or a duration) given in the form."""
    reason, until = (form.get(name, [""])[0].strip() for name in ("reason", "until"))
    end = once.instant("until", until, lambda: entries.instant(db)) if until else None
    return operations.pause(db, task, by=BY, reason=reason, until=end)


def delete(db: Any, task: int, _: Form) -> Any:
    if not (deleted := operations.unregister(db, task, by=BY)):
        raise UnknownTask(f"there is no task {task}")
    return deleted


ACTIONS: Mapping[str, Action] = {
    "pause": Action("paused", pause),
    "resume": Action("resumed", lambda db, task, _: operations.resume(db, task, by=BY)),
    "run": Action(
        "planned to run at the next tick, or after the run at work", lambda db, task, _: operations.run_now(db, task)
    ),
    "enable": Action("enabled", lambda db, task, _: operations.edit(db, task, enabled=True, by=BY)),
    "disable": Action("disabled", lambda db, task, _: operations.edit(db, task, enabled=False, by=BY)),
    "delete": Action("deleted", delete, leaves=True),
}


@change
def do(here: Site, request: Request, form: Form) -> Response:
    """Applies the action to the task at this address."""
    wanted, task = action(form), id_of(request)
    with here.database.writing() as db:
        wanted.work(db, task, form)
    return report(f"task {task}: {wanted.result}", f"{here.root}/tasks" if wanted.leaves else "")


@change
def do_with_many(here: Site, request: Request, form: Form) -> Response:
    """Applies the action to the marked tasks in one transaction. Skips tasks that were deleted meanwhile or cannot run."""
    wanted, refused = action(form), list[str]()
    with here.database.writing() as db:
        count = sum(done(wanted, db, task, form, refused) for task in sorted(marked(form)))
    such = "" if len(refused) == 1 else ", for example"
    skipped = f"; {len(refused)} skipped{such}: {refused[0]}" if refused else ""
    return report(f"{counted(count, 'task')}: {wanted.result}{skipped}")


def done(wanted: Action, db: Any, task: int, form: Form, refused: list[str]) -> int:
    """Returns how many tasks changed: 0 if the task is gone or unchanged, or refuses the action. Adds a refusal to `refused`."""
    try:
        changed = wanted.work(db, task, form)
    except UnknownTask:
        return 0
    except BadInput as error:
        if error.field != "task":
            raise
        refused.append(f"{error.value} {error.problem}")
        return 0
    return len(changed) if isinstance(changed, list) else 1


def action(form: Form) -> Action:
    name = form.get("action", [""])[0]
    if name not in ACTIONS:
        raise BadInput("action", name, f"is not one of: {', '.join(ACTIONS)}")
    return ACTIONS[name]


def marked(form: Form) -> set[int]:
    texts = form.get("id", [])
    if not texts or len(texts) > MANY:
        raise BadInput("id", len(texts), f"tasks are marked; mark 1 to {MANY}")
    return {as_id("id", text) for text in texts}


def report(sentence: str, address: str = "") -> Response:
    """Answers without content. The page's script shows the sentence and refreshes, or opens an address and shows it there."""
    headers = {"HX-Trigger": json.dumps({"said_there" if address else "said": sentence})}
    return Response(status_code=204, headers=headers | ({"HX-Redirect": address} if address else {}))
