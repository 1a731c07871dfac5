"""Lists runs, drops and events, returns one run in full, stops a run, and counts drops."""

from typing import Any

from ticker.model import Outcome, Reason
from ticker.read import journal as read_journal
from ticker.read import tasks
from ticker.read.entries import JournalEntry
from ticker.read.journal import GROUPS, Drops, Page
from ticker.read.tasks import FullRun, RunRecord
from ticker.registration import stops
from ticker.web.api.fields import (
    AFTER_ID,
    BEFORE_KEY,
    ID,
    NAME,
    OWNER,
    TIME,
    WHOLE,
    body,
    doc,
    limit,
    of_key,
    one_of,
)
from ticker.web.api.operation import Operation
from ticker.web.api.schemas import object_of
from ticker.web.site import Site

MADE = 100  # pieces
GROUPED = 20


def list_runs(_: Site, db: Any, **wanted: Any) -> dict[str, Any]:
    """Lists runs and drops that have ended, newest first, including those of deleted tasks."""
    page = ended(db, **wanted, events=False)
    return {"runs": [line.run for line in page.lines], "next": following(page)}


def journal(_: Site, db: Any, **wanted: Any) -> dict[str, Any]:
    """Lists runs and drops with their explanations, together with the events of tasks, such as pauses and failures."""
    page = ended(db, **wanted, events=True)
    return {"lines": page.lines, "next": following(page)}


def read_run(_: Site, db: Any, run: int, *, limit: int, after: int = 0) -> FullRun:
    """Returns one run or drop in full: its output, its attempts, and the pieces that it made, page by page."""
    return tasks.get_run(db, run, pieces=limit, after=after)


def stop_run(here: Site, db: Any, run: int, *, by: str | None = None) -> RunRecord:
    """Asks to stop a run that has not ended. A tick carries out the request; the answer is the run as it is now.

    An active run ends as `interrupted`, with the reason `stopped by NAME`. A run that has not started is dropped.
    Answers 422 if the run has ended.
    """
    stops.stop(db, run, by=by or here.by)
    return tasks.get_run(db, run, pieces=1).run


def count_drops(_: Site, db: Any, **wanted: Any) -> dict[str, Any]:
    """Counts drops by a common property, largest groups first, with the newest drop of each as an example."""
    return {"drops": read_journal.drops(db, **wanted)}


def ended(
    db: Any, *, events: bool, limit: int, since: Any = None, until: Any = None, before: Any = None, **filters: Any
) -> Page:
    wanted = read_journal.select(db, **filters)
    wanted = wanted._replace(events=wanted.events and events)
    return read_journal.page(db, wanted, since=since, until=until, before=before, limit=limit)


def following(page: Page) -> str | None:
    return of_key(page.next) if page.next else None


RUN = {"id": doc("The run's id.", WHOLE, minimum=1)}
SINCE = doc("Entries from this time on: 09:00 (UTC), 2h (ago), or 2026-07-01T12:00:00Z.", TIME)
UNTIL = doc("Entries before this time, written as for `since`.", TIME)
FILTERS = {
    "task": doc("Entries of the task with this id.", ID),
    "owner": doc("Entries of all tasks that this owner has or had, as type:id.", OWNER),
    "owner_type": doc("Entries of all owners of this type.", NAME),
    "outcome": doc("Entries with this outcome.", one_of(*Outcome)),
    "reason": doc("Drops with this reason.", one_of(*Reason)),
    "since": SINCE, "until": UNTIL, "before": BEFORE_KEY, "limit": limit(),
}  # fmt: skip
COUNTED = {
    "by": doc("The property by which drops are grouped.", one_of(*GROUPS)),
    "since": SINCE,
    "until": UNTIL,
    "limit": limit(GROUPED),
}
STOP = body({"by": doc("The name of the user who stops it.", NAME)})
PIECES = {"after": AFTER_ID, "limit": limit(MADE, "The maximum number of pieces.")}

OPERATIONS = (
    Operation("GET", "/runs", list_runs, {200: object_of(runs=list[RunRecord], next=str | None)}, query=FILTERS),
    Operation("GET", "/runs/{id}", read_run, {200: FullRun}, RUN, PIECES),
    Operation("POST", "/runs/{id}/stop", stop_run, {202: RunRecord}, RUN, body=STOP, example={"by": "ann"}),
    Operation("GET", "/journal", journal, {200: object_of(lines=list[JournalEntry], next=str | None)}, query=FILTERS),
    Operation("GET", "/drops", count_drops, {200: object_of(drops=list[Drops])}, query=COUNTED),
)
