"""Shows the list of tasks, filtered and divided into pages by its address, with the recent outcomes of each task."""

from datetime import datetime

from starlette.requests import Request

from ticker.model import TASK_STATES
from ticker.read import entries, overview
from ticker.read import tasks as read_tasks
from ticker.read.lateness import late_since
from ticker.tasks.fields import Task
from ticker.web.api import bookmarks
from ticker.web.pages.screen import ROWS, Shown, asked, paging, screen
from ticker.web.site import Site

FILTERS = ("search", "state", "owner", "owner_type", "function", "queue", "group", "submitter")


@screen("tasks.html")
def tasks(here: Site, request: Request) -> Shown:
    wanted = {name: asked(request, name) for name in FILTERS}
    with here.database.reading() as db:
        page = read_tasks.page_of_tasks(db, **wanted, after=asked(request, "after", bookmarks.of_task) or 0, limit=ROWS)
        strips = overview.recent_outcomes(db, page.tasks)
        now = entries.instant(db)
    return {
        "tasks": page.tasks, "strips": strips, "now": now, "overdue": {task.id: overdue(task, now) for task in page.tasks},
        "looked_through": page.looked_through, "wanted": wanted, "states": TASK_STATES,
    } | paging(request, "after", page.next)  # fmt: skip


def overdue(task: Task, now: datetime) -> str:
    """Returns `late`, or `limited` if the task waits for room under its limits. Otherwise returns an empty text."""
    return "late" if late_since(task, now) is not None else "limited" if task.is_held_back else ""
