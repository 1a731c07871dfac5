"""Moves entries of another scheduler to tasks, and back, so that each is scheduled in at most one place at any time.

An entry moves in three steps, each of which may be the last one before a crash:

1. Its task is inserted, and the entry leaves its source, in one transaction of PostgreSQL that is not yet committed. A crash
   leaves the entry parked: nothing schedules it until the next call, which inserts the task.
2. The transaction commits. A crash leaves the entry parked, although its task exists. The next call finds the task.
3. The source notes that the entry is taken.

`give_back` makes the same steps in the reverse order.
"""

import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from ticker import clock
from ticker.db import sql
from ticker.errors import BadInput, TickerError, escaped
from ticker.importing import plan
from ticker.importing.found import BY, EXAMPLES, Found, LeftOver, Source, matched
from ticker.read import entries
from ticker.tasks import many, operations

AT_ONCE = 500
LOOK_EVERY = 1.0  # seconds between two looks at the jobs that the old scheduler has pushed
ATTEMPTS = 5  # to take entries that an application changes meanwhile
TAKEN_FROM = "taken_from"
OLD_JOBS = ("wait", "remove")
GONE = "its task no longer exists: it had its last run, or was deleted"
NOT_THERE = "it no longer exists in its source, so its task stays"

T = TypeVar("T")

Chosen = Callable[[list[Found]], list[Found]]
"""Returns the entries of a source that are to be taken over, with the operator's decisions in their fields."""


@dataclass(slots=True)
class Moved:
    """The ids of the entries that a call has moved, and the reasons why it has left the others."""

    moved: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def take_over(
    source: Source, db: Any, schema: str, chosen: Chosen, *, old_jobs: str = "", tell: Callable[[str], None] = print
) -> Moved:
    """Takes entries over. `db` is a connection outside a transaction.

    An entry whose jobs wait or run in RQ is taken when they have ended. Until then, its scheduler pushes nothing. The first run
    of its task is not before the last one there plus its interval.

    Completes an interrupted call. Raises BadInput if jobs wait, and `old_jobs` does not say whether to `wait` for them or to
    `remove` them: nothing is written then.
    """
    told = ""
    with source.held():
        taking = _Taking(source, db, schema)
        pending = {one.id for one in chosen(source.read(entries.instant(db)))}
        waiting = source.waiting(pending)
        if waiting.waiting and old_jobs not in OLD_JOBS:
            raise BadInput("--old-jobs", None, f"is missing: {waiting.in_words()}; pass wait or remove")
        taking.complete(chosen(source.parked(entries.instant(db))))
        if old_jobs == "remove":
            source.remove_waiting(waiting.waiting)
        while pending := pending - taking.settled:
            waiting = source.waiting(pending)
            if free := pending - waiting.ids:
                taking.take(free, [one for one in chosen(source.read(entries.instant(db))) if one.id in free])
            if waiting.ids:
                if told != (told := waiting.in_words()):
                    tell(f"waiting: {told}")
                threading.Event().wait(LOOK_EVERY)
    return taking.result


class _Taking:
    """One call of `take_over`."""

    def __init__(self, source: Source, db: Any, schema: str) -> None:
        self.source, self.db, self.execute, self.result = source, db, sql.on(db, schema), Moved()
        self.tries = Counter[str]()
        self.gone = source.taken()

    @property
    def settled(self) -> set[str]:
        return {*self.result.moved, *self.result.left}

    def complete(self, parked: Sequence[Found]) -> None:
        for part in _parts(self.named(parked)):
            with self.db.transaction():
                ours = self.insert(part)
            self.note(ours)

    def take(self, ids: set[str], founds: Sequence[Found]) -> None:
        """Takes these entries, 500 in a transaction. Leaves those that an application changes meanwhile for the next call."""
        self.leave(ids - {one.id for one in founds}, "it is no longer in the source, or no longer matches the plan")
        for part in _parts(self.named(founds)):
            try:
                with self.db.transaction():
                    ours = self.insert(part)
                    if changed := self.source.park(self.db, ours):
                        raise _Changed
            except _Changed:
                self.tries.update(changed)
                self.leave(
                    [id_ for id_ in changed if self.tries[id_] == ATTEMPTS],
                    "it changed at each attempt; try again later",
                )
            else:
                self.note(ours)

    def named(self, founds: Iterable[Found]) -> list[Found]:
        """Gives entries that were taken or parked before the names of the tasks that they became."""
        return [
            replace(one, wanted={**one.wanted, "name": was.name}) if was else one
            for one, was in matched(founds, self.gone)
        ]

    def insert(self, part: Sequence[Found]) -> list[Found]:
        """Inserts the tasks that do not exist. Returns the entries whose tasks exist now."""
        known = {row["name"]: row for row in self.execute("tasks_taken", names=[one.wanted["name"] for one in part])}
        new = {name: one for one in part if (name := one.wanted["name"]) not in known}.values()
        self.execute("mark_taken", source=self.source.name)
        many.register_many(self.db, [task_of(one, self.source.name) for one in new], by=BY)
        for one in new:
            if not one.enabled:
                operations.edit(self.db, one.wanted["name"], enabled=False, by=BY)
        foreign = {name for name, row in known.items() if row["source"] != self.source.name}
        self.leave(
            [one.id for one in part if one.wanted["name"] in foreign],
            "a task with this name exists, and was not taken over from this source; decide another name",
        )
        return [one for one in part if one.wanted["name"] not in foreign]

    def note(self, ours: Sequence[Found]) -> None:
        ids = [one.id for one in ours]
        self.source.note(ids)
        self.result.moved += ids

    def leave(self, ids: Iterable[str], why: str) -> None:
        self.result.left |= dict.fromkeys(ids, why)


