"""Tries one mutant: applies the fault to a copy of the checkout, and finds the first test of that copy that fails."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, ignore_patterns

from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parent.parent.parent
LEFT_OUT = (
    ".venv",
    ".git",
    ".*_cache",
    ".hypothesis",
    "__pycache__",
    "*.egg-info",
    "build",
    "dist",
    "test_catalogue.py",
)
SUITE = "not long and not netns and not browser and not pooler and not sources"  # the slow ones, too
QUIET = ("-n", "0", "-q", "-p", "no:cacheprovider", "--timeout", "300", "-m", SUITE)
LOADED_BY = {".sql": "ticker.db.sql", ".lua": "ticker.queue.bulk"}
LONGEST = 1800  # seconds, for the tests of all mutants on a loaded machine

_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
_NOT_SQL = re.compile(
    r"^E +(psycopg\.errors\.(?:SyntaxError|Undefined\w+|Ambiguous\w+|DatatypeMismatch|GroupingError))", re.MULTILINE
)


class Unfit(Exception):
    """A trial is not possible: the tests fail without the mutant, or the mutated code does not load."""


@dataclass(frozen=True)
class Failure:
    """The first test that failed, by its pytest id, and what pytest printed."""

    test: str
    output: str


@contextmanager
def checkout(source: Path = ROOT) -> Iterator[Path]:
    """Makes a copy without environments, histories and caches, which exists until the block ends."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder).resolve() / "copy"
        copytree(source, copy, ignore=ignore_patterns(*LEFT_OUT))
        yield copy


def check_baseline(copy: Path, expected: Sequence[str]) -> None:
    """Raises Unfit if the tests that should catch something fail without a mutant."""
    if failure := first_failure(copy, *expected):
        raise Unfit(f"without any mutant {failure.test} fails\n{failure.output[-3000:]}")


def caught_by(mutant: Mutant, source: Path) -> str | None:
    """Returns the first of the mutant's tests that fails with it, or None. Raises Unfit."""
    with checkout(source) as copy:
        mutant.apply(copy)
        check_import(mutant, copy)
        failure = first_failure(copy, *mutant.expected)
        return runnable(failure).test if failure else None


def runnable(failure: Failure) -> Failure:
    """Returns the failure. Raises Unfit if PostgreSQL could not even run the statement."""
    if found := _NOT_SQL.search(failure.output):
        raise Unfit(f"no statement that PostgreSQL runs: {found[1]} in {failure.test}")
    return failure


def first_failure(copy: Path, *arguments: str) -> Failure | None:
    """Runs the copy's tests until one fails, and returns that failure, or None. Raises Unfit if pytest itself failed."""
    done = run(copy, "-m", "pytest", "-x", *QUIET, *arguments, cwd=copy)
    if done.returncode == 0:
        return None
    found = _FAILED.search(done.stdout)
    if done.returncode != 1 or found is None:
        raise Unfit(f"pytest ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return Failure(found[1], done.stdout)


def check_import(mutant: Mutant, copy: Path) -> None:
    """Raises Unfit unless a process far from the copy can import the mutated module from the copy."""
    name = LOADED_BY.get(Path(mutant.file).suffix) or module(mutant.file)
    look = f"import importlib; print(importlib.import_module({name!r}).__file__)"
    outer = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-P', '-c', {look!r}]))"
    done = run(copy, "-P", "-c", outer, cwd=Path("/"))
    if not done.stdout.startswith(f"{copy}{os.sep}"):
        raise Unfit(f"{mutant.file} cannot be imported from the copy: {done.stdout}{done.stderr}")


def module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def run(copy: Path, *arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Runs Python, which imports from the copy before the editable install. Each run starts its own servers."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TICKER_"))}
    environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    for given in ("DATABASE_URL", "REDIS_URL"):
        environ.pop(given, None)
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=LONGEST, check=False)
