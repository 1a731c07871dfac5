"""Writes the table of mutants, with the test that caught each of them, as a page of the docs."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.mutants.mutant import Mutant

NOT_CAUGHT = "NOT CAUGHT"
NO_TRIAL = "NO TRIAL"

HEAD = """\
# Mutants: what catches a fault in our own code

Each row is one deliberate fault: a change to our own code that breaks a rule. The faults are defined in `tests/mutants/`. This
command applies them one at a time to a copy of the checkout, and runs the tests of that copy:

    python -m tests.mutants [--only NAME] [--jobs N] [--write docs/internals/mutants.md]

The tests that the mutant lists run first. If they pass, the whole suite runs, including slow tests. A test has caught the mutant
if it fails with the mutant and passes without it. A test that the mutant does not list must fail twice. The exit code is 1 if a
mutant was not caught. A change that only breaks an import or the syntax of a statement is refused as a mutant.

Symbols: I interval, T tolerance, B time box, g grace. A run that has not ended by B + g is killed.

"""

_ROW = re.compile(r"^\| `([^`|]+)` \|.*\| [`*]*([^|]*?)[`*]* \|$", re.MULTILINE)


def page(mutants: Sequence[Mutant], caught: Mapping[str, str]) -> str:
    return f"{HEAD}{markdown(mutants, caught)}\n"


def markdown(mutants: Sequence[Mutant], caught: Mapping[str, str]) -> str:
    rows = [f"| `{m.name}` | {m.breaks} | {_cell(caught.get(m.name, NO_TRIAL))} |" for m in mutants]
    return "\n".join(["| mutant | the rule that it breaks | caught by |", "|---|---|---|", *rows])


def read(file: Path) -> dict[str, str]:
    """Returns the verdict on each mutant in a page; empty if the page does not exist."""
    return dict(_ROW.findall(file.read_text(encoding="utf-8"))) if file.exists() else {}


def is_test(verdict: str) -> bool:
    return "::" in verdict


def _cell(verdict: str) -> str:
    return f"`{verdict.replace('|', '/')}`" if is_test(verdict) else f"**{verdict}**"
