"""Provides the files and processes of docs/guides/recipes, for tests that use a recipe as its reader does."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.running import PATIENCE, ROOT

RECIPES = ROOT / "docs/guides/recipes"


def files(recipe: str) -> dict[str, str]:
    """Returns the files that a recipe shows, by their paths."""
    return shown(RECIPES / f"{recipe}.md")


def shown(page: Path) -> dict[str, str]:
    """Returns the files that a page shows, by their paths."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w*\n# (/?[\w./@-]+)(?::[^\n]*)?\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return {path.lstrip("/"): f"# {path}\n{body}" for path, body in blocks}


def write(folder: Path, **contents: str) -> None:
    for path, text in contents.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def needs(*libraries: str) -> None:
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")


def surroundings(folder: Path, variables: dict[str, str]) -> dict[str, str]:
    """Returns the environment of a command: it finds the commands installed here, and can import the folder's modules."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"} | variables


def run(folder: Path, *command: str, expected: int = 0, patience: float = PATIENCE, **variables: str) -> str:
    """Runs a command in that folder and returns its output."""
    environ = surroundings(folder, variables)
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=patience)
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout + (done.stderr if expected else "")


@contextmanager
def process(folder: Path, *command: str, file: int = 0, **variables: str) -> Iterator["subprocess.Popen[str]"]:
    """Runs a command until the block ends, then stops it with all processes that it started. It inherits the open file."""
    environ = surroundings(folder, variables)
    going = subprocess.Popen(
        command,
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
        pass_fds=[file] if file else [],
    )
    try:
        yield going
    finally:
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(going.pid, signal.SIGTERM)
        going.communicate(timeout=PATIENCE)
