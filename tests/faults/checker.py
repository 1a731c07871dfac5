"""Judges the history of a fault run, and nothing but the history: `python -m tests.faults.checker FOLDER`."""

import sys
from itertools import groupby
from pathlib import Path

from tests.faults.checks import INVARIANTS, check
from tests.faults.checks.findings import Violation
from tests.faults.history import load, worlds
from tests.faults.summary import summarise

__all__ = ["INVARIANTS", "Violation", "check", "load", "main", "summarise"]

SHOWN = 20  # violations of each promise


def main(arguments: list[str]) -> int:
    """Prints counts and violations; 1 if there are any, 2 where the folder holds no history."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tests.faults.checker FOLDER\n")
        return 2
    try:
        histories = worlds(Path(arguments[0]))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    count = 0
    for history in histories:  # one, unless a restore ended it and began another
        violations = check(history)
        sys.stdout.write(f"{summarise(history)}\n{told(violations)}")
        count += len(violations)
    sys.stdout.write(f"{count} violations\n")
    return 1 if count else 0


def told(violations: list[Violation]) -> str:
    """A line each, the first of each promise."""
    text = ""
    for name, group in groupby(violations, key=lambda violation: violation.invariant):
        same = list(group)
        text += "".join(f"VIOLATION {violation}\n" for violation in same[:SHOWN])
        if len(same) > SHOWN:
            text += f"          {name}: and {len(same) - SHOWN} more\n"
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
