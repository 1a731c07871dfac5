"""What all sources share: an entry of another scheduler, with the task that it would become, and the source itself."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import chain, count
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ticker.errors import BadInput
from ticker.read.explain import counted
from ticker.schedules.duration import SECOND, words

if TYPE_CHECKING:
    from ticker.importing.sources.samplers import Sampler

BY = "ticker import"
EXAMPLES = 3


class Verdict(StrEnum):
    """The plan's judgement of an entry."""

    SAME = "same"
    CHANGED = "changed"
    DECIDE = "decide"
    REFUSED = "refused"


def function_name(path: str) -> str:
    """Returns the name of a plain function in a task: `ticker worker --functions` offers `myapp.jobs.poll` as `myapp.jobs:poll`."""
    module, _, name = path.rpartition(".")
    return f"{module}:{name}" if module else path


def unique(names: Iterable[str]) -> list[str]:
    """Returns the names. If two are equal, the second becomes `name-2`."""
    taken: dict[str, None] = {}
    for name in names:
        candidates = chain([name], (f"{name}-{number}" for number in count(2)))
        taken[next(free for free in candidates if free not in taken)] = None
    return [*taken]


@dataclass(frozen=True, slots=True)
class Decision:
    """A question that the operator answers with `--decide ENTRY:FIELD=VALUE`: it has no default."""

    field: str
    question: str


@dataclass(frozen=True, slots=True)
class Found:
    """An entry of a source. Readers translate and write nothing; they import no package of the source.

    `wanted` holds arguments of `ticker.register`, of which the plan checks each. `next_there` is the entry's next time at its
    source. `times` returns the next times after a moment by the source's own rule, for the proof; None stands for a plain
    interval or a single time, whose proof is `next_there`. Sentences in `changes`, `refusals` and `notes` name no argument's
    value.
    """

    source: str
    id: str
    wanted: Mapping[str, Any]
    next_there: datetime | None = None
    enabled: bool = True
    times: Callable[[datetime, int], list[datetime]] | None = None
    changes: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()
    refusals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stored: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """Returns the worst verdict that is known before the proof."""
        if self.refusals:
            return Verdict.REFUSED
        if self.decisions:
            return Verdict.DECIDE
        return Verdict.CHANGED if self.changes else Verdict.SAME


