"""What is going on now: what runs next, what is late, what fails, what was dropped; each with its cause."""

from starlette.requests import Request

from ticker.read import health, journal
from ticker.read.overview import Overview, last_failures, overview
from ticker.tasks.fields import Task
from ticker.web.pages.screen import Shown, screen
from ticker.web.site import Site


@screen("now.html")
def now(here: Site, _: Request) -> Shown:
    with here.database.reading() as db:
        found = overview(db)
        failures = last_failures(db, found.failing)
        deleted = journal.deleted(db, [one.example.task_id for one in found.drops if one.example])
    look = here.look()
    late = [(task, cause(task, look)) for task in found.late]
    failing = [(task, failures.get(task.id)) for task in found.failing]
    return {
        "found": found, "now": found.now, "late": late, "failing": failing, "is_quiet": is_quiet(found),
        "problems": look.problems, "deleted": deleted,
    }  # fmt: skip


def cause(task: Task, look: health.Health) -> str:
    """Why a late task was not pushed yet."""
    if task.push_errors:
        return f"not pushed: {task.push_error}"
    if not health.ticks(look.tickers, look.max_age_ms):
        return "no ticker ticks"
    left = look.tickers[0].last_report.get("left") or {}
    if task.queue in left:
        return f"the queue {task.queue} is full (TICKER_QUEUE_DEPTH), and {left[task.queue]} tasks wait for room"
    return "the tickers are behind"


def is_quiet(found: Overview) -> bool:
    return not (found.late or found.failing or found.drops)
