"""Reads the current state: which tasks run next, are late or are failing, and what was dropped and why.

The page's first screen, `ticker top` and the statistics of the HTTP API show this state.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import cast

from ticker.db.steps import Steps, reads
from ticker.errors import hosts, not_announced
from ticker.model import NO_FAILURE, Outcome
from ticker.read import journal
from ticker.read import tasks as read_tasks
from ticker.read.entries import instant
from ticker.read.journal import Drops
from ticker.read.tasks import RunRecord, TickerStatus
from ticker.tasks.fields import Task
from ticker.tasks.filters import ANY, late_ms
from ticker.tasks.rows import query

COUNTED_AT_MOST = 100_000
LATE_READ = 1_000
"""Late tasks of each sort that are read for a list of a few: 200,000 would take seconds on a busy machine."""
EXAMPLES = 3  # tasks and hosts of a cause
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of all tasks, of tasks in each state, and of running and planned runs. A task may be in several states.

    Counting stops at 100,000. Beyond that, `tasks` is PostgreSQL's estimate. `late`: due for longer than a tick (at
    least 30 s) and the task's tolerance, and not started, whether a job waits in its queue or not. `no_room`: due tasks
    with limits that the last tick has not pushed. `late` does not count them. Tasks outside their hours are not
    counted: no index finds them. `paused` includes the tasks that a pause of many is for, among the first 100,000.
    """

    tasks: int
    late: int
    no_room: int
    queue_full: int
    waits_for_its_turn: int
    failing: int
    paused: int
    inactive: int
    unknown_function: int
    waiting: int
    running: int
    planned: int

    def said(self, name: str) -> str:
        """Returns a count for people: "over 100,000" if counting stopped there, or an estimate such as "about
        2,000,000".
        """
        count: int = getattr(self, name)
        if name == "tasks" and count > COUNTED_AT_MOST + 1:
            return f"about {count:,}"
        has_stopped = count >= COUNTED_AT_MOST + (name == "tasks")
        return f"over {COUNTED_AT_MOST:,}" if has_stopped else f"{count:,}"


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause with which `tasks` fail that nobody has paused or disabled: the first line of an error, without what differs.

    `ids` are up to 100 of them, of which the first began to fail at `since`. Both `since` and `examples`, three of these
    tasks, may be missing if they were deleted. `hosts`: the three hosts that their last errors name most often, and how
    many name each.
    """

    cause: str
    tasks: int
    since: datetime | None
    ids: tuple[int, ...]
    examples: tuple[Task, ...]
    hosts: Mapping[str, int]

    @property
    def host(self) -> str:
        """Returns the host that the errors of all tasks name, if it is the only one, and the errors of all were read."""
        return "".join(self.hosts) if [*self.hosts.values()] == [self.tasks] else ""

    @property
    def errors(self) -> str:
        """Says which errors name `hosts`: those of all tasks, or those of `ids`."""
        return "the last errors" + (f" of {len(self.ids)} of them" if self.tasks > len(self.ids) else "")


@dataclass(frozen=True, slots=True)
class Overview:
    """The state at `now`, by the database's clock. `drops` are those of the last hour, counted by reason. `failures` has
    the last failure of each failing task in the lists, by the task's id. `late` has the latest of the first thousand.
    `causes` are the most frequent ones.
    `per_minute` is how many runs ended per minute in the ten minutes that were counted last, if any were.
    """

    now: datetime
    counts: Counts
    next: list[Task]
    late: list[Task]
    failing: list[Task]
    causes: list[Cause]
    failures: Mapping[int, RunRecord]
    per_minute: float | None
    running: list[RunRecord]
    drops: list[Drops]
    tickers: list[TickerStatus]


@dataclass(frozen=True, slots=True)
class OccurrenceStatus:
    """What became of an occurrence: its state (`pushed`, `running`, `ended`), and its outcome and reason once it has
    ended.
    """

    run_id: int
    state: str
    outcome: Outcome | None
    reason: str
    due: datetime


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a worker has announced.

    One job may carry up to `batch` of its tasks, of which up to `concurrency` run at the same time. If the function is
    `repeatable`, an interrupted run is attempted again.
    """

    name: str
    batch: int
    concurrency: int
    repeatable: bool
    queues: tuple[str, ...]
    announced_at: datetime


@reads
def overview(*, limit: int = 10) -> Steps[Overview]:
    """Reads the current state, with up to `limit` entries in each list. Nothing is written or locked."""
    now, most = (yield from instant.steps()), read_tasks.limited(limit)
    total = yield from counts.steps()
    coming = yield from read_tasks.found("next_tasks", late_ms=late_ms(), limit=most)
    late = yield from read_tasks.found(
        "late_tasks", **ANY, late_ms=late_ms(), most=max(most, LATE_READ), skipped=0, limit=most
    )
    failing = yield from read_tasks.found("failing_tasks", **ANY, skipped=0, limit=most)
    grouped = yield from causes.steps(limit=most)
    named = {task.id: task for task in (*failing, *(task for one in grouped for task in one.examples))}
    failures = yield from last_ends.steps(task for task in named.values() if task.last_outcome not in NO_FAILURE)
    running = yield from read_tasks.runs_by_id((yield query("running_runs", limit=most)))
    dropped = yield from journal.drops.steps(since=now - HOUR, limit=most)
    tickers = yield from read_tasks.tickers.steps()
    pace = yield query("pace")
    return Overview(
        now,
        total,
        coming,
        late,
        failing,
        grouped,
        failures,
        pace[0]["pace"] if pace else None,
        running,
        dropped,
        tickers,
    )


