"""Tests of the golden files: each key is used, each used key exists, and one command rewrites a sentence."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests import sentences
from tests.running import ROOT
from tests.sentences import FOLDER, golden, sentence

MODULES = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
MACHINES = {"bench", "faults", "model", "mutants", "simulation"}
WORD_FOR_WORD_AT_MOST = 20
"""Tests may repeat values that they pass, names of events, and texts that they wait for; sentences are in golden files."""


@cache
def nodes(path: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(path.read_text()))]


def used() -> set[str]:
    calls = [node for path in MODULES for node in nodes(path) if isinstance(node, ast.Call)]
    keys = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "sentence"]
    assert all(isinstance(key, ast.Constant) for key in keys), "write the key as a literal, so that it can be found"
    return {key.value for key in keys if isinstance(key, ast.Constant)}


@pytest.mark.slow
def test_a_key_is_in_its_file_just_when_a_test_uses_it() -> None:
    kept = {f"{path.stem}.{key}" for path in FOLDER.glob("*.toml") for key in golden(path.stem)}
    assert sorted(kept - used()) == [], "no test uses it: remove it from its file"
    assert sorted(used() - kept) == [], "add it to its file"


def texts(path: Path) -> list[str]:
    """Returns the strings of a module, without its docstrings."""
    prose = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
    constants = [node for node in nodes(path) if isinstance(node, ast.Constant) and id(node) not in prose]
    return [node.value for node in constants if isinstance(node.value, str)]


def phrases(text: str) -> set[str]:
    """Returns every run of four words."""
    runs = [run.lower().split(" ") for run in re.findall(r"[A-Za-z][a-z']*(?: [a-z][a-z']*){3,}", text)]
    return {" ".join(run[start : start + 4]) for run in runs for start in range(len(run) - 3)}


def writes_pages(path: Path) -> bool:
    """Whether a module writes pages of the documentation."""
    return path.parent.name == "documents" and not path.name.startswith("test_")


@pytest.mark.slow
def test_a_wording_stands_in_the_golden_files_alone() -> None:
    """A wording can be changed without editing tests: no string of a test repeats four words in a row of our texts."""
    sources = [path for room in ("ticker", "wrappers") for path in (ROOT / room).rglob("*.py")]
    ours = {phrase for path in sources for text in texts(path) for phrase in phrases(text)}
    ours |= {phrase for path in (ROOT / "ticker").rglob("*.html") for phrase in phrases(path.read_text())}
    tests = [
        path for path in MODULES if not MACHINES & {*path.relative_to(ROOT / "tests").parts} and not writes_pages(path)
    ]
    found = [f"{path.name}: {text}" for path in tests for text in texts(path) if ours & phrases(text)]
    assert len(found) <= WORD_FOR_WORD_AT_MOST, "\n".join(found)


def test_files_are_sorted_one_sentence_a_line() -> None:
    for path in FOLDER.glob("*.toml"):
        lines = path.read_text().splitlines()
        assert [line.split(" = ")[0] for line in lines] == sorted(golden(path.stem))


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sentences, "FOLDER", tmp_path)
    file = tmp_path / "face.toml"
    file.write_text('other = "1 + 1"\nunknown = "there is no task {task} here"\n')
    return file


def test_a_sentence_is_the_whole_text_or_within_a_longer_one(written: Path) -> None:
    unknown = sentence("face.unknown", task=7)
    assert unknown == "there is no task 7 here" and (2, unknown) == (2, "there is no task 7 here")
    assert unknown != "error: there is no task 7 here" and unknown.within("error: there is no task 7 here\n")
    assert unknown != "there is no task 8 here" and not unknown.within(ValueError("there is no task 77 here"))
    assert sentence("face.unknown", task=re.compile(r"\d+")) == "there is no task 12 here"
    with pytest.raises(AssertionError, match="names"):
        sentence("face.unknown")


def test_rewriting_keeps_what_was_observed(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "rewriting", True)
    assert sentence("face.unknown", task=7).within("error: a 7 b\n  there is no such task as 7 here; see list 17\n")
    assert golden("face") == {"other": "1 + 1", "unknown": "there is no such task as {task} here;"}
    assert sentence("face.unknown", task=8) == 'no such "task" as 8 here'
    assert written.read_text() == 'other = "1 + 1"\nunknown = "no such \\"task\\" as {task} here"\n'


@pytest.mark.parametrize("text", ["there is no task here", "a 7 b, which is something else altogether", ""])
def test_what_names_no_value_or_resembles_nothing_is_not_taken(
    text: str, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentences, "rewriting", True)
    before = written.read_text()
    assert sentence("face.unknown", task=7) != text and not sentence("face.unknown", task=7).within(text)
    assert written.read_text() == before
