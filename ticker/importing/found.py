"""The result of a source's reader: one entry of another scheduler, with the task that it would become."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol


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


TTLS = ("result_ttl", "ttl", "failure_ttl")
USUAL_RESULT_TTL = 500  # seconds, RQ's own


def notes_of_ttls(ttls: Mapping[str, int | None]) -> Iterator[str]:
    """Yields a note for each of RQ's times to live that is set, by its name, in seconds."""
    for name, seconds in ttls.items():
        if seconds and seconds > 0 and (name, seconds) != ("result_ttl", USUAL_RESULT_TTL):
            yield f"{name} of {seconds} s is left out: Redis keeps no result of a task"


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


@dataclass(frozen=True, slots=True)
class Where:
    """The command's options of a source. An empty text means that the option was not passed: our own settings apply."""

    text: str = ""  # --from
    zone: str = ""
    command_task: str = ""
    user_column: bool | None = None


class Source(Protocol):
    """A source that a module of `ticker.importing.sources` opens: each has a function `opened(where: Where) -> Source`.

    `ticker.importing.take_over.Source` says what can be taken over, too. A source whose entries are text has a method
    `take_over(db, founds)` instead, which registers them in the caller's transaction and returns sentences to print.
    """

    def read(self, now: datetime) -> list[Found]:
        """Returns the entries. `now` is Python's clock."""
