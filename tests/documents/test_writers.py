"""docs/internals/life-of-a-row.md names each statement that writes `next_run` or `run_token`, with its rule, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ticker.db import sql
from ticker.tasks.rows import LISTS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/internals/life-of-a-row.md"
RULES = {"a registration", "a push", "a start", "an end", "an edit", "a gate", "the clock", "an adoption"}
WRITES = re.compile(r"\b(?:UPDATE|INSERT INTO) (?:\S*\.|\{)?tasks\b")


@pytest.mark.parametrize("column", ["next_run", "run_token"])
def test_the_page_names_each_statement_that_writes_the_column(column: str) -> None:
    rows = table(f"Who writes `{column}`")
    named = [name for cells in rows for name in re.findall(r"`(\w+)`", cells[0])]
    assert sorted(named) == sorted(name for name, text in texts() if column in written(text))
    assert {rule for cells in rows for rule in cells[2].split(", ")} <= RULES


def table(heading: str) -> list[list[str]]:
    """Returns the cells of the table in a section of the page, without its head."""
    [section] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def texts() -> Iterator[tuple[str, str]]:
    """Yields all SQL with its name: of a statement, of a function in the migrations, or of what holds it in Python."""
    yield from sql.statements("ticker", LISTS).items()
    for file in (ROOT / "ticker/migrations").rglob("*.sql"):
        before, *functions = re.split(r"CREATE FUNCTION (\w+)", file.read_text(encoding="utf-8"))
        yield from [(file.name, before), *zip(functions[::2], functions[1::2], strict=True)]
    for file in [*ROOT.glob("ticker/**/*.py"), *ROOT.glob("wrappers/**/*.py")]:
        if WRITES.search(source := file.read_text(encoding="utf-8")):
            for node in ast.parse(source).body:
                name = (
                    ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else getattr(node, "name", file.name)
                )
                strings = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
                yield name, ";\n".join(text for text in strings if isinstance(text, str))


def written(text: str) -> set[str]:
    """Returns the columns of `tasks` that SQL writes; in a trigger's function, those of its new row."""
    text = re.sub(r"--.*|'[^']*'", "''", text)
    columns = set(re.findall(r"\bNEW\.(\w+) :=", text))
    for found in WRITES.finditer(text):
        head, assigned, rest = re.sub(r"DISTINCT FROM", "<>", statement(text[found.start() :])).partition(" SET")
        while (flat := re.sub(r"\([^()]*\)|\[[^][]*\]", "#", rest)) != rest:
            columns |= {name for names in re.findall(r"\(([^()]*)\) = ROW", rest) for name in re.findall(r"\w+", names)}
            rest = flat
        targets = re.split(r"\b(?:FROM|WHERE|RETURNING)\b", rest)[0] if assigned else ""
        columns |= set(re.findall(r"(?:^|,)\s*(\w+)\s*=", targets))
        if found[0].startswith("INSERT"):
            columns |= set(re.findall(r"\w+", head.partition("(")[2].partition(")")[0]))
    return columns


def statement(text: str) -> str:
    """Returns the beginning of the text up to the end of its first statement: a semicolon, or a closing parenthesis."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0 or (letter == ";" and depth == 0):
            return text[:place]
    return text


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("UPDATE tasks t SET a = CASE WHEN b = 1 THEN c END, d = f(e, g = 2) FROM (SELECT 1) i WHERE h = 1", {"a", "d"}),
        ("WITH w AS (UPDATE ticker.tasks SET a = 1 RETURNING id) UPDATE runs SET b = 1", {"a"}),
        ("UPDATE {tasks} SET (a, b) = ROW (1, 2), c = d IS DISTINCT FROM e, f = 1; SELECT g = 1", {"a", "b", "c", "f"}),
        ("INSERT INTO tasks AS t (a, b) SELECT c FROM d ON CONFLICT (e) DO UPDATE SET f = 1 WHERE g = 1", {"a", "b", "f"}),
        ("SELECT FROM tasks WHERE a = 'UPDATE tasks SET b = 1' -- UPDATE tasks SET c = 1\nFOR NO KEY UPDATE", set()),
        ("IF NEW.a = 1 THEN NEW.b := 2; END IF", {"b"}),
    ],
)  # fmt: skip
def test_the_columns_that_a_text_writes(text: str, columns: set[str]) -> None:
    assert written(text) == columns
