"""Draws the outcomes of many tasks over time: a row for each task, the worst first, and a mark for each occurrence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ticker.db.steps import Steps, reads
from ticker.read import overview
from ticker.read import tasks as read_tasks
from ticker.read.entries import instant
from ticker.read.overview import OccurrenceStatus
from ticker.tasks.fields import Task
from ticker.tasks.filters import late_ms
from ticker.tasks.rows import query

SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
SPANS = {"10m": HOUR / 6, "1h": HOUR, "6h": 6 * HOUR, "24h": DAY, "7d": 7 * DAY, "30d": 30 * DAY}
MARKS = 60  # of a task; older ones are left out
SORTED = 300  # failing tasks that are sorted by their failures: to read more would take too long


@dataclass(frozen=True, slots=True)
class Grid:
    """The tasks of one page, and what became of their occurrences from `begin` to `end`, by task id.

    `begin` is that of the span, or just before the first mark. `end` is now, or just after the last mark. `next` is the
    cursor of the next page, or None. `looked_through` is that of `TaskPage`.
    """

    begin: datetime
    end: datetime
    tasks: Sequence[Task]
    marks: Mapping[int, Sequence[OccurrenceStatus]]
    next: int | None
    looked_through: int | None


@reads
def grid(*, span: str = "1h", after: int = 0, limit: int = 50, **wanted: Any) -> Steps[Grid]:
    """Returns one page of the tasks that match: failing tasks first, those with the most consecutive failures first.

    `wanted` has the filters of `list_tasks`. With a state, tasks are in the order of their ids. A cursor below 0 skips so
    many failing tasks; one over 0 is the id after which the other tasks go on. If more than 300 tasks fail, the worst 300
    come first, and then all tasks follow by id.
    """
    end = yield from instant.steps()
    worst: Sequence[Task] = ()
    if wanted.get("state") is None and -SORTED < after <= 0:
        most = min(limit, SORTED + after)
        worst = (yield from read_tasks.page_of_tasks.steps(sort="failures", after=-after, limit=most, **wanted)).tasks
    cursor, looked_through, others = after - limit, None, list[Task]()
    if len(worst) < limit:
        [crowd] = yield query("is_crowded", state="failing", most=SORTED, late_ms=late_ms())
        if wanted.get("state") is None and not crowd["is_crowded"]:  # the failing ones came first
            wanted["failures"] = 0
        page = yield from read_tasks.page_of_tasks.steps(after=max(after, 0), limit=limit - len(worst), **wanted)
        others = [task for task in page.tasks if task not in worst]
        cursor, looked_through = page.next, page.looked_through
    tasks = [*worst, *others]
    since = end - SPANS[span]
    marks = yield from overview.recent_outcomes.steps(tasks, limit=MARKS, since=since)
    drawn = [of_task for of_task in marks.values() if of_task]
    first = min((of_task[0].due for of_task in drawn), default=since)
    end = max([end, *(of_task[-1].due + SECOND for of_task in drawn)])  # a run may start before it is due
    return Grid(max(since, first - (end - first) / 50), end, tasks, marks, cursor, looked_through)
