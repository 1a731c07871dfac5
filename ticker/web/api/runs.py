"""What ended and what happened: runs and drops, the journal with its events, one run in full, and drops counted."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ticker.errors import BadInput, UnknownRun, quoted
from ticker.model import LARGEST_ID, Outcome, Reason
from ticker.read import journal as read_journal
from ticker.read import tasks
from ticker.read.journal import GROUPS, Page
from ticker.web.api import bookmarks, schemas
from ticker.web.api.fields import Field, bookmark, id_in, instant, label, number, one_of, owner
from ticker.web.api.operation import Answer, Asked, Operation
from ticker.web.site import Site

PAGE, MOST = 50, 1000  # rows of one answer
MADE = 100  # pieces
GROUPED = 20


def list_runs(site: Site, asked: Asked) -> Answer:
    """Runs and drops as they ended, the newest first; those of deleted tasks, too."""
    found = ended(site, asked, events=False)
    runs = [site.run_data(line.run) for line in found.lines if line.run is not None]
    return Answer({"runs": runs, "next": following(found)})


def journal(site: Site, asked: Asked) -> Answer:
    """The same as lines, each with its numbers in words, and among them what happened to tasks: pauses, failing, success."""
    found = ended(site, asked, events=True)
    return Answer({"lines": [site.line_data(line) for line in found.lines], "next": following(found)})


def read_run(site: Site, asked: Asked) -> Answer:
    """One run or drop with all that is kept of it: what it printed, its attempts, the pieces that it made, page by page."""
    wanted = {"limit": MADE, "after": 0, **asked.query}
    with site.database.reading() as db:
        found = tasks.get_run(db, asked.of, pieces=wanted["limit"], after=wanted["after"])
    return Answer({**site.full_run_data(found), "next": None if found.next is None else str(found.next)})


def count_drops(site: Site, asked: Asked) -> Answer:
    """Drops, counted by what they have in common, the most first; the newest of each as an example."""
    with site.database.reading() as db:
        found = read_journal.drops(db, **{"limit": GROUPED, **asked.query})
    return Answer({"drops": site.drops_data(found)})


def ended(site: Site, asked: Asked, *, events: bool) -> Page:
    said: dict[str, Any] = dict(asked.query)
    page = {name: said.pop(name) for name in ("since", "before", "limit") if name in said}
    with site.database.reading() as db:
        wanted = read_journal.select(db, **said)
        wanted = replace(wanted, events=wanted.events and events)
        return read_journal.page(db, wanted, **{"limit": PAGE, **page})


def following(found: Page) -> str | None:
    return bookmarks.of_key(found.next) if found.next else None


def run_in(_: str, text: str) -> int:
    if (found := id_in(text)) is None:
        raise UnknownRun(f"there is no run {quoted(text)}; ids are whole numbers from 1")
    return found


def task_in(field: str, text: str) -> int:
    if (found := id_in(text)) is None:
        raise BadInput(
            field, text, "is no id of a task: ids are whole numbers from 1; /tasks?name= finds those of a name"
        )
    return found


def words(choices: Iterable[str]) -> list[str]:
    return [str(choice) for choice in choices]


SINCE = instant("since", "From then on.")
FILTERS = (
    Field("task", "Of the task with this id.", {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}, task_in),
    owner("owner", "Of all tasks that this owner has or had, as type:id."),
    label("owner_type", "Of all owners of this type."),
    one_of("outcome", "Those that ended so.", words(Outcome)),
    one_of("reason", "Drops for this reason.", words(Reason)),
    SINCE,
    bookmark("before", bookmarks.KEY, bookmarks.key_in),
    number("limit", "How many at most.", 1, MOST, PAGE),
)
RUN = Field("id", "The run's id.", {"type": "integer", "minimum": 1}, run_in)
DROPS = schemas.thing(drops=schemas.array(schemas.ref("Drops")))

OPERATIONS = (
    Operation("GET", "/runs", list_runs, {200: schemas.page("runs", schemas.ref("Run"))}, query=FILTERS),
    Operation("GET", "/runs/{id}", read_run, {200: schemas.ref("FullRun")}, RUN, query=(
        bookmark("after", bookmarks.TASK, bookmarks.of_task), number("limit", "How many pieces at most.", 1, MOST, MADE))),
    Operation("GET", "/journal", journal, {200: schemas.page("lines", schemas.ref("Line"))}, query=FILTERS),
    Operation("GET", "/drops", count_drops, {200: DROPS},
              query=(one_of("by", "What they have in common.", GROUPS), SINCE, number("limit", "How many at most.", 1, MOST, GROUPED))),
)  # fmt: skip