@reads
def counts() -> Steps[Counts]:
    [row] = yield query("counts", late_ms=late_ms(), most=COUNTED_AT_MOST)
    return Counts(**row)


@reads
def causes(*, limit: int = 10) -> Steps[list[Cause]]:
    """Returns the causes with which most tasks fail. Tasks that fail without a recorded cause are left out."""
    rows = yield query("failing_causes", most=COUNTED_AT_MOST, limit=limit)
    found = {
        task.id: task for task in (yield from tasks_by_id.steps(id_ for row in rows for id_ in row["ids"][:EXAMPLES]))
    }
    read = yield query("last_reasons", ids=[id_ for row in rows for id_ in row["ids"]])
    named = {row["id"]: hosts(row["reason"] or "") for row in read}
    return [
        Cause(
            **{**row, "ids": tuple(row["ids"])},
            examples=tuple(found[id_] for id_ in row["ids"][:EXAMPLES] if id_ in found),
            hosts=dict(
                Counter(host for id_ in row["ids"] for host in sorted(named.get(id_, ()))).most_common(EXAMPLES)
            ),
        )
        for row in rows
    ]


@reads
def tasks_by_id(ids: Iterable[int]) -> Steps[list[Task]]:
    """Returns those of these tasks that exist, by id."""
    wanted = [*ids]
    return (yield from read_tasks.found("tasks_by_id", ids=wanted)) if wanted else []


@reads
def late() -> Steps[int]:
    """Counts the late tasks."""
    return int((yield query("late", late_ms=late_ms(), most=COUNTED_AT_MOST))[0]["late"])


@reads
def waits_too_long_for_room() -> Steps[dict[str, int]]:
    """Counts the tasks that a limit has kept waiting for over an interval, by limit."""
    rows = yield query("limits_held_too_long", most=COUNTED_AT_MOST)
    return {row["key"]: row["tasks"] for row in rows}


@reads
def running() -> Steps[int]:
    """Counts the runs at work."""
    return int((yield query("running", most=COUNTED_AT_MOST))[0]["running"])


@reads
def recent_outcomes(
    tasks: Iterable[Task], *, limit: int = 20, since: datetime | None = None
) -> Steps[dict[int, list[OccurrenceStatus]]]:
    """Returns what became of each task's last recorded occurrences, which were due from `since` on, oldest first, by task
    id.
    """
    by_task: dict[int, list[OccurrenceStatus]] = {task.id: [] for task in tasks}
    for row in (yield query("last_occurrences_of", ids=list(by_task), limit=limit, since=since)):
        outcome = Outcome(row["outcome"]) if row["outcome"] else None
        by_task[row["task_id"]].insert(0, OccurrenceStatus(row["id"], row["state"], outcome, row["reason"], row["due"]))
    return by_task


@reads
def last_ends(tasks: Iterable[Task]) -> Steps[dict[int, RunRecord]]:
    """Returns the run that ended last of each task, or the occurrence lost before its start, by task id. It may have
    been pruned.
    """
    if not (ids := [task.id for task in tasks]):
        return {}
    rows = yield query("last_ends", ids=ids)
    task_ids = {row["run_id"]: row["task_id"] for row in rows if row["run_id"]}
    return {task_ids[run.id]: run for run in (yield from read_tasks.runs_by_id({"id": id_} for id_ in task_ids))}


@reads
def functions() -> Steps[list[Function]]:
    """Returns the announced functions, by name."""
    return [Function(**{**row, "queues": tuple(row["queues"])}) for row in (yield query("functions"))]


@reads
def warned(task: Task) -> Steps[Task]:
    """Returns the task, with a warning if workers have announced functions, but not the task's."""
    sentence = not_announced("function", task.function, [one.name for one in (yield from functions.steps())])
    return replace(task, warnings=tuple(dict.fromkeys((*task.warnings, sentence)))) if sentence else task


@reads
def server_version() -> Steps[str]:
    """Returns PostgreSQL's version."""
    [row] = yield query("server_version")
    return cast(str, row["version"])


@reads
def waiting_queues(queues: Iterable[str]) -> Steps[list[str]]:
    """Returns the given queues in which jobs of tasks are waiting, by name."""
    names = [*queues]
    return [row["queue"] for row in (yield query("waiting_queues", queues=names))] if names else []
