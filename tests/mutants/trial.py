"""One mutant on trial: a copy of the checkout with the fault in it, and the first of its tests that fails."""

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
SUITE = "not long and not netns and not browser and not pooler"  # the slow ones, too
QUIET = ("-n", "0", "-q", "-p", "no:cacheprovider", "--timeout", "300", "-m", SUITE)
LOADED_BY = {".sql": "ticker.db.sql", ".lua": "ticker.queue.bulk"}
HOURS = 2 * 3600  # seconds: a bound for a whole suite on a loaded machine

_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
_NOT_SQL = re.compile(
    r"^E +(psycopg\.errors\.(?:SyntaxError|Undefined\w+|Ambiguous\w+|DatatypeMismatch|GroupingError))", re.MULTILINE
)


class Unfit(Exception):
    """No trial: the unmutated tests fail, or what was made of the code is no code."""


@dataclass(frozen=True)
class Failure:
    """The first test that failed, by its pytest id, and what pytest printed."""

    test: str
    output: str


@contextmanager
def checkout(source: Path = ROOT) -> Iterator[Path]:
    """A copy without environments, histories and caches, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder).resolve() / "copy"
        copytree(source, copy, ignore=ignore_patterns(*LEFT_OUT))
        yield copy


def check_baseline(copy: Path, expected: Sequence[str]) -> None:
    """Unfit where the tests that are to catch something fail by themselves."""
    if failure := first_failure(copy, *expected):
        raise Unfit(f"without any mutant {failure.test} fails\n{failure.output[-3000:]}")


def caught_by(mutant: Mutant, source: Path) -> str | None:
    """The test that fails on this mutant and not without it; None where there is none. Unfit."""
    with checkout(source) as copy:
        mutant.apply(copy)
        check_import(mutant, copy)
        if failure := first_failure(copy, *mutant.expected):
            return runnable(failure).test
        return found_in_the_suite(copy, source)


def found_in_the_suite(copy: Path, source: Path) -> str | None:
    """A test that nobody named for this mutant counts if it fails alone, too, and passes in the unmutated source."""
    unsure: list[str] = []
    while failure := first_failure(copy, *unsure):
        test = runnable(failure).test
        if first_failure(copy, test) and not first_failure(source, test):
            return test
        unsure += ["--deselect", test]
    return None


def runnable(failure: Failure) -> Failure:
    """The same; Unfit where PostgreSQL could not even run the statement."""
    if found := _NOT_SQL.search(failure.output):
        raise Unfit(f"no statement that PostgreSQL runs: {found[1]} in {failure.test}")
    return failure


def first_failure(copy: Path, *arguments: str) -> Failure | None:
    """Runs the copy's tests until one fails; None when all pass. Unfit where pytest itself could not go on."""
    done = run(copy, "-m", "pytest", "-x", *QUIET, *arguments, cwd=copy)
    if done.returncode == 0:
        return None
    found = _FAILED.search(done.stdout)
    if done.returncode != 1 or found is None:
        raise Unfit(f"pytest ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return Failure(found[1], done.stdout)


def check_import(mutant: Mutant, copy: Path) -> None:
    """Unfit unless the mutated module can be imported, from the copy, in a process of a process far from it."""
    name = LOADED_BY.get(Path(mutant.file).suffix) or module(mutant.file)
    look = f"import importlib; print(importlib.import_module({name!r}).__file__)"
    outer = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-P', '-c', {look!r}]))"
    done = run(copy, "-P", "-c", outer, cwd=Path("/"))
    if not done.stdout.startswith(f"{copy}{os.sep}"):
        raise Unfit(f"{mutant.file} cannot be imported from the copy: {done.stdout}{done.stderr}")


def module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def run(copy: Path, *arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Python, for which the copy comes before the editable install; each run starts servers of its own."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TICKER_"))}
    environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    for given in ("DATABASE_URL", "REDIS_URL"):
        environ.pop(given, None)
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=HOURS, check=False)
