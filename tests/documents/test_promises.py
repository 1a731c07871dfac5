"""The default tests show each promise of docs/faults.md, although slow tests run only with `pytest -m slow`."""

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
PROMISES = [*(f"S{number}" for number in range(1, 15)), *(f"L{number}" for number in range(1, 6))]
AT_MOST = 30  # tests that are in the default suite although they are slow


@cache
def marked() -> list[tuple[str, list[str], bool]]:
    """Returns each test with the marker `promise`: its name, its promises, and whether it is also marked as slow."""
    found = []
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                marks = {
                    ast.unparse(mark.func if isinstance(mark, ast.Call) else mark): mark for mark in node.decorator_list
                }
                promise = marks.get("pytest.mark.promise")
                if isinstance(promise, ast.Call):
                    promises = [ast.literal_eval(name) for name in promise.args]
                    found.append((node.name, promises, "pytest.mark.slow" in marks))
    return found


@pytest.mark.parametrize("promise", PROMISES)
def test_a_default_test_shows_each_promise(promise: str) -> None:
    assert any(promise in promises and not is_slow for _, promises, is_slow in marked())


def test_few_tests_are_kept_though_they_are_slow() -> None:
    assert len(marked()) <= AT_MOST
