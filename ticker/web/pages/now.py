"""Shows the current state: what runs next, what is late or failing, and what was dropped, each with its cause."""

from starlette.requests import Request

from ticker.read import health, journal
from ticker.read.lateness import late_since
from ticker.read.overview import Overview, last_failures, overview
from ticker.web.pages.screen import Shown, screen
from ticker.web.site import Site


@screen("now.html")
def now(here: Site, _: Request) -> Shown:
    with here.database.reading() as db:
        snapshot = overview(db)
        failures = last_failures(db, snapshot.failing)
        deleted = journal.deleted(db, [one.example.task_id for one in snapshot.drops if one.example])
    look = here.look()
    late = [(task, late_since(task, snapshot.now) or task.next_run, health.cause(task, look)) for task in snapshot.late]
    failing = [(task, failures.get(task.id)) for task in snapshot.failing]
    return {
        "overview": snapshot, "now": snapshot.now, "late": late, "failing": failing, "is_quiet": is_quiet(snapshot),
        "problems": look.problems, "deleted": deleted,
    }  # fmt: skip


def is_quiet(snapshot: Overview) -> bool:
    return not (snapshot.late or snapshot.failing or snapshot.drops)
