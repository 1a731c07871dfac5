"""Measures how large the project is, by room. Everything that git tracks is in a room, so nothing gets smaller by moving."""

import ast
import io
import subprocess
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.documents import commands
from tests.documents.pages import PAGES
from ticker.cli import main
from ticker.db import tables

ROOT = Path(__file__).parents[2]
BUDGET = Path(__file__).parent / "budget.toml"
PRODUCT = ("ticker", "wrappers")
LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
CRUMB, LONG_LINE, LONG_FUNCTION = 60, 120, 40  # lines, characters, lines

Size = dict[str, int]


def budget() -> dict[str, Any]:
    return tomllib.loads(BUDGET.read_text())


def rooms() -> dict[str, Size]:
    """Returns the size of each room: tokens of Python, lines of SQL, words of Markdown, or lines of everything else."""
    sizes: dict[str, Size] = {}
    for path in tracked():
        size = Counter(sizes.get(room(path), {}))
        size.update(measured(path))
        sizes[room(path)] = dict(size)
    return dict(sorted(sizes.items()))


def totals(of_rooms: dict[str, Size]) -> Size:
    """Returns what concerns the whole, from the sizes of the rooms and from all modules."""
    modules = [path for path in tracked() if path.parts[0] in PRODUCT and path.suffix == ".py"]
    texts = [(ROOT / path).read_text() for path in modules]

    def total(kind: str, *top: str) -> int:
        return sum(size.get(kind, 0) for name, size in of_rooms.items() if name.partition("/")[0] in top)

    return {
        "tokens of Python in ticker and wrappers": total("tokens", *PRODUCT),
        "lines of SQL and Lua in ticker and wrappers": total("sql", *PRODUCT),
        "modules under 60 lines": sum(len(text.splitlines()) < CRUMB for text in texts),
        "commands": len(list(commands.commands(main))),
        "tables": len(tables.metadata.tables),
        "lines of tests": total("lines", "tests"),
        "words of docs": total("words", "docs"),
        "words of docs, generated": total("generated", "docs"),
        "lines over 120 characters": sum(len(line) > LONG_LINE for text in texts for line in text.splitlines()),
        "fmt: skip": sum(text.count("# fmt: skip") for text in texts),
        "functions over 40 lines": sum(1 for text in texts for lines in lengths(text) if lines > LONG_FUNCTION),
    }


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in map(Path, listed.splitlines()) if (ROOT / path).is_file()]


def room(path: Path) -> str:
    """A package of ours, a folder of tests, or another top-level folder; `.` has the files outside of all folders."""
    deep = path.parts[0] in (*PRODUCT, "tests")
    return "/".join(path.parts[: min(2 if deep else 1, len(path.parts) - 1)]) or "."


def measured(path: Path) -> Size:
    try:
        text = (ROOT / path).read_text()
    except UnicodeDecodeError:
        return {"kilobytes": (ROOT / path).stat().st_size // 1024}
    if path.suffix == ".md":
        is_generated = any(path == page.FILE.relative_to(ROOT) for page in PAGES)
        return {"generated" if is_generated else "words": len(text.split())}
    if path.parts[0] in PRODUCT and path.suffix == ".py":
        return {"tokens": tokens(text)}
    if path.parts[0] in PRODUCT and path.suffix in (".sql", ".lua"):
        return {"sql": len(text.splitlines())}
    return {"lines": len(text.splitlines())}


def tokens(text: str) -> int:
    """Counts the tokens of Python. Comments, docstrings, blank lines and indentation cost nothing."""
    docstrings = {node.lineno for node in docstring_nodes(text)}
    return sum(
        token.type not in LAYOUT and not (token.type == tokenize.STRING and token.start[0] in docstrings)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def docstring_nodes(text: str) -> Iterator[ast.expr]:
    """Yields the strings that stand alone: docstrings, and those that document an attribute."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def lengths(text: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1
