"""The catalogue of mutants fits the code of today."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants import trial
from tests.mutants.catalogue import CATALOGUE
from tests.mutants.mutant import Mutant, Rotten
from tests.running import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("mutant", CATALOGUE, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_of_the_code_of_today_and_its_tests_are_there(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    mutated = mutant.mutated(text)
    assert mutated != text
    if mutant.file.endswith(".py"):
        ast.parse(mutated)
    assert mutant.file.startswith(("ticker/", "wrappers/"))
    for test in mutant.expected:
        file, _, path = test.partition("::")
        assert path.split("::")[-1] in set(functions(ROOT / file)), test


def functions(file: Path) -> Iterator[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("text", ["other", "here and here"])
def test_a_mutant_whose_text_is_not_there_or_there_twice_is_rotten(text: str) -> None:
    with pytest.raises(Rotten):
        Mutant("name", "ticker/engine/tick.py", "here", "there", "rule", ()).mutated(text)


def test_there_are_many_mutants_each_with_a_name_and_a_rule_of_its_own() -> None:
    assert len({mutant.name for mutant in CATALOGUE}) == len(CATALOGUE) >= 25
    assert len({mutant.breaks for mutant in CATALOGUE}) == len(CATALOGUE)
    assert all(mutant.breaks.endswith(".") and "|" not in mutant.breaks for mutant in CATALOGUE)


def test_each_mutant_names_a_test_that_catches_it() -> None:
    assert [mutant.name for mutant in CATALOGUE if not mutant.expected] == []


@pytest.mark.slow
def test_a_trial_runs_slow_tests_too(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "tests").mkdir()
    module = "import pytest\n\n\n@pytest.mark.slow\ndef test_it():\n    assert False\n"
    (tmp_path / "tests" / "test_one.py").write_text(module, encoding="utf-8")
    failure = trial.first_failure(tmp_path, "tests/test_one.py::test_it")
    assert failure is not None and failure.test == "tests/test_one.py::test_it"


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_every_mutant_is_caught() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--jobs", "2"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
