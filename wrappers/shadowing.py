"""Finds modules of an application that have the same names as our packages. Imports none of ours, which they may hide."""

import os
import sys
from pathlib import Path

NAMES = ("ticker", "wrappers")


def shadowing(folder: Path) -> str:
    """Returns a warning if a module in this folder has the name of one of our packages, else an empty string.

    `Path()` is the current folder. A folder that was removed counts as empty.
    """
    if all((folder / name / "py.typed").exists() for name in NAMES):
        return ""  # a checkout of rq-ticker itself
    for name in NAMES:
        for file in (folder / name / "__init__.py", folder / f"{name}.py"):  # in the order in which Python looks
            if file.is_file():
                return f"{file.absolute()} has the same name as rq-ticker's package {name}, and Python can import only one of them; rename the file"
    return ""


def refuse(folder: Path) -> None:
    """Ends the process with the warning of `shadowing`, if there is one."""
    if sentence := shadowing(folder):
        print(f"error: {ascii(sentence)[1:-1]}", file=sys.stderr)  # noqa: T201 - click may not be imported yet
        sys.exit(os.EX_CONFIG)
