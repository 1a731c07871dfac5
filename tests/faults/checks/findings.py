"""What a check hands back: how many facts it judged, which of them break the promise, and which were excused."""

from collections import Counter
from dataclasses import dataclass, field

from tests.faults.facts import History


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken. `at` is in seconds since the run's setup; None where no instant can be named."""

    invariant: str
    task: int | None
    at: float | None
    sentence: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.sentence}"


@dataclass(slots=True)
class Findings:
    """Of one check. `excused` counts the exemptions that were used, by their names."""

    history: History
    facts: int = 0
    broken: list[tuple[int | None, float | None, str]] = field(default_factory=list)
    excused: Counter[str] = field(default_factory=Counter)

    def judge(self, holds: bool) -> bool:
        """Counts one fact; hands back whether it breaks the promise."""
        self.facts += 1
        return not holds

    def blame(self, task: int | None, at: float | None, sentence: str) -> None:
        """`at` as in the history; it is told, and sorted by, in seconds since the setup."""
        self.broken.append((task, None if at is None else self.history.seconds(at), sentence))

    def excuse(self, name: str) -> None:
        self.excused[name] += 1

    def violations(self, invariant: str) -> list[Violation]:
        return [Violation(invariant, *found) for found in sorted(self.broken, key=lambda found: found[1] or 0.0)]