class _Changed(Exception):
    """Entries have changed since they were read. Rolls the transaction back."""


def task_of(found: Found, source: str) -> dict[str, Any]:
    """Returns the task that an entry becomes, as `register_many` takes it."""
    taken_from = {"source": source, "id": found.id, **found.stored.get(TAKEN_FROM, {})}
    return {**found.wanted, "metadata": {**(found.wanted.get("metadata") or {}), TAKEN_FROM: taken_from}}


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE))


def give_back(source: Source, db: Any, schema: str, only: str = "*") -> Moved:
    """Gives entries back whose ids match and whose tasks run, and deletes these tasks. `db` is a connection outside a transaction.

    The next time there is the next one here, but for an interval not before the last start here plus the interval. Completes what
    a crash has left.
    """
    execute, result = sql.on(db, schema), Moved()
    with source.held():
        for part in _parts(_matching(source, only)):
            with db.transaction():
                known = {row["name"]: row for row in execute("tasks_taken", names=[one.name for one in part])}
                missing = source.missing(db, [one.id for one in part])
                whys = {one.id: _why_not(one, known.get(one.name), source.name, missing) for one in part}
                going = {one.name: one for one in part if not whys[one.id]}
                tasks = [row["id"] for name, row in known.items() if name in going and row["source"] == source.name]
                due = {row["name"]: row["due"] for row in execute("give_back_tasks", ids=tasks, by=BY)}
                source.unpark_at(db, {going[name].id: _whole_second(at) for name, at in due.items()})
            ids = [one.id for one in going.values()]
            source.give_back(ids)
            result.moved += ids
            result.left |= {id_: why for id_, why in whys.items() if why}
            if same := [id_ for id_, why in whys.items() if not why and id_ not in ids]:
                source.forget(same)
        if not source.taken():
            execute("unmark_taken", source=source.name)
    return result


def forget_old(source: Source, db: Any, schema: str, only: str = "*") -> list[str]:
    """Forgets the entries that were taken over and match, and their old jobs. They cannot go back, and no warning names them."""
    gone = _matching(source, only)
    if parked := [one.id for one in gone if one.is_parked]:
        raise BadInput(
            "--forget-old", None,
            f"would lose entries that an interrupted import has left parked ({_first(parked)}); first complete it: --take-over",
        )  # fmt: skip
    ids = [one.id for one in gone]
    source.forget(ids)
    if not source.taken():
        sql.on(db, schema)("unmark_taken", source=source.name)
    return ids


def _matching(source: Source, only: str) -> list[LeftOver]:
    return [one for one in source.taken() if fnmatchcase(one.id, only)]


def _why_not(entry: LeftOver, row: Mapping[str, Any] | None, source: str, missing: Collection[str]) -> str:
    if row is None or row["source"] != source:
        why = GONE if row is None else "its task was not taken over from this source"
        return "" if entry.is_parked else why
    if entry.id in missing:
        return NOT_THERE
    if row["is_done"]:
        return "rq-ticker has already pushed its last run"
    return "" if row["runs"] else "its task is disabled or paused, which its source cannot express; enable or resume it"


def _whole_second(at: datetime) -> datetime:
    return datetime.fromtimestamp(math.ceil(at.timestamp()), UTC)


def warnings(names: Iterable[str]) -> Iterator[str]:
    """Yields the warnings about these sources. Our own settings say where they are."""
    for name in names:
        try:
            yield from remains(plan.Options(name).opened(), clock.python_utc())
        except TickerError as error:  # such as a right that the user of Redis has not: the ticker works without
            yield f"cannot check whether {name} schedules entries again that were taken over: {error}"


def remains(source: Source, now: datetime) -> Iterator[str]:
    """Yields a warning if entries that were taken are in the source again, and if a crash has left some parked."""
    command = f"ticker import {source.name} --take-over"
    if again := source.again(now):
        yield f"{source.name} schedules again what became tasks ({_first(again)}), as after a deployment, and both run; plan again, then: {command}"
    if parked := [one.id for one in source.taken() if one.is_parked]:
        yield f"an import was interrupted, and left entries of {source.name} parked ({_first(parked)}); call again: {command}"


def _first(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - EXAMPLES} more" if len(ids) > EXAMPLES else ""
    return f"{', '.join(map(escaped, ids[:EXAMPLES]))}{more}"
