"""Defines a mutant: a deliberate fault in our own code."""

from dataclasses import dataclass
from pathlib import Path


class Rotten(Exception):
    """The text that a mutant replaces does not occur exactly once in its file: the code has changed since."""


@dataclass(frozen=True)
class Mutant:
    """One fault: in `file`, `before` becomes `after`. `breaks` is the broken rule; `expected` the tests that know it."""

    name: str
    file: str
    before: str
    after: str
    breaks: str
    expected: tuple[str, ...]

    def mutated(self, text: str) -> str:
        """Returns the file's text with the fault in it. Raises Rotten unless the fault fits in exactly one place."""
        if (found := text.count(self.before)) != 1:
            raise Rotten(f"{self.name}: its text occurs {found} times in {self.file}, not once")
        return text.replace(self.before, self.after)

    def apply(self, checkout: Path) -> None:
        file = checkout / self.file
        file.write_text(self.mutated(file.read_text(encoding="utf-8")), encoding="utf-8")
