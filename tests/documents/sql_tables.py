"""Writes docs/reference/sql.md from the migrations of the tables: `python -m tests.documents`."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.documents.markdown import cell, code, table

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs/reference/sql.md"
SOURCE = ROOT / "ticker/migrations/versions"
HEAD = """\
# Tables

`ticker db upgrade` creates these tables in the schema `ticker` (`TICKER_SCHEMA`). This page is generated from the
files in `ticker/migrations/versions`, which also contain the constraints, the indexes and the functions; `ticker db upgrade --sql`
prints them.

Read these tables with any client, or join them with your own tables using
[`ticker.db.tables`](../concepts/owners.md#joins-with-your-own-tables). To change a task, call `register`, `edit` or a similar
function: these check what constraints cannot check. Durations are whole milliseconds, and times are `timestamptz`. PostgreSQL
enforces the limits.
"""


def text() -> str:
    """Returns the whole page."""
    source = "".join(file.read_text(encoding="utf-8") for file in sorted(SOURCE.glob("*/*.sql")))
    rules = dict(domains(source))
    return HEAD + "".join(f"\n## `{name}`\n\n{says}\n{columns(body, rules)}" for name, says, body in tables(source))


def domains(source: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yields the type and the limits of each domain. JSON and patterns are too long to show."""
    pattern = r"^CREATE DOMAIN (\w+) AS ([\w\[\]]+) CHECK \((.*?)\);$"
    for name, base, check in re.findall(pattern, source, re.DOTALL | re.MULTILINE):
        limits = " ".join(check.replace("VALUE", "").split())
        if between := re.fullmatch(r"BETWEEN (-?\d+) AND (\d+)", limits):
            limits = f"{int(between[1]):,} to {int(between[2]):,}"
        elif limits.startswith("IN ("):
            limits = ", ".join(code(word) or "''" for word in re.findall(r"'(\w*)'", limits))
        elif length := re.search(r"length\(\) <= (\d+)", limits):
            limits = f"up to {int(length[1]):,} characters"
        else:
            limits = ""
        yield name, (base, limits)


def tables(source: str) -> Iterator[tuple[str, str, str]]:
    """Yields the name, the purpose and the body of each table."""
    pattern = r"((?:^-- [^-\n][^\n]*\n)*)^CREATE TABLE (\w+) \(\n(.*?)^\)"
    for comment, name, body in re.findall(pattern, source, re.DOTALL | re.MULTILINE):
        yield name, " ".join(line.removeprefix("-- ") for line in comment.splitlines()), body


def columns(body: str, rules: dict[str, tuple[str, str]]) -> str:
    """Returns a Markdown table for each group of columns, after the comment that describes the group."""
    groups: list[tuple[str, list[tuple[str, str, str, str]]]] = []
    for part in re.split(r"\n\s*\n", body):
        comment = " ".join(re.findall(r"^    -- (.*)$", part, flags=re.MULTILINE))
        rows = [
            column(*found, rules)
            for found in re.findall(r"^    ([a-z]\w*) ([a-z_\[\]]+)(.*)$", part, flags=re.MULTILINE)
        ]
        if comment or not groups:
            groups.append((comment, rows))
        else:
            groups[-1][1].extend(rows)
    head = ("column", "type", "limits", "default")
    return "".join(
        f"\n{cell(comment)}\n\n{table(head, rows)}" if comment else f"\n{table(head, rows)}"
        for comment, rows in groups
        if rows
    )


def column(name: str, kind: str, rest: str, rules: dict[str, tuple[str, str]]) -> tuple[str, str, str, str]:
    base, limits = rules.get(kind, (kind, ""))
    given = re.search(r"DEFAULT (\S+(?: \S+\))?)", rest)
    nullable = "" if "NOT NULL" in rest or "PRIMARY KEY" in rest else " or null"
    return code(name), f"{base}{nullable}", limits, code(given[1].rstrip(",")) if given else ""
