"""The table of who caught what, as a page of the docs."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.mutants.mutant import Mutant

NOT_CAUGHT = "NOT CAUGHT"
NO_TRIAL = "NO TRIAL"

HEAD = """\
# Mutants: what catches a fault in our own code

Each row is one deliberate fault: a line of the product, changed so that it breaks a rule. The faults stand in
`tests/mutants/`. This command puts one after the other into a copy of the checkout and runs that copy's tests:

    python -m tests.mutants [--only NAME] [--jobs N] [--write docs/internals/mutants.md]

First come the tests that should know the rule, then the whole default suite. A test has caught a mutant when it
fails with it and passes without it; one that was not named for it has to fail twice. The exit code is 1 where a mutant
was not caught. A change that only breaks the import of a module or the syntax of a statement is no mutant, and is refused.

Symbols: I interval, T tolerance, B time box, g grace. A run that has not ended by B + g is killed then.

"""

_ROW = re.compile(r"^\| `([^`|]+)` \|.*\| [`*]*([^|]*?)[`*]* \|$", re.MULTILINE)


def page(mutants: Sequence[Mutant], caught: Mapping[str, str]) -> str:
    return f"{HEAD}{markdown(mutants, caught)}\n"


def markdown(mutants: Sequence[Mutant], caught: Mapping[str, str]) -> str:
    rows = [f"| `{m.name}` | {m.breaks} | {_cell(caught.get(m.name, NO_TRIAL))} |" for m in mutants]
    return "\n".join(["| mutant | the rule that it breaks | caught by |", "|---|---|---|", *rows])


def read(file: Path) -> dict[str, str]:
    """What a page says of each mutant; nothing where there is no page."""
    return dict(_ROW.findall(file.read_text(encoding="utf-8"))) if file.exists() else {}


def is_test(verdict: str) -> bool:
    return "::" in verdict


def _cell(verdict: str) -> str:
    return f"`{verdict.replace('|', '/')}`" if is_test(verdict) else f"**{verdict}**"
