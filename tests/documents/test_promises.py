"""The default tests show each promise of docs/internals/faults.md, although what is slow is left to `pytest -m slow`."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
PROMISES = [*(f"S{number}" for number in range(1, 15)), *(f"L{number}" for number in range(1, 6))]
AT_MOST = 30  # tests that are in the default suite although they are slow
NOT_DEFAULT = {f"pytest.mark.{name}" for name in ("slow", "long", "netns", "browser", "pooler", "docs", "sources")}


@cache
def marked() -> list[tuple[str, list[str], bool]]:
    """Returns each test with the mark `promise`: its name, its promises, and whether a mark keeps it out of the default tests."""
    texts = (path.read_text() for path in TESTS.rglob("test_*.py"))
    return [test for text in texts if "promise(" in text for test in marked_in(text)]


def marked_in(text: str) -> Iterator[tuple[str, list[str], bool]]:
    tree = ast.parse(text)
    of_module = {
        ast.unparse(mark)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for mark in ast.walk(node.value)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            marks = {
                ast.unparse(mark.func if isinstance(mark, ast.Call) else mark): mark for mark in node.decorator_list
            }
            promise = marks.get("pytest.mark.promise")
            if isinstance(promise, ast.Call):
                promises = [ast.literal_eval(name) for name in promise.args]
                yield node.name, promises, bool(NOT_DEFAULT & (marks.keys() | of_module))


@pytest.mark.parametrize("promise", PROMISES)
def test_a_default_test_shows_each_promise(promise: str) -> None:
    assert any(promise in promises and not is_left_out for _, promises, is_left_out in marked())


@pytest.mark.parametrize(
    ("module", "decorator", "is_left_out"),
    [
        ("", "", False),
        ("", "@pytest.mark.slow\n", True),
        ("", "@pytest.mark.long\n", True),
        ("pytestmark = pytest.mark.slow\n", "", True),
        ("pytestmark = [pytest.mark.long, pytest.mark.timeout(9)]\n", "", True),
        ("pytestmark = pytest.mark.skipif(slow)\n", "", False),
    ],
)
def test_a_mark_of_a_test_or_of_its_module_keeps_it_out(module: str, decorator: str, is_left_out: bool) -> None:
    text = f'{module}{decorator}@pytest.mark.promise("S1")\ndef test_it(): ...\n'
    assert list(marked_in(text)) == [("test_it", ["S1"], is_left_out)]


def test_few_tests_are_kept_though_they_are_slow() -> None:
    assert len(marked()) <= AT_MOST