@dataclass(slots=True)
class Draft:
    """What a reader knows of an entry so far."""

    wanted: dict[str, Any]
    changes: list[str] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def found(self, source: str, id_: str, next_there: datetime | None = None, **more: Any) -> Found:
        """Returns the entry. One that is refused asks for nothing."""
        return Found(
            source, id_, self.wanted, next_there, changes=tuple(self.changes), refusals=tuple(self.refusals),
            decisions=() if self.refusals else tuple(self.decisions), notes=tuple(self.notes), **more,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Where:
    """The command's options of a source. An empty text means that the option was not passed: our own settings apply."""

    text: str = ""  # --from
    zone: str = ""
    command_task: str = ""
    user_column: bool | None = None


class Waiting(NamedTuple):
    """How many jobs of each entry wait in RQ, which entries run, how many workers listen to their queues, and how long a run takes
    (0 if no run is known).

    Without a number of workers, nothing was counted.
    """

    waiting: Mapping[str, int] = {}
    running: Collection[str] = ()
    workers: int | None = None
    took: float = 0.0

    @property
    def ids(self) -> set[str]:
        return {*self.waiting, *self.running}

    def in_words(self) -> str:
        waits = counted(sum(self.waiting.values()), "job")
        return f"{waits} that the old scheduler has pushed wait in RQ, and {len(self.running)} run"

    def outlook(self) -> str:
        """Says how long the change-over takes, and when an entry runs next."""
        if self.workers is None:
            return ""
        if not self.ids:
            return "no job of the old scheduler waits or runs in RQ: the change-over takes seconds, and each entry runs at its next time"
        rounds = math.ceil((sum(self.waiting.values()) + len(self.running)) / max(self.workers, 1))
        about = f"about {words(max(1, round(rounds * self.took)) * SECOND)}" if self.took else "an unknown time"
        lasts = f"takes {about} with {counted(self.workers, 'worker')}"
        return (
            f"{self.in_words()}: --old-jobs wait {lasts if self.workers else 'needs a worker, and none listens'}, and these entries "
            "run again an interval after their last run there; --old-jobs remove waits only for those that run"
        )


class LeftOver(NamedTuple):
    """An entry that has left its source: its id there, its task's name, and what identifies its call and schedule."""

    id: str
    name: str
    identity: str
    is_parked: bool


def matched(founds: Iterable[Found], gone: Collection[LeftOver]) -> Iterator[tuple[Found, LeftOver | None]]:
    """Yields each entry with the one that was taken before, and is the same: with its id, or else with its call and schedule.

    Single times with equal calls are entries of their own. A parked entry is the same only by its id.
    """
    ids, identities = {one.id: one for one in gone}, {one.identity: one for one in gone if not one.is_parked}
    for one in founds:
        like = None if "at" in one.wanted else identities.get(one.stored.get("identity", ""))
        yield one, ids.get(one.id, like)


class Source:
    """A source that a module of `ticker.importing.sources` opens: each has a function `opened(where: Where) -> Source`.

    This one has nothing to move: its operator stops it. The entries of a text are registered instead (`take_over`).
    """

    name: ClassVar[str]

    def read(self, now: datetime) -> list[Found]:
        """Returns the entries, including those that are parked. `now` is Python's clock."""
        raise NotImplementedError

    def sampler(self, founds: Sequence[Found]) -> "Sampler":
        """Returns what samples the jobs that the scheduler enqueues. Raises BadInput if it keeps no record of them."""
        raise BadInput(
            "--shadow",
            None,
            "this source keeps no record of its runs to compare with; the plan shows the next times here",
        )

    def take_over(self, db: Any, founds: Sequence[Found]) -> list[str]:
        """Registers the entries of a text in the caller's transaction. Returns sentences to print."""
        raise NotImplementedError

    def held(self) -> AbstractContextManager[None]:
        """Keeps the scheduler from working within the block. Raises ConfigurationError if it is at work and cannot be held."""
        return nullcontext()

    def waiting(self, ids: Collection[str]) -> Waiting:
        """Counts the jobs that the scheduler has pushed, and that have not ended."""
        return Waiting()

    def remove_waiting(self, ids: Collection[str]) -> None:
        """Removes the jobs that wait."""

    def park(self, db: Any, founds: Sequence[Found]) -> list[str]:
        """Takes entries out of the source, all of them or none. Returns those that have changed since they were read.

        `db` is in the transaction that inserts their tasks.
        """
        return []

    def note(self, ids: Sequence[str]) -> None:
        """Notes that the tasks of parked entries are committed."""

    def parked(self, now: datetime) -> list[Found]:
        """Returns the entries that a crash has left parked, and that are not in the source again."""
        return []

    def taken(self) -> list[LeftOver]:
        """Returns all entries that have left the source."""
        return []

    def missing(self, db: Any, ids: Collection[str]) -> Collection[str]:
        """Returns those of the entries that cannot go back because they no longer exist. `db` is in the same transaction as for
        `unpark_at`.
        """
        return ()

    def unpark_at(self, db: Any, times: Mapping[str, datetime]) -> None:
        """Parks entries that were taken, with their next times. `db` is in the transaction that deletes their tasks."""

    def give_back(self, ids: Sequence[str]) -> None:
        """Puts parked entries back into the source."""

    def forget(self, ids: Sequence[str]) -> None:
        """Forgets entries that were taken."""

    def again(self, now: datetime) -> list[str]:
        """Returns the entries in the source that are the same as one that was taken.

        With 5,000 entries in rq-scheduler, this takes about a second, and a tenth of that if all were taken.
        """
        parked = {one.id for one in self.parked(now)}
        there = [one for one in self.read(now) if one.id not in parked]
        return [one.id for one, was in matched(there, self.taken()) if was]
