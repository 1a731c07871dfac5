"""What can be done with tasks that are there: pause, resume, run, enable, disable, delete; with one, or with many."""

import json
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ticker import registration
from ticker.errors import BadInput, UnknownTask
from ticker.web.pages.screen import Form, as_id, change, id_of
from ticker.web.site import Site

BY = "the page"
MANY = 1000  # tasks of one request

Done = Callable[[Any, int, str], Any]
ACTIONS: dict[str, tuple[str, Done]] = {
    "pause": ("paused", lambda db, task, reason: registration.pause(db, task, by=BY, reason=reason)),
    "resume": ("resumed", lambda db, task, _: registration.resume(db, task)),
    "run": ("planned to run at the next tick", lambda db, task, _: registration.run_now(db, task)),
    "enable": ("enabled", lambda db, task, _: registration.edit(db, task, enabled=True)),
    "disable": ("disabled", lambda db, task, _: registration.edit(db, task, enabled=False)),
    "delete": ("deleted", lambda db, task, _: registration.unregister(db, task)),
}


@change
def do(here: Site, request: Request, form: Form) -> Response:
    """With the task of this address."""
    told, work = action(form)
    with here.database.writing() as db:
        if not work(db, id_of(request), reason(form)) and told == "deleted":
            raise UnknownTask(f"there is no task {id_of(request)}")
    root = request.scope.get("root_path", "")
    return said(f"task {id_of(request)}: {told}", f"{root}/tasks" if told == "deleted" else "")


@change
def do_with_many(here: Site, request: Request, form: Form) -> Response:
    """With the tasks that were marked, in one transaction; those that are gone meanwhile are passed over."""
    told, work = action(form)
    with here.database.writing() as db:
        count = sum(done(work, db, task, reason(form)) for task in sorted(marked(form)))
    return said(f"{count} task{'' if count == 1 else 's'}: {told}")


def done(work: Done, db: Any, task: int, why: str) -> int:
    """Of how many tasks it was done: not of one that is gone, nor of one that was so already."""
    try:
        found = work(db, task, why)
    except UnknownTask:
        return 0
    return len(found) if isinstance(found, list) else 1


def action(form: Form) -> tuple[str, Done]:
    name = form.get("action", [""])[0]
    if name not in ACTIONS:
        raise BadInput("action", name, f"is none of: {', '.join(ACTIONS)}")
    return ACTIONS[name]


def reason(form: Form) -> str:
    return form.get("reason", [""])[0]


def marked(form: Form) -> set[int]:
    texts = form.get("id", [])
    if not texts or len(texts) > MANY:
        raise BadInput("id", len(texts), f"tasks are marked; mark 1 to {MANY}")
    return {as_id("id", text) for text in texts}


def said(sentence: str, address: str = "") -> Response:
    """Nothing to show: the page's script says the sentence and looks anew, or goes to another address."""
    headers = {"HX-Redirect": address} if address else {"HX-Trigger": json.dumps({"said": sentence})}
    return Response(status_code=204, headers=headers)
