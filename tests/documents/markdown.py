"""Writes tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns the table without the columns in which no row has a text."""
    columns = [column for column in zip(head, *rows, strict=True) if any(column[1:])]
    first, *others = ["".join(f" {cell} |" if cell else " |" for cell in line) for line in zip(*columns, strict=True)]
    return "".join(f"|{line}\n" for line in (first, "---|" * len(columns), *others))


def cell(text: str) -> str:
    """Returns the text in a form that fits in a cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


def code(text: str) -> str:
    return f"`{text}`" if text else ""
