"""Writes tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"|{''.join(f' {cell} |' if cell else ' |' for cell in cells)}\n" for cells in lines)


def cell(text: str) -> str:
    """Returns the text in a form that fits in a cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


def code(text: str) -> str:
    return f"`{text}`" if text else ""
